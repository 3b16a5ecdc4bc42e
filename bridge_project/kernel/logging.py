"""Logging: short lines for people in the terminal, JSON lines in the data directory, and no token
in either.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

import structlog
from structlog.typing import EventDict, Processor

from bridge_project.kernel import daphne_command, limits
from bridge_project.kernel.config import Conf, conf, make_private_dir
from bridge_project.kernel.text import SECRET_KEYS, network_of

FILE_BYTES: Final = 10 * 2**20
FILE_COUNT: Final = 5
HIDDEN: Final = "[hidden]"
OTHERS: Final = "other addresses"
REFUSALS: Final = "bridge.http"  # a line for each refusal
ACCESS: Final = "bridge.access"  # a line for each request that was answered well
HELD_BACK: Final = "bridge.logs"  # how many lines of these were held back
FILE_ONLY: Final = (REFUSALS, ACCESS, HELD_BACK)  # the terminal shows their warnings alone

_TOKEN = re.compile(r"(bridge_(?:device|hook|admin)_)[A-Za-z0-9_\-]{12,}")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[!-~]{8,}")
_URL_PASSWORD = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@")


def configure(_config: Mapping[str, Any]) -> None:
    """Set up the standard library's logging and structlog; Django calls it with ``LOGGING``.

    ``serve`` says INFO of the bridge and WARNING of everything else in the terminal, and writes all
    of the bridge's to ``<data dir>/logs/bridge.log``; any other command says WARNING on standard
    error only. Never fails: without a usable directory there is no file, and a warning.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    log_held_back()
    serving = is_serving()
    handlers: list[logging.Handler] = [terminal(serving=serving)]
    failure = None
    if serving:
        try:
            handlers.append(log_file(conf))
        except OSError as error:
            failure = error
    root = logging.getLogger()
    for handler in [*root.handlers]:
        # its own shows tokens
        if isinstance(handler, (_Terminal, _LogFile)) or daphne_command.is_running():
            root.removeHandler(handler)
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    _set_levels()
    if failure is not None:
        logging.getLogger(HELD_BACK).warning("no log file: %s", failure)


def is_serving() -> bool:
    """Whether this process is the server and not another command."""
    return sys.argv[1:2] == ["serve"] or daphne_command.is_running()


