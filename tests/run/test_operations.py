"""Backups, migrations and pruning: what an operator does to a bridge, done to real ones (issue:
operations).
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from bridge_project.kernel.config import Conf, conf
from bridge_project.operations import restore
from devices_app import pairing
from devices_app.models import Device, Token
from hooks_app.models import HookEvent
from sessions_app.models import ClientRequest, LogRow, Session, ToolCall
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session, prompt
from tests.faults.load import Poster
from tests.faults.quick import QuickBridge, nursery
from tests.run.terminal import Program
from tests.servers import stop_process, wait_until

POSTERS = 4
MIGRATE = """
import django
django.setup()
import sys
from django.core.management import CommandError, call_command
from bridge_project.operations import migrations, startup
from bridge_project.kernel.config import conf
if sys.argv[1:]:
    call_command("migrate", *sys.argv[1:], verbosity=0)
else:
    try:
        startup.make_database(conf)
        migrations.migrate(conf)
    except CommandError as error:
        sys.exit(str(error))
"""
KILLED = """
import os, signal, sys
rename, names = os.rename, []
def count(*given):
    names.append(given)
    rename(*given) if len(names) < 3 else os.kill(os.getpid(), signal.SIGKILL)
import django
django.setup()
from django.core.management import call_command
os.rename = count
call_command("restore", sys.argv[1])
"""
BACK = ("admin", "0002")  # any migration of another application that can be undone


def environment(data: Path, **settings: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BRIDGE_", "DATABASE_URL", "REDIS_URL", "DJANGO_"))
    }
    return (
        kept
        | {"BRIDGE_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "bridge_project.settings"}
        | settings
    )


class Command:
    """`python ARGUMENTS` in a process that is forked from one that has everything imported."""

    def __init__(self, arguments: list[str], environment: dict[str, str], code: str = "") -> None:
        self.files = ExitStack()
        self.said = [self.files.enter_context(tempfile.TemporaryFile()) for _ in range(2)]  # noqa: SIM115 - it is entered
        self.process = nursery.spawn(arguments, environment, self.said[0], self.said[1], code)
        self.pid = self.process.pid

    def ended(self) -> subprocess.CompletedProcess[str]:
        with self.files:
            returncode = self.process.wait(180)
            for file in self.said:
                file.seek(0)
            return subprocess.CompletedProcess(
                self.process.what, returncode, *[file.read().decode() for file in self.said]
            )


def migrating(data: Path, *arguments: str) -> Command:
    return Command(["-c", *arguments], environment(data), MIGRATE)


def migrate(data: Path, *arguments: str) -> None:
    """What `serve` does first, or with arguments Django's own command."""
    done = migrating(data, *arguments).ended()
    assert done.returncode == 0, done


