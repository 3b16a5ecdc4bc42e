"""A migration that fails, is killed or has no room, a newer database: `make upgrade`, starts."""

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from tests.attack.test_database_taken import database, events_of
from tests.conformance.bridge import Bridge, query
from tests.conformance.samples import new_session, prompt
from tests.faults.hosts import bridge_on, hosts
from tests.faults.quick import QuickBridge
from tests.faults.test_disk_full import Disk
from tests.servers import PATIENCE, Postgres, Running, stop_process, wait_until

pytestmark = pytest.mark.slow

NEXT = {"DJANGO_SETTINGS_MODULE": "tests.attack.next_version.settings"}
EVENTS = 3  # that the old version has taken
SIZE_MB = 200
NEWER = "The database was written by a newer version of the bridge"


class Versions:
    """`next` has two migrations more; the second fails while the file `fail` is there."""

    def __init__(self, directory: Path, make: Callable[..., QuickBridge] = QuickBridge) -> None:
        self.old = make(directory)
        self.next = make(directory, **self.old.settings | NEXT)
        self.backups, self.fail = self.old.data / "backups", self.old.data / "fail"
        self.session_id = new_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bridge in (self.old, self.next):
            bridge.__exit__()

    def run_old(self, events: int) -> None:
        """Start the version that works, let it take events, stop it."""
        self.old.start()
        self.old.accept(*[prompt(self.session_id, number) for number in range(events)])
        assert self.old.stop() == 0

    def start_next(self) -> Bridge:
        Bridge.spawn(self.next)
        return self.next.wait_ready()

    def copies(self) -> list[Path]:
        return sorted(self.backups.glob("before-*.sqlite3"))


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[Versions]:
    """Both at a directory that the old version has used."""
    with Versions(tmp_path) as made:
        made.run_old(EVENTS)
        yield made


def applied(file: Path) -> int:
    """How many migrations of the next version's application a database has."""
    asked = "SELECT count(*) FROM django_migrations WHERE app = 'next_version'"
    assert query(file, "PRAGMA integrity_check") == [("ok",)]
    return int(query(file, asked)[0][0])


def run_for_real(bridge: Bridge, *words: str) -> None:
    """Start `manage.py serve` as a user does: `upgrade` looks at what it stops."""
    with bridge.log.open("ab") as log:
        bridge.process = Bridge.popen(bridge, ["manage.py", "serve", *words], log)
    bridge.wait_ready()


def upgrade_held(versions: Versions, data: Path) -> Running:
    """An upgrade that is in the middle of its second migration, until the file `hold` is gone."""
    (data / "hold").touch()
    with versions.next.log.open("ab") as log:
        process = versions.next.popen(["manage.py", "upgrade"], log)
    wait_until((data / "held").exists, versions.next.tail())
    return process


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
    assert "The database is as it was before. The bridge is stopped." in line
    assert applied(database(versions.old)) == 0, "the first of the two was undone as well"
    assert_old_goes_on(versions, 3)

    versions.fail.unlink()
    run_for_real(versions.old, "--keep-agents", str(versions.old.root))
    port = versions.next.settings.pop("BRIDGE_PORT")  # which was given for the other start only
    done = upgrade(versions.next)
    versions.next.settings["BRIDGE_PORT"] = port
    assert done.returncode == 0 and versions.old.ended(PATIENCE) == 0, done
    assert "The database is up to date (2 migrations)" in done.stdout
    again = shlex.quote(shlex.join(["--keep-agents", str(versions.old.root)]))
    assert "Start it again, with the same settings: `" in done.stdout
    assert f"BRIDGE_PORT={port} " in done.stdout and f"make run ARGS={again}`" in done.stdout
    *_, copy = versions.copies()
    assert applied(copy) == 0 and str(copy) in done.stdout
    versions.start_next()
    assert events_of(versions.next, versions.session_id) == 4
    assert versions.next.stop() == 0


@pytest.mark.parametrize("then", ["serve", "fails"])
def test_killed_in_the_middle_of_a_migration(versions: Versions, then: str) -> None:
    killed = upgrade_held(versions, versions.old.data)
    killed.kill()
    killed.wait(PATIENCE)
    (versions.old.data / "hold").unlink()
    assert applied(database(versions.old)) == 0
    if then == "fails":
        versions.fail.touch()
        assert "as it was before" in upgrade(versions.next).stderr
        assert applied(database(versions.old)) == 0
        assert_old_goes_on(versions, 3)
        return
    versions.start_next()
    assert events_of(versions.next, versions.session_id) == 3
    assert versions.next.stop() == 0
    assert applied(database(versions.old)) == 2


def test_a_database_of_a_newer_version_is_left_alone(versions: Versions) -> None:
    assert upgrade(versions.next).returncode == 0
    versions.start_next()
    before = versions.copies()
    done = upgrade(versions.old)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and NEWER in line and "Update the bridge" in line, done
    assert events_of(versions.next, versions.session_id) == 3, "what runs was not stopped"
    assert versions.copies() == before and applied(database(versions.old)) == 2
    assert versions.next.stop() == 0
    done = versions.old.manage("serve", check=False)
    assert done.returncode == 1 and NEWER in done.stderr, done


