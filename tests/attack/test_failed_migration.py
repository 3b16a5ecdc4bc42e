"""A migration that fails, tried again and again, as a service manager does it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.attack.conftest import Versions, applied
from tests.attack.test_database_taken import database, events_of, told_command
from tests.conformance.bridge import Bridge
from tests.faults.quick import MANAGE
from tests.servers import stop_process, wait_until

STARTS = 6  # more than the five copies that are kept of upgrades that went well


@pytest.fixture(autouse=True)
def failing(versions: Versions) -> None:
    versions.fail.touch()


def fails(versions: Versions) -> str:
    """The line that a start of the next version ends with."""
    done = versions.next.manage("serve", check=False)
    assert done.returncode == 1, done
    line = done.stderr.strip().splitlines()[-1]
    assert "A migration failed (ValueError: this migration fails)" in line, done.stderr
    return line


def test_the_way_back_outlives_every_start(versions: Versions) -> None:
    lines = [fails(versions) for _ in range(STARTS)]
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
    first = told_command(fails(versions), "restore")
    oldest = Path(first[1]).read_bytes()
    versions.old.manage(*first)
    versions.run_old(2)
    second = told_command(fails(versions), "restore")
    assert second != first
    versions.old.manage(*second)
    versions.old.start()
    assert events_of(versions.old, versions.session_id) == 5
    assert versions.old.stop() == 0
    assert oldest in [copy.read_bytes() for copy in versions.copies()], (
        "the older one is still there"
    )


def test_copies_of_starts_that_failed_are_never_pruned(versions: Versions) -> None:
    way_back = Path(told_command(fails(versions), "restore")[1])
    kept = way_back.read_bytes()
    for year in range(2001, 2008):
        (versions.backups / f"before-{year}0101T000000Z-x.0001_y.sqlite3").touch()
    versions.fail.unlink()
    versions.start_next()
    assert versions.next.stop() == 0
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
    wait_until(lambda: list(versions.backups.glob(".before-*")) or versions.copies(), "it copies")
    assert versions.next.process is not None
    stop_process(versions.next.process)
    for copy in versions.copies():
        applied(copy)
    command = told_command(fails(versions), "restore")
    assert applied(Path(command[1])) == 0
    assert not list(versions.backups.glob(".*")), "nothing half is left"


def test_no_room_for_a_copy(versions: Versions) -> None:
    """Nothing is migrated, and nothing is left of the attempt."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); "
    done = versions.next.run(["-c", limit + MANAGE, "manage.py", "serve"])
    assert done.returncode == 1
    assert "cannot be copied" in done.stderr.strip().splitlines()[-1], done.stderr
    assert not list(versions.backups.iterdir())
    assert applied(database(versions.old)) == 0
