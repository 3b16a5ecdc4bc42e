"""Log to the terminal and, as JSON, to the data directory, without tokens.

`serve` shows INFO of the bridge and WARNING of everything else in the terminal, and writes all of
it to `logs/bridge.log`. Any other command shows WARNING on standard error only.
"""

import json
import logging
import logging.config
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import Any, Final, TextIO
from urllib.parse import unquote, urlsplit

import structlog
from structlog.typing import EventDict, Processor

from bridge_project.kernel import daphne_command, limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.private_files import make_private_dir
from bridge_project.kernel.text import SECRET_KEYS, network_of

FILE_BYTES: Final = 10 * 2**20
FILE_COUNT: Final = 5
HIDDEN: Final = "[hidden]"
OTHERS: Final = "other addresses"
REFUSALS: Final = "bridge.http"  # a line for each refusal
ACCESS: Final = "bridge.access"  # a line for each request that was answered well
HELD_BACK: Final = "bridge.logs"  # how many lines of these were held back

OURS: Final = ("bridge", "bridge_project", "devices_app", "sessions_app", "files_app", "hooks_app")
LEVELS: Final = {
    **dict.fromkeys(OURS, "INFO"),
    # their own handlers print every message a second time, and would mail it
    **dict.fromkeys(("django", "django.server", "daphne"), "NOTSET"),
    # log/notify.py says once that Redis is away, channels_redis every second
    "channels_redis": "CRITICAL",
    # its lines have addresses to notify; devices_app/push/addresses.py says what became of each
    "urllib3": "CRITICAL",
    # http/errors.py logs it, with its code
    **dict.fromkeys(("django.request", "django.security"), "CRITICAL"),
}

_SECRETS: Final = (
    (re.compile(r"(bridge_(?:device|hook|admin)_)[A-Za-z0-9_\-]{12,}"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer\s+)[!-~]{8,}"), rf"\1{HIDDEN}"),
    # keys of models and code forges, by their beginnings, and whatever is called a key
    (
        re.compile(r"\b(sk-|AIza|gh[a-z]_|github_pat_|glpat-|hf_|xox[a-z]-|AKIA|eyJ)[\w.-]{12,}"),
        HIDDEN,
    ),
    (
        re.compile(
            r"(?i)((?:api[_-]?key|[_-]token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]{8,}"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@"), rf"\1{HIDDEN}@"),
)

# what each event gets, from structlog or the standard library
_FIELDS: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure(_config: Mapping[str, Any]) -> None:
    """Set up logging and structlog; Django calls it with `LOGGING`."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_FIELDS,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    serving = sys.argv[1:2] in (["run"], ["serve"]) or daphne_command.is_running()
    handlers: dict[str, Any] = {"terminal": {"()": Terminal, "serving": serving}}
    if serving:
        handlers["file"] = {"()": LogFile}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": handlers,
            "loggers": {
                name: {"level": level, "propagate": True} for name, level in LEVELS.items()
            },
            "root": {"level": "WARNING", "handlers": list(handlers)},
        }
    )
    logging.captureWarnings(True)
    for name, limiter in RATE_LIMITERS.items():
        logging.getLogger(name).addFilter(limiter)


class Terminal(logging.StreamHandler[TextIO]):
    """Write to ``sys.stderr`` as it is at that moment: pytest replaces it."""

    def __init__(self, *, serving: bool) -> None:
        super().__init__()
        self.setLevel(logging.INFO if serving else logging.WARNING)
        in_file_only = (REFUSALS, ACCESS, HELD_BACK)
        self.addFilter(
            lambda record: record.levelno > logging.INFO or record.name not in in_file_only
        )
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
            # rich's shows local variables, and with them tokens
            exception_formatter=structlog.dev.plain_traceback,
            pad_event_to=28,
        )
        self.setFormatter(Redacting(renderer))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class LogFile(RotatingFileHandler):
    """Write `logs/bridge.log` (at most 60 MB); on a full disk lines are dropped."""

    def __init__(self) -> None:
        path = conf.bridge_data_dir / "logs" / "bridge.log"
        super().__init__(path, "a", FILE_BYTES, FILE_COUNT, "utf-8", delay=True)
        json_lines = structlog.processors.JSONRenderer(serializer=json.dumps)
        self.setFormatter(Redacting(structlog.processors.format_exc_info, json_lines))
        self._failed_at = float("-inf")

    def _open(self) -> TextIOWrapper:
        make_private_dir(conf.bridge_data_dir, "logs")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return open(os.open(self.baseFilename, flags, 0o600), "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's name
        if time.monotonic() - self._failed_at > 60:
            self._failed_at = time.monotonic()
            error = sys.exc_info()[1]
            print(f"The log file cannot be written: {error}", file=sys.stderr)  # noqa: T201 - logging is what fails


class LogRateLimiter(logging.Filter):
    """Let a client's first lines of a code through; count the rest each minute.

    A line is about a client when it is below ERROR and has `client`; its code is the field `code`,
    else its event. All other lines pass. An IPv6 client is its /64. To bound memory, above `total`
    lines a minute new clients are counted together.
    """

    def __init__(self, what: str, *, each: int, total: int) -> None:
        super().__init__()
        self.what, self.each, self.total = what, each, total
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._timer: threading.Timer | None = None  # runs from the first line on
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
            if self._timer is None:
                self._timer = threading.Timer(limits.LOG_WINDOW_SECONDS, self.log_counts)
                self._timer.daemon = True
                self._timer.start()
            passed = self._passed.get(client, Counter())
            if passed[code] < self.each and self._left:
                self._left -= 1
                passed[code] += 1
                self._passed[client] = passed
                return True
            self._held.setdefault(client if passed else OTHERS, Counter())[code] += 1
            self._level = max(self._level, record.levelno)
            return False

    def log_counts(self) -> None:
        """Log how many lines of each client were dropped, and begin the next minute."""
        with self._lock:
            held, level = self._held, self._level
            if self._timer is not None:
                self._timer.cancel()
            self._begin()
        for client, codes in held.items():
            which = ", ".join(f"{code} {count}" for code, count in codes.most_common())
            text = f"{codes.total()} more {self.what} of {client} in the last minute: {which}"
            logging.getLogger(HELD_BACK).log(level, text)


RATE_LIMITERS: Final = {
    REFUSALS: LogRateLimiter("refusals", each=1, total=limits.LOG_REFUSALS),
    ACCESS: LogRateLimiter("requests", each=limits.LOG_CLIENT_REQUESTS, total=limits.LOG_REQUESTS),
}


class Redacting(structlog.stdlib.ProcessorFormatter):
    """Format a record, and take secrets out of its text and traceback."""

    def __init__(self, *processors: Any) -> None:
        super().__init__(
            processors=[self.remove_processors_meta, _hide_secret_fields, *processors],
            foreign_pre_chain=_FIELDS,
        )

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def _hide_secret_fields(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {key: HIDDEN if key.lower() in SECRET_KEYS else value for key, value in event.items()}


def redact(text: str, more: Iterable[str] = ()) -> str:
    """Remove tokens, keys, URL passwords and ``more`` secrets from a text."""
    # Configured ones need not look like ours; in the file they stand as JSON writes them.
    urls = (urlsplit(url).password or "" for url in (conf.database_url, conf.redis_url))
    ours = (conf.bridge_hook_token, conf.bridge_admin_token, *map(unquote, urls))
    ours += conf.notify_secrets
    for secret in (*ours, *more):
        if len(secret) >= 8:
            text = text.replace(secret, HIDDEN).replace(json.dumps(secret)[1:-1], HIDDEN)
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text