def test_a_servers_database_must_have_been_dumped(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    at_server = partial(QuickBridge, database_url=postgres_server.create_database())
    with Versions(tmp_path, at_server) as versions:
        versions.run_old(0)
        done = upgrade(versions.next)
        assert done.returncode == 1 and "Dump it (pg_dump)" in done.stderr
        assert made(versions) == 0
        versions.fail.touch()
        assert "as it was before" in upgrade(versions.next, "--dumped").stderr
        assert made(versions) == 0
        versions.fail.unlink()
        assert upgrade(versions.next, "--dumped").returncode == 0
        assert made(versions) == 2
        assert upgrade(versions.next).returncode == 0, "nothing to migrate, nothing to dump"


def made(versions: Versions) -> int:
    """How many migrations of the next version's application its database has, as it says."""
    return versions.next.manage("showmigrations", "next_version").stdout.count("[X]")


def fails(versions: Versions) -> None:
    """Start the next version, whose second migration fails."""
    done = versions.next.manage("serve", check=False)
    assert done.returncode == 1, done
    line = done.stderr.strip().splitlines()[-1]
    assert "A migration failed (ValueError: this migration fails)" in line, done.stderr
    assert "The database is as it was before. Go back to the version that you had." in line
    assert applied(database(versions.old)) == 0, "the first of the two was undone as well"


KILLED = """
import os, signal
from bridge_project.composition import migrations, startup
from bridge_project.kernel.config import conf
from django.db import connection

recorded = 0

def kill(execute, sql, *more):
    global recorded
    recorded += 'INSERT INTO "django_migrations"' in sql
    if recorded == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, *more)

startup.make_database(conf)
with connection.execute_wrapper(kill):
    migrations.migrate(conf)
"""


def test_killed_before_a_migration_is_recorded(tmp_path: Path) -> None:
    """As a power cut does in a first start: after its tables are made, before it is noted."""
    bridge = QuickBridge(tmp_path)
    bridge.data.mkdir(mode=0o700)
    for number in range(1, 40, 6):
        done = bridge.manage("shell", "--command", KILLED.format(number=number), check=False)
        assert done.returncode == -signal.SIGKILL, done
        assert query(database(bridge), "SELECT name FROM sqlite_master") == [], number
    Bridge.spawn(bridge)
    bridge.wait_ready()
    assert bridge.stop() == 0


def test_starts_that_fail_change_nothing_and_make_one_copy(versions: Versions) -> None:
    versions.fail.touch()
    for _ in range(6):  # more than the copies that are kept
        fails(versions)
    (first,) = versions.copies()
    versions.run_old(2)
    fails(versions)
    assert len(versions.copies()) == 2, "one for each state that a start found"
    assert_old_goes_on(versions, EVENTS + 2)

    for year in range(2001, 2008):
        (versions.backups / f"before-{year}0101T000000Z-x.0001_y.sqlite3").touch()
    versions.fail.unlink()
    versions.start_next()
    assert versions.next.stop() == 0
    copies = versions.copies()
    years = [path.name[7:11] for path in copies]
    assert len(copies) == 5 and first in copies
    assert [year for year in years if year < "2010"] == ["2006", "2007"]


def test_half_a_copy_is_none(versions: Versions) -> None:
    """The start is killed while it copies a database that takes a moment."""
    versions.fail.touch()
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)"
    query(database(versions.old), f"CREATE TABLE ballast AS {many} SELECT zeroblob(1000000) FROM n")
    Bridge.spawn(versions.next)
    wait_until(lambda: list(versions.backups.glob(".before-*")) or versions.copies(), "it copies")
    stop_process(versions.next.running)
    for copy in versions.copies():
        applied(copy)
    fails(versions)
    assert not list(versions.backups.glob(".*")), "nothing half is left"


def test_a_full_disk(tmp_path: Path) -> None:
    """Without room for a copy it is refused; what fills the disk in the middle is undone."""
    with hosts(1) as [host], Versions(tmp_path, partial(bridge_on, host)) as versions:
        versions.old.data.mkdir()
        host.mount(versions.old.data, f"{SIZE_MB}m")
        disk = Disk(host, versions.old)
        filler = disk.data / "filler"
        run_for_real(versions.old)
        versions.old.accept(*[prompt(versions.session_id, number) for number in range(EVENTS)])
        disk.fill()
        os.truncate(filler, filler.stat().st_size - 10 * 2**20)
        done = upgrade(versions.next)
        line = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1 and "MB free; a copy of the database" in line, done
        assert "Nothing was changed; the bridge was not stopped" in line
        assert events_of(versions.old, versions.session_id) == EVENTS
        disk.free()

        upgrading = upgrade_held(versions, disk.data)
        disk.fill()
        (disk.data / "hold").unlink()
        assert upgrading.wait(PATIENCE) == 1
        line = versions.next.tail().strip().splitlines()[-1]
        assert "A migration failed (OperationalError: " in line, versions.next.tail()
        assert "The database is as it was before" in line
        assert versions.old.ended(PATIENCE) == 0
        disk.free()
        assert made(versions) == 0
        assert_old_goes_on(versions, EVENTS)
