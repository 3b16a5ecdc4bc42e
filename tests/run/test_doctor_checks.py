"""The checks of `doctor`, one fault at a time and without a bridge: each is named with the command
that mends it (D43).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf
from bridge_project.network import certificates as tls_certificates
from bridge_project.network import server_address
from bridge_project.network.server_address import Address
from bridge_project.operations.doctor import bridge as parts
from bridge_project.operations.doctor import checks, machine, round_trip, storage
from bridge_project.operations.doctor.findings import Finding, Level, as_json, ok
from bridge_project.operations.doctor.snapshot import Snapshot, take
from bridge_project.terminal.client import Target
from hooks_app.producer.spool import Spool
from tests.run.findings import mended_by, only
from tests.servers import free_port, wait_until

SENT = '{"hook_event_name": "SessionStart", "session_id": "%s"}'


@pytest.fixture
def quiet(tmp_path: Path) -> Conf:
    """The settings of a bridge that was started once in this directory and does not run now."""
    data = tmp_path / "quiet data"
    data.mkdir(mode=0o700)
    conf = Conf(
        bridge_data_dir=data,
        bridge_host="127.0.0.1",
        bridge_port=free_port(),
        bridge_hook_token="",
        bridge_admin_token="",
    )
    certificates = tls_certificates.load_or_renew(conf)
    for name in ("hook_token", "admin_token"):
        conf.secret(name)
    (data / "spool").mkdir(mode=0o700)
    url = f"https://127.0.0.1:{conf.bridge_port}"
    server_address.record(
        conf,
        Address(
            url,
            f"wss://127.0.0.1:{conf.bridge_port}/api/v1/ws",
            certificates.pin,
            certificates.fingerprint,
        ),
    )
    return conf


def test_modes(quiet: Conf) -> None:
    only(machine.files(take(quiet)), Level.OK)
    quiet.bridge_data_dir.chmod(0o755)
    found = only(machine.files(take(quiet)), Level.BROKEN)
    assert "mode 0755" in found.text
    # the command that it gives is the one that mends it
    subprocess.run(["/bin/sh", "-c", *found.mend], check=True)
    quiet.secret_path("hook_token").chmod(0o644)
    found = only(machine.files(take(quiet)), Level.BROKEN)
    subprocess.run(["/bin/sh", "-c", *found.mend], check=True)
    only(machine.files(take(quiet)), Level.OK)
    quiet.secret_path("admin_token").unlink()
    assert mended_by(only(machine.files(take(quiet)), Level.BROKEN), "make run")


def test_disk(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(quiet.bridge_data_dir).free
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", free // 5)
    assert "Only" in only(machine.disk(take(quiet)), Level.WARNING).text
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", free * 2)
    assert mended_by(only(machine.disk(take(quiet)), Level.BROKEN), "df -h")


def test_spool(quiet: Conf) -> None:
    place = quiet.bridge_data_dir / "spool"
    only(machine.spool(take(quiet)), Level.OK)
    (place / "full").touch()
    assert mended_by(only(machine.spool(take(quiet)), Level.BROKEN), "make run")
    (place / "full").unlink()
    spool = Spool(place)
    spool.make()
    (place / "4711").write_text("{")
    spool.set_aside(spool.files()[0], "not JSON")
    refused = only(machine.spool(take(quiet)), Level.WARNING)
    assert "1 events were refused for good and set aside: not JSON." in refused.text and mended_by(
        refused, "rejected"
    )
    shutil.rmtree(place / "rejected")
    (place / "4712").write_text("{}")
    os.utime(place / "4712", (time.time() - 7200, time.time() - 7200))
    waiting = only(machine.spool(take(quiet)), Level.WARNING)
    assert "1 events wait, the oldest for 2:00:0" in waiting.text and mended_by(waiting, "make run")
    shutil.rmtree(place)
    only(machine.spool(take(quiet)), Level.BROKEN)


def test_redis_nowhere(quiet: Conf) -> None:
    conf = quiet.model_copy(update={"redis_url": f"redis://:sesame-open@127.0.0.1:{free_port()}/0"})
    found = only(storage.redis_server(take(conf)), Level.BROKEN)
    assert mended_by(found, "systemctl start redis-server") and mended_by(found, "unset REDIS_URL")
    assert "sesame" not in as_json([found])


def test_database(quiet: Conf) -> None:
    path = quiet.bridge_data_dir / "bridge.sqlite3"
    assert "missing" in only(storage.database(take(quiet)), Level.BROKEN).text
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE django_migrations (app TEXT, name TEXT)")
        made.execute(
            "INSERT INTO django_migrations VALUES ('sessions_app', '9999_from_the_future')"
        )
        made.commit()
        assert "newer version" in only(storage.database(take(quiet)), Level.BROKEN).text
        made.execute("DELETE FROM django_migrations")
        made.commit()
    behind = only(storage.database(take(quiet)), Level.BROKEN)
    assert "still to be made" in behind.text and mended_by(behind, "make run")
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8000)
    damaged = only(storage.database(take(quiet)), Level.BROKEN)
    assert (
        "damaged" in damaged.text
        and mended_by(damaged, f"mv '{path}' ")
        and mended_by(damaged, "manage.py restore ")
    )


def test_postgresql_nowhere(quiet: Conf) -> None:
    conf = quiet.model_copy(
        update={"database_url": f"postgres://me:sesame-open@127.0.0.1:{free_port()}/bridge"}
    )
    found = only(storage.database(take(conf)), Level.BROKEN)
    assert mended_by(found, "pg_isready -h 127.0.0.1 -p ") and "sesame" not in as_json([found])


def at(moment: datetime) -> type[datetime]:
    """A clock that stands."""

    class Then(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return moment

    return Then


def test_certificate_dates(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = tls_certificates.load_or_renew(quiet).not_after
    only(parts.certificate(take(quiet)), Level.OK)
    for now, level, said in (
        (ends - timedelta(days=5), Level.WARNING, "ends in 5 days"),
        (ends + timedelta(days=1), Level.BROKEN, "ended on"),
        (ends - timedelta(days=1000), Level.BROKEN, "is the clock right?"),
    ):
        monkeypatch.setattr(parts, "datetime", at(now))
        assert said in only(parts.certificate(take(quiet)), level).text


def test_clock(quiet: Conf) -> None:
    only(parts.clock(take(quiet)), Level.OK)
    later = (datetime.now(UTC) + timedelta(hours=1)).timestamp()
    os.utime(server_address.path(quiet), (later, later))
    assert mended_by(only(parts.clock(take(quiet)), Level.BROKEN), "timedatectl")


def test_address_modes(quiet: Conf) -> None:
    seen = take(quiet)

    def reached_at(url: str) -> Snapshot:
        assert seen.recorded is not None
        return replace(seen, recorded=replace(seen.recorded, base_url=url))

    only(parts.address(reached_at("https://192.168.1.5:8443")), Level.OK)
    assert mended_by(
        only(parts.address(reached_at("https://127.0.0.1:8443")), Level.WARNING), "BRIDGE_HOST=auto"
    )
    assert mended_by(
        only(parts.address(reached_at("http://bridge.example")), Level.BROKEN),
        "BRIDGE_PUBLIC_URL=https://",
    )


def test_file_limit(quiet: Conf) -> None:
    with subprocess.Popen(["/bin/sh", "-c", "ulimit -n 200; read _"], stdin=-1) as bridge:
        assert bridge.stdin is not None
        limits_of = Path(f"/proc/{bridge.pid}/limits")
        wait_until(lambda: " 200 " in limits_of.read_text(), "the limit is set")
        found = machine.file_limit(replace(take(quiet), holder=str(bridge.pid)))
        bridge.stdin.close()
    assert "may open 200 files" in only(found, Level.BROKEN).text
    assert mended_by(found, "ulimit -n")


def test_where_an_event_hangs(quiet: Conf) -> None:
    way = round_trip.RoundTrip(take(quiet), Target("wss://nowhere", "t"))
    spool = Spool(way.spool)
    spool.make()
    (way.spool / "4711").write_text(SENT % way.session)
    assert "still waits" in str(way.where_it_stopped())
    spool.set_aside(spool.files()[0], "HOOK_INVALID_PAYLOAD")
    assert "refused the event: HOOK_INVALID_PAYLOAD" in str(way.where_it_stopped())


def test_a_check_that_fails_or_hangs_is_a_finding(
    quiet: Conf, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()

    def fails(seen: Snapshot) -> Finding:
        raise RuntimeError("no such thing")

    def hangs(seen: Snapshot) -> list[Finding]:
        never.wait()
        return []

    monkeypatch.setattr(checks, "CHECKS", {"one": fails, "two": hangs})
    monkeypatch.setattr(round_trip, "event", lambda seen, database_works: ok("fine"))
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.2)
    found = {one.check: one for one in checks.examine(quiet)}
    never.set()
    assert "RuntimeError: no such thing" in found["one"].text and "in time" in found["two"].text
    assert [one.level for one in found.values()] == [Level.BROKEN, Level.BROKEN, Level.OK]
