"""A migration that fails, tried again and again, as a service manager does it."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.attack.test_database_taken import database, events_of, told_command
from tests.conformance.bridge import Bridge
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge, nursery
from tests.servers import stop_process, wait_until

STARTS = 7  # more than the five copies that are kept of upgrades that went well
NEXT = "tests.attack.next_version"


class Versions:
    """One data directory, and two versions of the bridge for it; the next one's migration fails."""

    def __init__(self, directory: Path) -> None:
        self.old = QuickBridge(directory)
        self.next = QuickBridge(
            directory, DJANGO_SETTINGS_MODULE=f"{NEXT}.settings", BRIDGE_PORT=str(self.old.port)
        )
        self.backups = self.old.data / "backups"
        self.fail = self.old.data / "fail"
        self.session_id = new_session()

    def run_old(self, events: int) -> None:
        """Start the version that works, let it take events, stop it."""
        self.old.start()
        self.old.accept(*[prompt(self.session_id, number) for number in range(events)])
        assert self.old.stop() == 0

    def start_next(self) -> subprocess.CompletedProcess[str]:
        return self.next.manage("serve", check=False)

    def fails(self) -> str:
        """The line that a start of the next version ends with."""
        done = self.start_next()
        assert done.returncode == 1, done
        line = done.stderr.strip().splitlines()[-1]
        assert "A migration failed (ValueError: this migration fails)" in line, done.stderr
        return line

    def succeeds(self) -> None:
        self.fail.unlink()
        Bridge.spawn(self.next)
        self.next.wait_ready()
        assert self.next.stop() == 0

    def copies(self) -> list[Path]:
        return sorted(self.backups.glob("before-*.sqlite3"))


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[Versions]:
    made = Versions(tmp_path)
    made.run_old(3)
    made.fail.touch()
    yield made
    for bridge in (made.old, made.next):
        if bridge.process is not None:
            stop_process(bridge.process)
        nursery.forget(bridge.environment)


def applied(file: Path) -> int:
    """How many migrations of the next version's application a database has."""
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(
            opened.execute(
                "SELECT count(*) FROM django_migrations WHERE app = 'next_version'"
            ).fetchone()[0]
        )


def test_the_way_back_outlives_every_start(versions: Versions) -> None:
    lines = [versions.fails() for _ in range(STARTS)]
    assert applied(database(versions.old)) == 1, "the first of the two was applied"
    assert len(set(lines)) == 1, "each start names the same copy"
    command = told_command(lines[0], "restore")
    assert applied(Path(command[1])) == 0
    assert len(versions.copies()) == 2, "one for each state that a start found"

    versions.old.manage(*command)
    assert Path(command[1]).exists()
    versions.old.start()
    assert events_of(versions.old, versions.session_id) == 3
    assert versions.old.stop() == 0


def test_the_way_back_is_the_newest_that_the_old_version_can_use(versions: Versions) -> None:
    first = told_command(versions.fails(), "restore")
    oldest = Path(first[1]).read_bytes()
    versions.old.manage(*first)
    versions.run_old(2)
    second = told_command(versions.fails(), "restore")
    assert second != first
    versions.old.manage(*second)
    versions.old.start()
    assert events_of(versions.old, versions.session_id) == 5
    assert versions.old.stop() == 0
    assert oldest in [copy.read_bytes() for copy in versions.copies()], (
        "the older one is still there"
    )


def test_copies_of_starts_that_failed_are_never_pruned(versions: Versions) -> None:
    way_back = Path(told_command(versions.fails(), "restore")[1])
    kept = way_back.read_bytes()
    for year in range(2001, 2008):
        (versions.backups / f"before-{year}0101T000000Z-x.0001_y.sqlite3").touch()
    versions.succeeds()
    years = [path.name[7:11] for path in versions.copies()]
    assert [year for year in years if year < "2010"] == ["2004", "2005", "2006", "2007"], (
        "and one of the start that succeeded"
    )
    assert kept in [path.read_bytes() for path in versions.copies()]


def test_half_a_copy_is_none(versions: Versions) -> None:
    """The start is killed while it copies a database that takes a moment."""
    with closing(sqlite3.connect(database(versions.old))) as opened:
        opened.execute("CREATE TABLE ballast (data BLOB)")
        opened.executemany("INSERT INTO ballast VALUES (zeroblob(1000000))", [()] * 60)
        opened.commit()
    Bridge.spawn(versions.next)
    wait_until(
        lambda: list(versions.backups.glob(".before-*")) or versions.copies(), 60, "it copies"
    )
    assert versions.next.process is not None
    stop_process(versions.next.process)
    for copy in versions.copies():
        applied(copy)
    command = told_command(versions.fails(), "restore")
    assert applied(Path(command[1])) == 0
    assert not list(versions.backups.glob(".*")), "nothing half is left"


def test_no_room_for_a_copy(versions: Versions) -> None:
    """Nothing is migrated, and nothing is left of the attempt."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); "
    code = f"{limit} import runpy, sys; sys.argv = ['manage.py', 'serve']; runpy.run_path('manage.py', run_name='__main__')"
    done = versions.next.run(["-c", code])
    assert done.returncode == 1
    assert "cannot be copied" in done.stderr.strip().splitlines()[-1], done.stderr
    assert not list(versions.backups.iterdir())
    assert applied(database(versions.old)) == 0
