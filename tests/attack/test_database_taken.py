"""The database, its -wal, serve.lock or the data directory is taken away under a running bridge."""

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from bridge_project.kernel.data_files import NEEDS_A_PERSON
from tests.conformance.bridge import Bridge, query
from tests.conformance.https import assert_error
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge
from tests.servers import PATIENCE, wait_until
from tests.short import short

pytestmark = pytest.mark.slow


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[QuickBridge]:
    """A bridge whose data directory is a link."""
    made = QuickBridge(tmp_path / "bridge", **short("DATA_FILES_POLL_SECONDS"))
    made.data.with_name("real data").mkdir(mode=0o700)
    made.data.symlink_to("real data")
    with made:
        yield made


def database(bridge: Bridge) -> Path:
    return bridge.data / "bridge.sqlite3"


def stopped(bridge: Bridge) -> str:
    """The line that the bridge ended with, by itself."""
    assert bridge.ended(PATIENCE) == NEEDS_A_PERSON, bridge.tail()
    return bridge.tail().strip().splitlines()[-1]


def assert_refuses(bridge: Bridge, session_id: str) -> None:
    """An event is refused, as long as the bridge takes any."""
    with suppress(OSError):  # it has stopped already
        answer = bridge.post_hook(prompt(session_id, "meanwhile"))
        assert_error(answer, 503, "STORAGE_UNAVAILABLE")


def told_command(line: str, words: str) -> list[str]:
    """The words after `manage.py` in the command that a line tells the user to run."""
    (command,) = [one for one in re.findall(r"`([^`]+)`", line) if f"manage.py {words}" in one]
    return shlex.split(command.partition("manage.py ")[2])


def events_of(bridge: Bridge, session_id: str) -> int:
    return int(bridge.session(session_id)["hook_count"]) if bridge.knows(session_id) else 0


TAKEN = [("bridge.sqlite3", "removed"), ("bridge.sqlite3", "replaced")]


@pytest.mark.parametrize(("name", "how"), [*TAKEN, ("bridge.sqlite3-wal", "removed")])
def test_nothing_is_acknowledged_that_is_not_there_afterwards(
    bridge: QuickBridge, name: str, how: str
) -> None:
    session_id, file = new_session(), bridge.data / name
    bridge.accept(*[prompt(session_id, number) for number in range(5)])
    if how == "removed":
        file.unlink()
    else:
        other = bridge.data / "another"
        query(other, "CREATE TABLE django_migrations (id INTEGER, app TEXT, name TEXT)")
        other.rename(file)
    assert_refuses(bridge, session_id)
    line = stopped(bridge)
    assert f"{name} was {how}" in line
    if how == "replaced":  # SQLite takes any -wal beside a database for its own
        assert query(file, "SELECT name FROM sqlite_master") == [("django_migrations",)]
    bridge.manage(*told_command(line, "restore"))
    bridge.start()
    assert events_of(bridge, session_id) == 5, "every event that was answered 200, and no other"
    bridge.accept(prompt(session_id, "again"))


def test_a_database_that_another_program_keeps(bridge: QuickBridge) -> None:
    """/health says that no event can be stored (D48), and is healthy when it lets go."""
    with bridge.locked():
        assert_error(bridge.post_hook(prompt(new_session(), 1)), 503, "STORAGE_UNAVAILABLE")
        answer = bridge.get("/api/v1/health", bridge.hook_token)
        assert answer.status == 503 and answer.json()["checks"]["hook_endpoint"] == "unhealthy"
    healthy = partial(bridge.get, "/api/v1/health", bridge.hook_token)
    wait_until(lambda: healthy().status == 200, "it can be written again")


@pytest.mark.parametrize("way", ["moved", "replaced", "linked elsewhere"])
def test_the_data_directory_is_taken(bridge: QuickBridge, way: str) -> None:
    session_id = new_session()
    bridge.accept(prompt(session_id, 1))
    real, away = bridge.data.resolve(), bridge.data.with_name("moved")
    with bridge.asleep():  # so that it makes nothing there meanwhile
        if way == "linked elsewhere":
            away.mkdir()
            bridge.data.unlink()
            bridge.data.symlink_to(away)
        else:
            real.rename(away)
            if way == "replaced":
                shutil.copytree(away, real, ignore=shutil.ignore_patterns("*.sock"))
    assert_refuses(bridge, session_id)
    line = stopped(bridge)
    assert f"{bridge.data} was" in line, line
    if way == "linked elsewhere":
        assert list(away.glob("*.sqlite3*")) == [], "nothing was made where it looks now"
        bridge.data.unlink()
        bridge.data.symlink_to(real)
        shutil.rmtree(away)
    else:
        shutil.rmtree(real, ignore_errors=True)
        away.rename(real)
    bridge.start()
    assert events_of(bridge, session_id) == 1


def test_without_the_lock_no_second_server_and_no_restore(
    bridge: QuickBridge, tmp_path: Path
) -> None:
    session_id = new_session()
    bridge.accept(prompt(session_id, 1))
    saved = tmp_path / "saved.tar.gz"
    bridge.manage("backup", str(saved))
    with bridge.asleep():  # so that it cannot have stopped before they try
        (bridge.data / "serve.lock").unlink()
        for command in (["serve"], ["restore", str(saved)]):
            done = bridge.manage(*command, check=False)
            assert done.returncode == 1, done
            assert "A bridge runs with" in done.stderr
        (bridge.data / "serve.lock").unlink()
    assert "serve.lock was removed" in stopped(bridge)
    bridge.start()
    assert events_of(bridge, session_id) == 1


def test_a_start_does_not_make_a_database_where_one_was(bridge: QuickBridge) -> None:
    bridge.manage("backup")
    assert bridge.stop() == 0
    database(bridge).unlink()
    for command in ("list_devices", "migrate", "doctor"):
        done = bridge.manage(command, check=False)
        said = (done.stdout + done.stderr).strip()
        assert done.returncode == 1 and "Traceback" not in said, (command, said)
        assert "database" in said and (command == "doctor" or len(said.splitlines()) == 1), said
    for size in ("missing", "empty"):
        done = bridge.manage("serve", check=False)
        assert done.returncode == NEEDS_A_PERSON, done
        (line,) = done.stderr.strip().splitlines()
        assert f"{database(bridge)} is {size}" in line
        newest = max((bridge.data / "backups").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        assert told_command(line, "restore") == ["restore", str(newest)]
        assert told_command(line, "serve") == ["serve", "--new-database"]
        assert not database(bridge).exists() or not database(bridge).stat().st_size
        database(bridge).touch()

    with bridge.log.open("ab") as log:
        bridge.process = bridge.popen(["manage.py", "serve", "--new-database"], log)
    bridge.wait_ready()


def test_a_first_start_that_was_cut_short_is_tried_again(tmp_path: Path) -> None:
    bridge = QuickBridge(tmp_path)
    for until in ("tls/server.crt", "bridge.sqlite3-wal"):
        Bridge.spawn(bridge)  # without the tables that a quick one is given
        wait_until((bridge.data / until).exists, bridge.tail)
        bridge.kill()
        Bridge.spawn(bridge)
        bridge.wait_ready()
        assert bridge.stop() == 0
        shutil.rmtree(bridge.data)