def manage(data: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return Command(["manage.py", *arguments], environment(data, **settings)).ended()


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit 1 and one line that has these words."""
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 1, said
    assert len(said.splitlines()) == 1, said
    for word in words:
        assert word in said


def query(database: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as opened:
        found = opened.execute(statement).fetchall()
        opened.commit()
        return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a migrated database, a certificate's key, settings, and an event that
    waits in the spool.
    """
    data = tmp_path_factory.mktemp("template") / "data"
    for part in ("tls", "logs", "spool/rejected"):
        (data / part).mkdir(parents=True)
    migrate(data)
    for name, text in (
        ("tls/kept.pem", "key"),
        ("tls/lock", ""),
        (".env", "BRIDGE_PORT=9443\n"),
        ("instance", "me"),
        ("watch.json", "{}"),
        ("serve.lock", "1"),
    ):
        (data / name).write_text(text)
    for name, text in (
        ("spool/id", "spool-1"),
        ("spool/7-1", "{}"),
        ("spool/lock", ""),
        ("spool/.draft-1", "half"),
        ("logs/bridge.log", "{}"),
    ):
        (data / name).write_text(text)
    os.utime(data / "spool" / "7-1", ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    return data


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    shutil.copytree(template, tmp_path / "data")
    yield tmp_path / "data"
    nursery.forget(environment(tmp_path / "data"))


# -- the whole way ---------------------------------------------------------------------------------


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    """A bridge that makes its own tokens."""
    made = QuickBridge(tmp_path, BRIDGE_HOOK_TOKEN="", BRIDGE_ADMIN_TOKEN="")
    yield made
    made.hang_up()
    if made.process is not None:
        stop_process(made.process)
    nursery.forget(made.environment)


def started(bridge: Bridge) -> Bridge:
    bridge.spawn()
    wait_until(lambda: "To stop: Ctrl-C" in bridge.tail(), f"the banner; so far: {bridge.tail()}")
    bridge.hook_token = (bridge.data / "secrets" / "hook_token").read_text().strip()
    bridge.admin_token = (bridge.data / "secrets" / "admin_token").read_text().strip()
    return bridge


def test_a_backup_of_a_busy_bridge_brings_everything_back(bridge: Bridge, tmp_path: Path) -> None:
    started(bridge)
    pairing_ = bridge.mint("--name", "phone")
    session_id, saved = new_session(), tmp_path / "saved.tar.gz"
    be_seen(bridge, bridge.phone(pairing_, device_id="this phone"), session_id)
    posters, before = backed_up_while_posting(bridge, session_id, saved)
    refused(
        bridge.manage("restore", str(saved), check=False), "Another bridge serves", str(bridge.data)
    )
    bridge.kill()
    old_tokens = (bridge.hook_token, bridge.admin_token)
    shutil.rmtree(bridge.data)
    bridge.log.unlink()

    bridge.data = tmp_path / "a new place" / "data"
    bridge.settings["BRIDGE_DATA_DIR"] = str(bridge.data)
    bridge.manage("restore", str(saved))
    assert [path.name for path in bridge.data.parent.iterdir()] == ["data"], (
        "nothing was there that had to be kept"
    )
    started(bridge)
    assert (bridge.hook_token, bridge.admin_token) == old_tokens
    phone = bridge.phone(pairing_, device_id="this phone")
    phone.ready()  # the same token, and the same pin
    bridge.accept(prompt(session_id, "after"))
    phone.join(session_id)
    phone.collect(lambda: "after" in phone.numbers(session_id), "everything")
    got = phone.numbers(session_id)
    assert "seen" not in got, "what was acknowledged stays acknowledged"
    assert len(got) == len(set(got))
    for count, poster in zip(before, posters, strict=True):
        received = [number for number in got if number in set(poster.acknowledged)]
        assert received == poster.acknowledged[: len(received)], "in order, without a hole"
        assert len(received) >= count, "every event that was acknowledged before the backup began"


def test_what_a_restore_says_and_a_watch_that_runs(bridge: Bridge, tmp_path: Path) -> None:
    """It says what to do next, and `watch` comes back by itself."""
    saved = tmp_path / "saved.tar.gz"
    with Program(bridge.environment, "watch", "--commands", terminal=False) as watch:
        watch.until(f"no bridge has been started with the data directory {bridge.data} yet")
        started(bridge)
        watch.until("connected to")
        lost = bridge.mint("--name", "lost phone")
        bridge.phone(lost, device_id="lost").ready()
        bridge.manage("backup", str(saved))
        bridge.manage("revoke_device", "lost phone")
        bridge.stop()
        said = bridge.manage("restore", str(saved)).stdout
        (number,) = re.findall(r"lost phone \(#(\d+)\) was revoked, and is valid again", said)
        assert f"manage.py revoke_device {number}\n" in said
        assert said.endswith(f"Next: BRIDGE_DATA_DIR={shlex.quote(str(bridge.data))} make run\n")
        started(bridge)
        watch.until("connected to")


def be_seen(bridge: Bridge, phone: Phone, session_id: str) -> None:
    """The phone is there for an event, which the metrics say, and acknowledges it."""
    phone.ready()
    bridge.watch(phone, session_id)
    bridge.accept(prompt(session_id, "seen"))
    phone.wait_numbers(session_id, ["seen"])
    figures = bridge.https().get("/metrics", token=bridge.admin_token).body.decode()
    for line in (
        "bridge_sockets_open 1.0",
        "bridge_websockets_active 1.0",
        'bridge_deliveries_total{type="agent_event"} 2.0',
        "process_start_time_seconds",
    ):
        assert line in figures, figures
    assert "bridge_commit_group_events_count 0.0" not in figures
    phone.ack(*phone.events(session_id))
    phone.close()


def backed_up_while_posting(
    bridge: Bridge, session_id: str, saved: Path
) -> tuple[list[Poster], list[int]]:
    """The posters, and how many events of each had been acknowledged when the backup began."""
    posters = [Poster([bridge], session_id, str(number), pace=0) for number in range(POSTERS)]
    for poster in posters:
        poster.start()
    wait_until(
        lambda: all(len(poster.acknowledged) > 20 for poster in posters), "events are being posted"
    )
    before = [len(poster.acknowledged) for poster in posters]
    said = bridge.manage("backup", str(saved)).stdout
    during = sum(len(poster.acknowledged) for poster in posters) - sum(before)
    for poster in posters:
        poster.ending.set()
        poster.join(180)
    assert during > 20, "nobody waited for the backup"
    assert str(saved) in said
    assert saved.stat().st_mode & 0o777 == 0o600
    return posters, before


# -- the archive -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(template: Path) -> Path:
    """A backup of the template: the command as a user starts it."""
    command = [sys.executable, "manage.py", "backup"]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(template),
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    (made,) = (template / "backups").iterdir()
    assert str(made) in done.stdout
    moved = made.rename(template.with_name(made.name))
    (template / "backups").rmdir()  # it was the only file: nothing half is left
    return moved


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    """Settings with a data directory that is in use."""
    for name in ("DATABASE_URL", "DATABASE_URL_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "in use").mkdir()
    (tmp_path / "in use" / "bridge.sqlite3").write_text("precious")
    return conf.model_copy(update={"bridge_data_dir": tmp_path / "in use"})


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]


def test_what_a_backup_holds(saved: Path, template: Path) -> None:
    found = members(saved)
    manifest = json.loads(found["manifest.json"])
    secrets = {f"secrets/{path.name}" for path in (template / "secrets").iterdir()}
    assert secrets
    assert set(found) == {
        "manifest.json",
        "bridge.sqlite3",
        ".env",
        "instance",
        "watch.json",
        "tls/kept.pem",
        "spool/id",
        "spool/7-1",
        *secrets,
    }
    assert set(manifest["files"]) == set(found) - {"manifest.json"}
    assert "sessions_app.0001_initial" in manifest["migrations"]


def test_a_file_that_is_there_is_not_replaced(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "a place" / "mine"
    mine.parent.mkdir()
    mine.write_text("mine")
    refused(manage(data, "backup", str(mine)), f"{mine} is there already")
    assert [(path.name, path.read_text()) for path in mine.parent.iterdir()] == [("mine", "mine")]


def test_restored_as_it_was_and_the_other_kept(saved: Path, target: Conf, template: Path) -> None:
    _, aside = restore.restore(target, saved)
    directory = target.bridge_data_dir
    assert aside is not None
    assert aside.name.startswith("in use.before-restore-")
    assert (aside / "bridge.sqlite3").read_text() == "precious"
    assert query(directory / "bridge.sqlite3", "SELECT count(*) FROM django_migrations") == query(
        template / "bridge.sqlite3", "SELECT count(*) FROM django_migrations"
    )
    waiting = (directory / "spool" / "7-1").stat()
    assert waiting.st_mtime_ns == 1_700_000_000_123_456_789, (
        "the time is a part of the id of a spooled event"
    )
    assert not [path for path in directory.rglob("*") if path.stat().st_mode & 0o077]
    assert not list(directory.parent.glob(".*"))


def test_what_was_put_aside_can_be_removed(data: Path) -> None:
    """The backups stay where they are, also when a restore is killed while it moves files."""
    assert manage(data, "backup").returncode == 0
    (backup,) = (data / "backups").iterdir()
    killed = Command(["-c", str(backup)], environment(data), KILLED).ended()
    assert killed.returncode == -signal.SIGKILL, killed
    assert [path.name for path in data.parent.glob("data.before-restore-*/*")], "half of it"
    for _ in range(2):
        said = manage(data, "restore", str(backup))
        assert f"in {data}.before-restore-" in said.stdout, said
        for aside in data.parent.glob("data.before-restore-*"):
            shutil.rmtree(aside)
        assert [path.name for path in (data / "backups").iterdir()] == [backup.name]
        assert query(data / "bridge.sqlite3", "SELECT 1 FROM django_migrations LIMIT 1")


def test_a_directory_that_cannot_be_renamed(
    saved: Path, target: Conf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume of a container, or a directory in one that belongs to root."""
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == target.bridge_data_dir)
    directory = target.bridge_data_dir
    _, aside = restore.restore(target, saved)
    assert aside is not None and aside.parent == directory
    assert (aside / "bridge.sqlite3").read_text() == "precious"
    assert query(directory / "bridge.sqlite3", "SELECT 1 FROM django_migrations LIMIT 1")
    monkeypatch.setattr(restore, "now_name", lambda: "second")
    _, second = restore.restore(target, saved)
    assert second is not None
    assert (second / "instance").read_text() == "me"
    assert not [path for path in directory.iterdir() if "restoring" in path.name]


def test_a_database_that_the_settings_want_elsewhere(
    saved: Path, target: Conf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere.sqlite3"
    elsewhere.write_text("the old one")
    monkeypatch.setenv("DATABASE_URL", f"sqlite://{elsewhere}")
    restore.restore(target, saved)
    assert query(elsewhere, "SELECT count(*) FROM django_migrations")[0][0] > 5
    assert not (target.bridge_data_dir / "bridge.sqlite3").exists()
    assert [path.read_text() for path in tmp_path.glob("elsewhere.sqlite3.before-restore-*")] == [
        "the old one"
    ]


Entries = list[tuple[tarfile.TarInfo, bytes]]
Change = Callable[[Entries], None]


def with_file(name: str, data: bytes = b"x") -> Change:
    """In the place of the one with this name, or added."""

    def change(entries: Entries) -> None:
        entries[:] = [one for one in entries if one[0].name != name]
        with_first(name, data=data)(entries)

    return change


def with_first(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"x"
) -> Change:
    """An attacker's entry before all others."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    made.size = len(data) if kind == tarfile.REGTYPE else 0
    return lambda entries: entries.insert(0, (made, data))


def without(name: str) -> Change:
    def change(entries: Entries) -> None:
        entries[:] = [one for one in entries if one[0].name != name]

    return change


def manifest_with(**changes: Any) -> Change:
    def change(entries: Entries) -> None:
        [manifest] = [data for one, data in entries if one.name == "manifest.json"]
        with_file("manifest.json", json.dumps(json.loads(manifest) | changes).encode())(entries)

    return change


LINK, HARD_LINK, FIFO = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE
FUTURE = "sessions_app.9999_future"
BAD: dict[str, tuple[str, Change]] = {
    "another checksum": ("checksum of 'secrets/hook_token'", with_file("secrets/hook_token")),
    "a file more": ("checksum of 'secrets/more'", with_file("secrets/more")),
    "a file less": ("checksum of 'instance'", without("instance")),
    "no manifest": ("damaged", without("manifest.json")),
    "no sense": ("damaged", manifest_with(files=7)),
    "newer": ("newer version", manifest_with(version="99.0.0")),
    "newer tables": (FUTURE, manifest_with(migrations=[FUTURE])),
    "another format": ("newer version", manifest_with(format=2)),
    "upwards": ("'../evil'", with_first("../evil")),
    "upwards inside": ("'secrets/..'", with_first("secrets/..")),
    "upwards and down": ("evil", with_first("spool/../../evil")),
    "absolute": ("evil", with_first("/tmp/bridge-test-evil")),
    "a link": ("'secrets'", with_first("secrets", LINK, "/tmp")),
    "a link with a name of ours": ("'secrets/a'", with_first("secrets/a", LINK, "/etc/passwd")),
    "a hard link": ("'secrets/a'", with_first("secrets/a", HARD_LINK, "/etc/passwd")),
    "a device": ("'instance'", with_first("instance", FIFO)),
    "twice": ("'instance'", with_first("instance")),
    "something else": ("'serve.lock'", with_first("serve.lock")),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_backup_is_refused_and_nothing_touched(
    case: str, saved: Path, target: Conf, tmp_path: Path
) -> None:
    words, change = BAD[case]
    bad = tmp_path / "bad.tar.gz"
    with tarfile.open(saved) as opened:
        entries = [(one, opened.extractfile(one).read()) for one in opened]  # type: ignore[union-attr]
    change(entries)
    with tarfile.open(bad, "w:gz") as made:
        for info, data in entries:
            made.addfile(info, io.BytesIO(data))
    with pytest.raises(CommandError, match=words.replace(".", r"\.")) as caught:
        restore.restore(target, bad)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar.gz", "in use"]
    assert [path.read_text() for path in target.bridge_data_dir.iterdir()] == ["precious"]


@pytest.mark.parametrize("cut", [0, 100, 2000, -20])
def test_a_damaged_file_is_refused(cut: int, saved: Path, target: Conf, tmp_path: Path) -> None:
    (tmp_path / "bad.tar.gz").write_bytes(saved.read_bytes()[:cut])
    with pytest.raises(CommandError, match="damaged"):
        restore.restore(target, tmp_path / "bad.tar.gz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar.gz", "in use"]


def test_the_commands_say_it_in_a_line(saved: Path, data: Path, tmp_path: Path) -> None:
    refused(manage(tmp_path / "fresh", "backup"), "no database yet")
    refused(manage(data, "restore", str(tmp_path / "nowhere.tar.gz")), "nowhere.tar.gz")
    assert query(data / "bridge.sqlite3", "SELECT 1 FROM django_migrations LIMIT 1")


def test_a_bad_copy_of_the_database_is_refused(data: Path, tmp_path: Path) -> None:
    before, copy = (data / "bridge.sqlite3").read_bytes(), tmp_path / "copy.sqlite3"
    copy.write_bytes(before[:4096] + bytes(4096) + before[8192:])
    refused(manage(data, "restore", str(copy)), "copied", "copy.sqlite3")
    copy.write_bytes(before)
    query(
        copy,
        "INSERT INTO django_migrations (app, name, applied) VALUES ('sessions_app', '0099_from_the_future', '2030-01-01')",
    )
    refused(
        manage(data, "restore", str(copy)), "newer version", "sessions_app.0099_from_the_future"
    )
    refused(
        manage(data, "restore", str(copy), DATABASE_URL="postgres://db.invalid/bridge"),
        "database server",
    )
    assert (data / "bridge.sqlite3").read_bytes() == before
    assert not list(data.glob("*before-restore*")) and not list(data.glob(".*restoring*"))


def test_postgresql_is_the_operators_to_dump(
    data: Path, saved: Path, target: Conf, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgres://bridge:hushhush@db.invalid/bridge"
    done = manage(data, "backup", str(data.parent / "rest.tar.gz"), DATABASE_URL=url)
    assert done.returncode == 0
    assert "NOT in this backup" in done.stderr and "pg_dump" in done.stderr
    assert "hushhush" not in done.stdout + done.stderr
    assert "bridge.sqlite3" not in members(data.parent / "rest.tar.gz")
    with pytest.raises(CommandError, match="holds no database"):
        restore.restore(target, data.parent / "rest.tar.gz")
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(CommandError, match="SQLite"):
        restore.restore(target, saved)
    manifest, _ = restore.restore(target, data.parent / "rest.tar.gz")
    assert "bridge.sqlite3" not in manifest.files


# -- migrations ------------------------------------------------------------------------------------


def copies(data: Path) -> list[Path]:
    return sorted((data / "backups").glob("before-*.sqlite3"))


def test_a_new_database_needs_no_copy(template: Path) -> None:
    assert query(template / "bridge.sqlite3", "SELECT 1 FROM django_migrations LIMIT 1")
    assert not copies(template)


def test_two_that_start_together_copy_and_migrate_once(data: Path) -> None:
    migrate(data, *BACK)
    (data / "backups").mkdir()
    for year in range(2001, 2008):
        (data / "backups" / f"before-{year}0101T000000Z-x.0001_y.sqlite3").touch()
    database = data / "bridge.sqlite3"
    with held(data):
        both = [migrating(data) for _ in range(2)]
        wait_until(
            lambda: all(waits_for_lock(one.pid) for one in both), "both have found something to do"
        )
        assert not query(
            database, "SELECT 1 FROM django_migrations WHERE app = 'admin' AND name LIKE '0003%'"
        )
    for one in both:
        done = one.ended()
        assert done.returncode == 0, done
    assert query(
        database, "SELECT 1 FROM django_migrations WHERE app = 'admin' AND name LIKE '0003%'"
    )
    kept = copies(data)
    assert [path.name[7:11] for path in kept[:-1]] == ["2004", "2005", "2006", "2007"], (
        "one new, the last five kept"
    )
    assert "-admin.0003" in kept[-1].name
    assert kept[-1].stat().st_mode & 0o777 == 0o600
    assert query(kept[-1], "SELECT count(*) FROM django_migrations WHERE app = 'admin'") == [
        (2,)
    ], "it is the database as it was before"
    assert len(list((data / "backups").iterdir())) == 5


AXES = """
CREATE TABLE axes_accessattempt (id integer PRIMARY KEY, get_data text, post_data text);
CREATE TABLE axes_accessattemptexpiration (
    access_attempt_id integer PRIMARY KEY REFERENCES axes_accessattempt (id)
);
CREATE TABLE axes_accessfailurelog (id integer PRIMARY KEY);
CREATE TABLE axes_accesslog (id integer PRIMARY KEY);
INSERT INTO axes_accessattempt VALUES (1, 'next=/admin/', 'username=admin');
INSERT INTO axes_accessattemptexpiration VALUES (1);
INSERT INTO django_migrations (app, name, applied) VALUES ('axes', '0001_initial', '2026-01-01');
INSERT INTO django_content_type (id, app_label, model) VALUES (999, 'axes', 'accessattempt');
INSERT INTO auth_permission (content_type_id, codename, name) VALUES (999, 'view_axes', 'View');
"""


def test_what_django_axes_left_is_removed(data: Path) -> None:
    """A database of a version that had it is no newer one; it starts, and has none of it then."""
    database = data / "bridge.sqlite3"
    migrate(data, "devices_app", "0001_squashed")
    with closing(sqlite3.connect(database)) as opened:
        opened.executescript(AXES)
    migrate(data)
    assert not query(database, "SELECT name FROM sqlite_master WHERE name LIKE 'axes%'")
    assert not query(database, "SELECT name FROM django_migrations WHERE app = 'axes'")
    assert not query(database, "SELECT id FROM django_content_type WHERE app_label = 'axes'")
    assert not query(database, "SELECT id FROM auth_permission WHERE codename = 'view_axes'")
    assert query(copies(data)[-1], "SELECT post_data FROM axes_accessattempt"), "a way back"


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """As another process does that migrates."""
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def waits_for_lock(pid: int) -> bool:
    return any(
        "->" in line and "FLOCK" in line and f" {pid} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


def test_a_newer_database_is_refused(data: Path) -> None:
    query(
        data / "bridge.sqlite3",
        "INSERT INTO django_migrations (app, name, applied) VALUES ('sessions_app', '0099_from_the_future', '2030-01-01')",
    )
    refused(
        manage(data, "serve", BRIDGE_PORT="1"), "newer version", "sessions_app.0099_from_the_future"
    )
    assert not copies(data)


# -- pruning ---------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_prune_says_what_it_removed() -> None:
    from bridge_project.protocol.hooks import parse_hook_body
    from hooks_app.intake.store import Posted, store

    for session_id in ("old", "old", "gone", "young"):
        store(
            [
                Posted(
                    parse_hook_body(json.dumps(prompt(session_id, 1)).encode(), now=timezone.now())
                )
            ]
        )
    long_ago = timezone.now() - timedelta(days=8)
    LogRow.objects.filter(feed__session__session_id="old").update(created_at=long_ago)
    HookEvent.objects.filter(session_id="old").update(received_at=long_ago)
    Session.objects.filter(session_id="old").update(
        last_activity_at=timezone.now() - timedelta(days=2)
    )
    Session.objects.filter(session_id="gone").update(last_activity_at=long_ago, status="closed")
    for name in ("unused", "just void", "paired"):
        pairing.mint(name, ttl=timedelta(minutes=10), lifetime=None)
    Device.objects.exclude(name="just void").update(created_at=long_ago)
    Token.objects.exclude(device__name="just void").update(use_by=long_ago)
    Token.objects.filter(device__name="just void").update(use_by=timezone.now())
    Device.objects.filter(name="paired").update(paired_at=long_ago)
    session = Session.objects.get(session_id="old")
    old_command = {"kind": "prompt", "created_at": long_ago, "payload": "{}"}
    session.command_set.create(**old_command, taken_at=long_ago)
    waiting = session.command_set.create(**old_command)
    paired = Device.objects.get(name="paired")
    ClientRequest.objects.create(device=paired, process_id=uuid.uuid4(), created_at=long_ago)
    ToolCall.objects.create(session=session, tool_call_id="1", params="{}", created_at=long_ago)
    out = io.StringIO()
    call_command("prune", stdout=out)
    assert out.getvalue().splitlines() == [
        "1 idle sessions closed",
        "2 rows of the log removed",
        "1 tool calls removed",
        "1 answers to client messages removed",
        "1 closed sessions removed",
        "1 devices that never paired removed",
        "1 commands to agents removed",
        "2 memories of events removed",
    ]
    assert list(session.command_set.all()) == [waiting], "its session may be resumed"
    assert set(Session.objects.values_list("session_id", flat=True)) == {"old", "young"}
    assert set(Device.objects.values_list("name", flat=True)) == {"just void", "paired"}
    out = io.StringIO()
    call_command("prune", stdout=out)
    assert {line.split()[0] for line in out.getvalue().splitlines()} == {"0"}
