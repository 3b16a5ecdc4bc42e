"""`make upgrade` when it fails, is killed, has no room, or finds a newer database."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.conftest import NEXT, Versions, applied
from tests.attack.test_database_taken import database, events_of
from tests.conformance.bridge import Bridge
from tests.conformance.samples import new_session, prompt
from tests.faults.hosts import Host, bridge_on, hosts
from tests.faults.quick import QuickBridge, nursery
from tests.servers import PATIENCE, Postgres, stop_process, wait_until

SIZE_MB = 200
COUNT = """
import sqlite3, sys
asked = "SELECT count(*) FROM django_migrations WHERE app = 'next_version'"
print(sqlite3.connect(sys.argv[1]).execute(asked).fetchone())
"""


def run_for_real(bridge: Bridge) -> None:
    """Start `manage.py serve` as a user does: `upgrade` looks at what it stops."""
    with bridge.log.open("ab") as log:
        bridge.process = Bridge.popen(bridge, ["manage.py", "serve"], log)
    bridge.wait_ready()


def upgrade(bridge: Bridge, *arguments: str) -> subprocess.CompletedProcess[str]:
    return bridge.manage("upgrade", *arguments, check=False)


def assert_old_goes_on(versions: Versions, events: int) -> None:
    """The version from before starts, has every event, and takes one more."""
    versions.old.start()
    assert events_of(versions.old, versions.session_id) == events
    versions.old.accept(prompt(versions.session_id, events))
    assert versions.old.stop() == 0


def test_a_migration_that_fails_is_undone_and_a_later_upgrade_succeeds(versions: Versions) -> None:
    run_for_real(versions.old)
    (versions.old.data / "fail").touch()
    done = upgrade(versions.next)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and versions.old.ended(PATIENCE) == 0, done
    assert "A migration failed (ValueError: this migration fails)" in line
    assert "The database is as it was before, and the bridge is stopped" in line
    assert applied(database(versions.old)) == 0, "the first of the two was undone as well"
    assert_old_goes_on(versions, 3)

    versions.fail.unlink()
    run_for_real(versions.old)
    done = upgrade(versions.next)
    assert done.returncode == 0 and versions.old.ended(PATIENCE) == 0, done
    assert "The database is up to date (2 migrations)" in done.stdout
    assert "Start it again: `" in done.stdout and "make run`" in done.stdout
    (copy,) = versions.copies()
    assert applied(copy) == 0 and str(copy) in done.stdout
    versions.start_next()
    assert events_of(versions.next, versions.session_id) == 4
    assert versions.next.stop() == 0


@pytest.mark.parametrize("then", ["upgrade", "serve", "fails"])
def test_killed_in_the_middle_of_a_migration(versions: Versions, then: str) -> None:
    hold = versions.old.data / "hold"
    hold.touch()
    with versions.next.log.open("ab") as log:
        killed = versions.next.popen(["manage.py", "upgrade"], log)
    wait_until((versions.old.data / "held").exists, versions.next.tail())
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(PATIENCE)
    hold.unlink()
    assert applied(database(versions.old)) == 1
    if then == "fails":
        versions.fail.touch()
        assert "as it was before" in upgrade(versions.next).stderr
        assert applied(database(versions.old)) == 0, "as before the one that was killed"
        assert_old_goes_on(versions, 3)
        return
    if then == "upgrade":
        assert upgrade(versions.next).returncode == 0
        assert applied(database(versions.old)) == 2
    versions.start_next()
    assert events_of(versions.next, versions.session_id) == 3
    assert versions.next.stop() == 0
    assert applied(database(versions.old)) == 2


def test_a_database_of_a_newer_version_is_left_alone(versions: Versions) -> None:
    assert upgrade(versions.next).returncode == 0
    versions.start_next()
    before = versions.copies()
    done = upgrade(versions.old)
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert "The database was written by a newer version of the bridge" in line
    assert "Update the bridge" in line
    assert events_of(versions.next, versions.session_id) == 3, "what runs was not stopped"
    assert versions.copies() == before and applied(database(versions.old)) == 2
    assert versions.next.stop() == 0


def test_a_servers_database_must_have_been_dumped(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    url = postgres_server.create_database()
    old = QuickBridge(tmp_path, database_url=url)
    later = QuickBridge(tmp_path, database_url=url, **NEXT)
    try:
        old.start()
        assert old.stop() == 0
        done = upgrade(later)
        assert done.returncode == 1 and "Dump it (pg_dump)" in done.stderr
        assert "[ ]" in later.manage("showmigrations", "next_version").stdout
        assert upgrade(later, "--dumped").returncode == 0
        assert "[ ]" not in later.manage("showmigrations", "next_version").stdout
        assert upgrade(later).returncode == 0, "nothing to migrate, nothing to dump"
    finally:
        for bridge in (old, later):
            if bridge.process is not None:
                stop_process(bridge.process)
            nursery.forget(bridge.environment)


# -- a full disk -----------------------------------------------------------------------------------


class SmallDisk:
    """Two versions of a bridge with one data directory, on a disk of its own."""

    def __init__(self, host: Host, directory: Path) -> None:
        self.old, self.session_id = bridge_on(host, directory), new_session()
        self.next = bridge_on(host, directory, **self.old.settings | NEXT)
        self.old.data.mkdir()
        host.mount(self.old.data, f"{SIZE_MB}m")
        self.path = self.old.seen

    def fill(self, *, leave: int) -> None:
        """Fill the disk but for so many bytes."""
        found = os.statvfs(self.path)
        size = found.f_bavail * found.f_frsize - leave
        with contextlib.suppress(OSError), open(self.path / "filler", "ab", buffering=0) as filler:
            while size > 0:
                size -= filler.write(bytes(min(size, 2**20)))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    """Its old version runs, and has three events."""
    with hosts(1) as [host]:
        made = SmallDisk(host, tmp_path)
        try:
            run_for_real(made.old)
            made.old.accept(*[prompt(made.session_id, number) for number in range(3)])
            yield made
        finally:
            made.old.hang_up()
            if made.old.process is not None:
                stop_process(made.old.process)


def test_a_full_disk(small: SmallDisk) -> None:
    """Without room for a copy it is refused, and what runs goes on. What fills the disk in the middle
    is undone, although nothing fits any more.
    """
    small.fill(leave=10 * 2**20)
    done = upgrade(small.next)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "MB free; a copy of the database" in line, done
    assert "Nothing was changed; the bridge was not stopped" in line
    assert events_of(small.old, small.session_id) == 3
    (small.path / "filler").unlink()

    (small.path / "hold").touch()
    with small.next.log.open("ab") as log:
        upgrading = small.next.popen(["manage.py", "upgrade"], log)
    wait_until((small.path / "held").exists, small.next.tail())
    small.fill(leave=0)
    (small.path / "hold").unlink()
    assert upgrading.wait(PATIENCE) == 1
    line = small.next.tail().strip().splitlines()[-1]
    assert "A migration failed (OperationalError: " in line, small.next.tail()
    assert "The database is as it was before" in line
    assert small.old.ended(PATIENCE) == 0
    (small.path / "filler").unlink()
    # looked at on its own host: SQLite would follow the path to this one's
    counted = small.old.run(["-c", COUNT, str(database(small.old))]).stdout
    assert counted.strip() == "(0,)"
    small.old.start()
    assert events_of(small.old, small.session_id) == 3
    small.old.accept(prompt(small.session_id, 3))
