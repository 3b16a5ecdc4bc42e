"""What the bridge logs, where, and what never gets into it."""

import json
import logging
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from bridge_project.kernel import logging as bridge_logging
from bridge_project.kernel.config import conf

DEVICE = "bridge_device_" + "Ab-_9" * 8
OWN = 'my "own" hook token, which looks like nothing'.replace(" ", "+")
REDIS = "redis://user:p%40ssw0rd-long@host/0"


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Logging as ``serve`` has it, into a data directory that is not there yet."""
    own = {"bridge_data_dir": tmp_path / "data", "bridge_hook_token": OWN, "redis_url": REDIS}
    monkeypatch.setattr(bridge_logging, "conf", conf.model_copy(update=own))
    monkeypatch.setattr(sys, "argv", ["manage.py", "serve"])
    bridge_logging.configure({})
    yield tmp_path / "data" / "logs"
    monkeypatch.undo()
    bridge_logging.configure({})


def test_only_the_owner_reads_it_and_it_turns_over(log_dir: Path) -> None:
    handlers = logging.getLogger().handlers
    [handler] = [one for one in handlers if isinstance(one, bridge_logging.LogFile)]
    assert (handler.maxBytes, handler.backupCount) == (10 * 2**20, 5)
    handler.maxBytes = 400
    for i in range(40):
        logging.getLogger("bridge.test").info("line %d %s", i, "x" * 50)
    files = sorted(log_dir.iterdir())
    old = [f"bridge.log.{i}" for i in range(1, 6)]
    assert [path.name for path in files] == ["bridge.log", *old]
    modes = dict.fromkeys(files, 0o600) | dict.fromkeys((log_dir, log_dir.parent), 0o700)
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in modes} == modes
    assert "line 39" in files[0].read_text()


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        (f"token {DEVICE} was used", DEVICE[len("bridge_device_") :]),
        ("bridge_hook_abcdefghijklmnop-_", "abcdefghij"),
        ('{"token": "bridge_admin_abcdefghijklmnop"}', "abcdefghij"),
        ("Authorization: Bearer someSecret~value/1+=", "someSecret"),
        (f"configured: {OWN}", OWN),
        (f"{REDIS} refused", "p%40ssw0rd"),
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
    for text in ((log_dir / "bridge.log").read_text(), capsys.readouterr().err):
        assert text.count("ValueError: ") == 1 and bridge_logging.HIDDEN in text
        assert secret not in text and json.dumps(secret)[1:-1] not in text
