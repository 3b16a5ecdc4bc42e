"""The checks of `doctor`, one fault at a time and without a bridge: each is named with the command
that mends it (D43).
"""

import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf
from bridge_project.network import certificates as tls_certificates
from bridge_project.network import server_address
from bridge_project.operations.doctor import bridge as parts
from bridge_project.operations.doctor import machine
from bridge_project.operations.doctor.findings import Level, as_json
from bridge_project.operations.doctor.snapshot import take
from hooks_app.producer.spool import Spool
from tests.run.findings import only
from tests.servers import free_port

OK, WARNING, BROKEN = Level.OK, Level.WARNING, Level.BROKEN


@pytest.fixture
def quiet(tmp_path: Path) -> Conf:
    """The settings of a bridge that was started once in this directory and does not run now."""
    data, port = tmp_path / "quiet data", free_port()
    data.mkdir(mode=0o700)
    tokens: dict[str, Any] = {"bridge_hook_token": "", "bridge_admin_token": ""}
    conf = Conf(bridge_data_dir=data, bridge_host="127.0.0.1", bridge_port=port, **tokens)
    found = tls_certificates.load_or_renew(conf)
    for name in ("hook_token", "admin_token"):
        conf.secret(name)
    (data / "spool").mkdir(mode=0o700)
    ws_url = f"wss://127.0.0.1:{port}/api/v1/ws"
    url = f"https://127.0.0.1:{port}"
    here = server_address.Address(url, ws_url, found.pin, found.fingerprint)
    server_address.record(conf, here)
    return conf


def test_modes(quiet: Conf) -> None:
    only(machine.files(take(quiet)), OK)
    for path, mode in ((quiet.bridge_data_dir, 0o755), (quiet.secret_path("hook_token"), 0o644)):
        path.chmod(mode)
        found = only(machine.files(take(quiet)), BROKEN, f"mode 0{mode:o}")
        # the command that it gives is the one that mends it
        subprocess.run(["/bin/sh", "-c", *found.mend], check=True)
        only(machine.files(take(quiet)), OK)
    quiet.secret_path("admin_token").unlink()
    only(machine.files(take(quiet)), BROKEN, mend=("make run",))


def test_disk(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(quiet.bridge_data_dir).free
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", free // 5)
    only(machine.disk(take(quiet)), WARNING, "Only")
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", free * 2)
    only(machine.disk(take(quiet)), BROKEN, mend=("df -h",))


def test_spool(quiet: Conf) -> None:
    place = quiet.bridge_data_dir / "spool"
    only(machine.spool(take(quiet)), OK)
    (place / "full").touch()
    only(machine.spool(take(quiet)), BROKEN, mend=("make run",))
    (place / "full").unlink()
    spool = Spool(place)
    spool.make()
    (place / "4711").write_text("{")
    spool.set_aside(spool.files()[0], "not JSON")
    said = "1 events were refused for good and set aside: not JSON."
    only(machine.spool(take(quiet)), WARNING, said, mend=("rejected",))
    shutil.rmtree(place / "rejected")
    (place / "4712").write_text("{}")
    os.utime(place / "4712", (time.time() - 7200, time.time() - 7200))
    said = "1 events wait, the oldest for 2:00:0"
    only(machine.spool(take(quiet)), WARNING, said, mend=("make run",))
    shutil.rmtree(place)
    only(machine.spool(take(quiet)), BROKEN)


def test_servers_that_are_nowhere(quiet: Conf) -> None:
    """They are named without their passwords."""
    at = f"127.0.0.1:{free_port()}"
    redis = quiet.model_copy(update={"redis_url": f"redis://:sesame-open@{at}/0"})
    mend: tuple[str, ...] = ("systemctl start redis-server", "unset REDIS_URL")
    missing = [only(machine.redis_server(take(redis)), BROKEN, mend=mend)]
    database = quiet.model_copy(update={"database_url": f"postgres://me:sesame-open@{at}/bridge"})
    mend = ("pg_isready -h 127.0.0.1 -p ",)
    missing.append(only(machine.database(take(database)), BROKEN, mend=mend))
    assert "sesame" not in as_json(missing)


def test_database(quiet: Conf) -> None:
    path = quiet.bridge_data_dir / "bridge.sqlite3"
    only(machine.database(take(quiet)), BROKEN, "missing")
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE django_migrations (app TEXT, name TEXT)")
        made.execute(
            "INSERT INTO django_migrations VALUES ('sessions_app', '9999_from_the_future')"
        )
        made.commit()
        only(machine.database(take(quiet)), BROKEN, "newer version")
        made.execute("DELETE FROM django_migrations")
        made.commit()
    only(machine.database(take(quiet)), BROKEN, "still to be made", mend=("make run",))
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8000)
    mend = (f"mv '{path}' ", "manage.py restore ")
    only(machine.database(take(quiet)), BROKEN, "damaged", mend=mend)


def test_certificate_dates(quiet: Conf) -> None:
    ends = tls_certificates.load_or_renew(quiet).not_after
    seen = take(quiet)
    only(parts.certificate(seen), OK)
    for now, level, said in (
        (ends - timedelta(days=5), WARNING, "ends in 5 days"),
        (ends + timedelta(days=1), BROKEN, "expired on"),
        (ends - timedelta(days=1000), BROKEN, "is the clock right?"),
    ):
        with time_machine.travel(now, tick=False):
            only(parts.certificate(seen), level, said)


def test_clock(quiet: Conf) -> None:
    only(parts.clock(take(quiet)), OK)
    later = (datetime.now(UTC) + timedelta(hours=1)).timestamp()
    os.utime(server_address.path(quiet), (later, later))
    only(parts.clock(take(quiet)), BROKEN, mend=("timedatectl",))


@pytest.mark.parametrize(
    ("url", "level", "mend"),
    [
        ("https://192.168.1.5:8443", OK, ()),
        ("https://127.0.0.1:8443", WARNING, ("BRIDGE_HOST=auto",)),
        ("http://bridge.example", BROKEN, ("BRIDGE_PUBLIC_URL=https://",)),
    ],
)
def test_address_modes(quiet: Conf, url: str, level: Level, mend: tuple[str, ...]) -> None:
    seen = take(quiet)
    assert seen.recorded is not None
    seen = replace(seen, recorded=replace(seen.recorded, base_url=url))
    only(parts.address(seen), level, mend=mend)