def _set_levels() -> None:
    logging.getLogger().setLevel(logging.WARNING)
    for name in (
        "bridge",
        "bridge_project",
        "devices_app",
        "sessions_app",
        "files_app",
        "hooks_app",
    ):
        logging.getLogger(name).setLevel(logging.INFO)
    for name in ("django", "django.server", "django.request", "django.security", "daphne"):
        logger = logging.getLogger(name)
        # Django's default ones print every message a second time and would mail it
        logger.handlers.clear()
        logger.propagate = True
    for name in ("django.request", "django.security"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # rest.py logs it, with its code
    logging.captureWarnings(True)
    _hold_backs[:] = [
        HoldBack(REFUSALS, "refusals", each=1, total=limits.LOG_REFUSALS),
        HoldBack(ACCESS, "requests", each=limits.LOG_CLIENT_REQUESTS, total=limits.LOG_REQUESTS),
    ]


# -- where it goes ---------------------------------------------------------------------------------


class _Terminal(logging.StreamHandler[Any]):
    """Standard error as it is now, not as it was when logging was set up: the test runner exchanges
    it.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> IO[str]:
        return sys.stderr

    @stream.setter
    def stream(self, _value: Any) -> None:
        raise AttributeError("stream")


def terminal(*, serving: bool) -> logging.Handler:
    """The handler for people."""
    handler = _Terminal()
    handler.setLevel(logging.INFO if serving else logging.WARNING)
    handler.addFilter(_is_for_the_terminal)
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
        # rich's shows local variables, and with them tokens
        exception_formatter=structlog.dev.plain_traceback,
        pad_event_to=28,
    )
    handler.setFormatter(_Redacting(processors=[_drop_meta, renderer]))
    return handler


def log_file(conf: Conf) -> logging.Handler:
    """``<data dir>/logs/bridge.log``, 0600, kept under 60 MB. Raises OSError when it cannot be
    written.
    """
    directory = make_private_dir(conf.bridge_data_dir, "logs")
    handler = _LogFile(
        directory / "bridge.log", maxBytes=FILE_BYTES, backupCount=FILE_COUNT, encoding="utf-8"
    )
    json_lines = structlog.processors.JSONRenderer(serializer=_one_line)
    handler.setFormatter(
        _Redacting(processors=[_drop_meta, structlog.processors.format_exc_info, json_lines])
    )
    return handler


class _LogFile(RotatingFileHandler):
    """A file that only its owner reads; a full disk costs lines, never the request that wanted to
    log.
    """

    _failed_at = float("-inf")

    def _open(self) -> TextIOWrapper:
        return open(
            os.open(
                self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            ),
            "a",
            encoding=self.encoding,
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        error = sys.exc_info()[1]
        if time.monotonic() - self._failed_at > 60:
            self._failed_at = time.monotonic()
            print(f"The log file cannot be written: {error}", file=sys.stderr)  # noqa: T201 - logging is what fails


def _is_for_the_terminal(record: logging.LogRecord) -> bool:
    return record.name not in FILE_ONLY or record.levelno >= logging.WARNING


class HoldBack(logging.Filter):
    """Let the first lines about a client and a code through, and once a minute count the others.

    A line is about a client when it is below ERROR and has ``client``; its code is the field
    ``code``, else its event. All other lines pass. An IPv6 client is its /64. What is remembered
    is bounded: above ``total`` lines a minute, clients that have had none are counted together.
    """

    def __init__(self, logger: str, what: str, *, each: int, total: int) -> None:
        super().__init__()
        self.what, self.each, self.total = what, each, total
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._start(0.0)
        filters = logging.getLogger(logger).filters
        filters[:] = [one for one in filters if not isinstance(one, HoldBack)]
        filters.append(self)

    def _start(self, now: float) -> None:
        self._ends = now + limits.LOG_WINDOW_SECONDS
        self._left = self.total  # lines that may still be let through
        self._passed: dict[str, Counter[str]] = {}  # client → code → lines let through
        self._held: dict[str, Counter[str]] = {}  # client → code → lines held back
        self._level = logging.INFO  # of the gravest of them

    def filter(self, record: logging.LogRecord) -> bool:
        fields = record.msg if isinstance(record.msg, dict) else vars(record)
        if "client" not in fields or record.levelno >= logging.ERROR:
            return True
        client = network_of(str(fields["client"]))
        code = str(fields.get("code") or fields.get("event"))
        with self._lock:
            now = time.monotonic()
            if self._timer is None and now >= self._ends:
                self._start(now)
            passed = self._passed.get(client, Counter())
            if passed[code] < self.each and self._left:
                self._left -= 1
                passed[code] += 1
                self._passed[client] = passed
                return True
            self._hold(client, code, record.levelno, now)
        return False

    def _hold(self, client: str, code: str, level: int, now: float) -> None:
        client = client if client in self._passed else OTHERS
        self._held.setdefault(client, Counter())[code] += 1
        self._level = max(self._level, level)
        if self._timer is None:
            self._timer = threading.Timer(max(0.0, self._ends - now), self.log_counts)
            self._timer.daemon = True
            self._timer.start()

    def log_counts(self) -> None:
        """Log how many lines were held back of each client, and begin the next minute."""
        with self._lock:
            held, level = self._held, self._level
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._start(time.monotonic())
        for client, codes in held.items():
            which = ", ".join(f"{code} {count}" for code, count in codes.most_common())
            text = f"{codes.total()} more {self.what} of {client} in the last minute: {which}"
            logging.getLogger(HELD_BACK).log(level, text)


_hold_backs: list[HoldBack] = []


def log_held_back() -> None:
    """Log what has been held back so far: the process ends, or logging is set up anew."""
    for one in _hold_backs:
        one.log_counts()


# -- how it looks ----------------------------------------------------------------------------------

# What comes from the standard library's loggers gets what structlog's have.
_FOREIGN: Final[list[Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _drop_meta(_logger: Any, _method: str, event: EventDict) -> EventDict:
    event = structlog.stdlib.ProcessorFormatter.remove_processors_meta(_logger, _method, event)
    return {key: HIDDEN if key.lower() in SECRET_KEYS else value for key, value in event.items()}


def _one_line(event: Any, **options: Any) -> str:
    return json.dumps(event, ensure_ascii=True, **options)


class _Redacting(structlog.stdlib.ProcessorFormatter):
    """Formats a record, then takes out of the finished text, traceback included, whatever looks
    like a secret.
    """

    def __init__(self, processors: Any) -> None:
        super().__init__(processors=processors, foreign_pre_chain=_FOREIGN)

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def redact(text: str) -> str:
    """The text without device, hook and admin tokens, bearer values, configured secrets, and
    passwords in URLs.
    """
    for secret in _secrets():
        text = text.replace(secret, HIDDEN)
    text = _TOKEN.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _URL_PASSWORD.sub(rf"\1{HIDDEN}@", text)


def _secrets() -> tuple[str, ...]:
    """Tokens from the settings, which need not look like ours, as they are and as JSON writes
    them.
    """
    passwords = (
        unquote(urlsplit(url).password or "") for url in (conf.database_url, conf.redis_url)
    )
    plain = [
        secret
        for secret in (conf.bridge_hook_token, conf.bridge_admin_token, *passwords)
        if len(secret) >= 8
    ]
    return tuple(dict.fromkeys([*plain, *(json.dumps(secret)[1:-1] for secret in plain)]))
