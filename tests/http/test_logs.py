"""What the bridge logs, where, and what never gets into it."""

from __future__ import annotations

import json
import logging
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from bridge_project.kernel import limits
from bridge_project.kernel import logging as bridge_logging
from bridge_project.kernel.config import conf
from bridge_project.protocol.http import AgentInfo
from sessions_app.agents import registry
from tests.http.conftest import Api, check_error
from tests.servers import wait_until

DEVICE = "bridge_device_" + "Ab-_9" * 8
OWN = 'my "own" hook token, which looks like nothing'.replace(" ", "+")


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Logging as ``serve`` has it, into a data directory that is not there yet; as it was,
    afterwards.
    """
    changed = conf.model_copy(
        update={
            "bridge_data_dir": tmp_path / "data",
            "bridge_hook_token": OWN,
            "redis_url": "redis://user:p%40ssw0rd-long@host/0",
        }
    )
    monkeypatch.setattr(bridge_logging, "conf", changed)
    monkeypatch.setattr(sys, "argv", ["manage.py", "serve"])
    bridge_logging.configure({})
    yield tmp_path / "data" / "logs"
    monkeypatch.undo()
    bridge_logging.configure({})


def lines(log_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (log_dir / "bridge.log").read_text().splitlines()]


def test_a_line_of_json(log_dir: Path) -> None:
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        structlog.get_logger("bridge.test").info(
            "something_happened", device=7, session="s-1", text="naïve\nline"
        )
    [line] = lines(log_dir)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "something_happened",
        "level": "info",
        "logger": "bridge.test",
        "request_id": "r-1",
        "device": 7,
        "session": "s-1",
        "text": "naïve\nline",
    }


def test_the_standard_librarys_loggers_too(log_dir: Path) -> None:
    logging.getLogger("bridge.server").info("Listening on %s port %d.", "127.0.0.1", 8443)
    logging.getLogger("somebody.else").info("chatter")
    logging.getLogger("somebody.else").warning("trouble")
    assert [(line["logger"], line["event"]) for line in lines(log_dir)] == [
        ("bridge.server", "Listening on 127.0.0.1 port 8443."),
        ("somebody.else", "trouble"),
    ]


def test_only_the_owner_reads_it(log_dir: Path) -> None:
    logging.getLogger("bridge.test").warning("x")
    assert stat.S_IMODE((log_dir / "bridge.log").stat().st_mode) == 0o600
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log_dir, log_dir.parent)] == [
        0o700,
        0o700,
    ]


def test_it_turns_over_and_stays_private(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [handler] = [
        one for one in logging.getLogger().handlers if isinstance(one, bridge_logging.LogFile)
    ]
    assert (handler.maxBytes, handler.backupCount) == (10 * 2**20, 5)
    handler.maxBytes = 400
    for i in range(40):
        logging.getLogger("bridge.test").info("line %d %s", i, "x" * 50)
    files = sorted(log_dir.iterdir())
    assert [path.name for path in files] == [
        "bridge.log",
        *(f"bridge.log.{i}" for i in range(1, 6)),
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert "line 39" in files[0].read_text()


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        (f"token {DEVICE} was used", DEVICE[len("bridge_device_") :]),
        ("bridge_hook_abcdefghijklmnop-_", "abcdefghij"),
        ('{"token": "bridge_admin_abcdefghijklmnop"}', "abcdefghij"),
        ("Authorization: Bearer someSecret~value/1+=", "someSecret"),
        (f"configured: {OWN}", OWN),
        ("redis://user:p%40ssw0rd-long@host/0 refused", "p%40ssw0rd"),
        ("postgres://bridge:hunter2hunter2@db/bridge", "hunter2"),
        ("the password was p@ssw0rd-long", "p@ssw0rd-long"),
    ],
)
def test_no_secret_is_written(
    log_dir: Path, capsys: pytest.CaptureFixture[str], said: str, secret: str
) -> None:
    logging.getLogger("bridge.test").warning(said)
    structlog.get_logger("bridge.test").warning("event", given=said, nested={"deep": [said]})
    try:
        raise ValueError(said)
    except ValueError:
        structlog.get_logger("bridge.test").exception("failed")
    written = (log_dir / "bridge.log").read_text()
    shown = capsys.readouterr().err
    assert written.count("ValueError: ") == shown.count("ValueError: ") == 1
    for text in (written, shown):
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text
        assert bridge_logging.HIDDEN in text


@pytest.mark.parametrize("key", ["Authorization", "hook_token", "password"])
def test_no_field_of_a_secrets_name_is_written(log_dir: Path, key: str) -> None:
    structlog.get_logger("bridge.test").warning("event", **{key: "plain-words"})
    assert lines(log_dir)[0][key] == bridge_logging.HIDDEN


def test_a_traceback_shows_no_local_variables(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = "value-of-a-local-variable"
    try:
        raise ValueError(len(hidden))
    except ValueError:
        structlog.get_logger("bridge.test").exception("failed")
    assert hidden not in capsys.readouterr().err.replace('hidden = "value-of-a-local-variable"', "")


def test_the_terminal_is_quiet(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    http = structlog.get_logger("bridge.http")
    http.info("refused", code="NOT_FOUND", client="192.0.2.1")
    for _ in range(50):
        http.warning("refused", code="AUTH_INVALID_TOKEN", client="192.0.2.1")
    http.warning("refused", code="AUTH_INVALID_TOKEN", client="192.0.2.2")
    http.warning("refused", code="RATE_LIMIT_EXCEEDED", client="192.0.2.1")
    http.error("failed", code="INTERNAL_ERROR", client="192.0.2.1")
    http.error("failed", code="INTERNAL_ERROR", client="192.0.2.1")
    logging.getLogger("bridge.access").info("GET /health 200")
    logging.getLogger("bridge.server").info("Listening")
    shown = capsys.readouterr().err
    counts = [
        shown.count(text)
        for text in (
            "NOT_FOUND",
            "AUTH_INVALID_TOKEN",
            "RATE_LIMIT_EXCEEDED",
            "INTERNAL_ERROR",
            "/health",
            "Listening",
        )
    ]
    assert counts == [0, 2, 1, 2, 0, 1]
    bridge_logging.log_held_back()
    assert (
        "49 more refusals of 192.0.2.1 in the last minute: AUTH_INVALID_TOKEN 49"
        in capsys.readouterr().err
    )
    assert len(lines(log_dir)) == 9


def test_what_was_held_back_is_counted_by_itself(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_WINDOW_SECONDS", 0.3)
    http = structlog.get_logger("bridge.http")
    for _ in range(20):
        http.info("refused", code="NOT_FOUND", client="192.0.2.1")
        http.warning("admin_log_in_failed", client="192.0.2.1")
        http.error("failed", code="INTERNAL_ERROR", client="192.0.2.1")
    text = "38 more refusals of 192.0.2.1 in the last minute: NOT_FOUND 19, admin_log_in_failed 19"
    wait_until(lambda: text in [line["event"] for line in lines(log_dir)], "the count")
    events = [line["event"] for line in lines(log_dir)]
    assert events.count("failed") == 20, "what is the bridge's own fault is logged each time"
    assert events.count("refused") == 1
    assert next(line for line in lines(log_dir) if line["event"] == text)["level"] == "warning"
    http.info("refused", code="NOT_FOUND", client="192.0.2.1")
    assert lines(log_dir)[-1]["event"] == "refused", "a new minute"


def test_a_directory_that_cannot_be_used_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as patched:
        patched.setattr(
            bridge_logging, "conf", conf.model_copy(update={"bridge_data_dir": tmp_path / "file"})
        )
        patched.setattr(sys, "argv", ["manage.py", "serve"])
        bridge_logging.configure({})
        logging.getLogger("bridge.test").warning("still here")
    bridge_logging.configure({})
    shown = capsys.readouterr().err
    assert "The log file cannot be written" in shown and "still here" in shown


def test_another_command_says_warnings_only_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            bridge_logging, "conf", conf.model_copy(update={"bridge_data_dir": tmp_path})
        )
        patched.setattr(sys, "argv", ["manage.py", "list_devices"])
        bridge_logging.configure({})
        logging.getLogger("bridge.test").info("quiet")
        logging.getLogger("bridge.test").warning("loud")
    shown = capsys.readouterr().err
    assert "loud" in shown and "quiet" not in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("severity.info", "severity.warning")
def test_a_refused_request_is_logged_once_with_its_id(
    log_dir: Path, stranger: Api, db: None
) -> None:
    check_error(
        stranger.get("/api/v1/info", x_request_id="mine", authorization=f"Bearer {DEVICE}"),
        "AUTH_INVALID_TOKEN",
        401,
    )
    [line] = lines(log_dir)
    assert (line["request_id"], line["code"], line["status"], line["path"], line["level"]) == (
        "mine",
        "AUTH_INVALID_TOKEN",
        401,
        "/api/v1/info",
        "warning",
    )


def test_an_unforeseen_failure_is_logged_once_with_its_id_and_traceback(
    log_dir: Path, hook: Api, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    def fault() -> list[AgentInfo]:
        raise ZeroDivisionError(f"with {DEVICE}")

    monkeypatch.setattr(registry, "listed", fault)
    check_error(hook.get("/api/v1/info", x_request_id="mine"), "INTERNAL_ERROR", 500)
    [line] = lines(log_dir)
    assert (line["request_id"], line["code"], line["level"], line["principal"]) == (
        "mine",
        "INTERNAL_ERROR",
        "error",
        "hook",
    )
    assert "ZeroDivisionError" in line["exception"] and DEVICE not in line["exception"]
