"""Backups and migrations: what an operator does to a bridge, done to real ones."""

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from bridge_project.kernel.config import Conf, conf
from bridge_project.operations.backup import back_up, restore
from tests.conformance.bridge import Bridge, query
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session, prompt
from tests.faults.load import Poster
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, wait_until

POSTERS = 4
SPOOLED_NS = 1_700_000_000_123_456_789
KILLED = """
import os, signal, sys
rename, names = os.rename, []
def count(*given):
    names.append(given)
    rename(*given) if len(names) < 3 else os.kill(os.getpid(), signal.SIGKILL)
os.environ["DJANGO_SETTINGS_MODULE"] = "bridge_project.settings"
import django
django.setup()
from django.core.management import call_command
os.rename = count
call_command("restore", sys.argv[1])
"""


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit 1 and one line that has these words."""
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 1, said
    assert len(said.splitlines()) == 1, said
    for word in words:
        assert word in said


def is_whole(database: Path) -> bool:
    return len(query(database, "SELECT * FROM django_migrations")) > 5


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a bridge that ran: settings, and an event that waits in the spool."""
    with QuickBridge(tmp_path_factory.mktemp("template")) as made:
        pass
    files = {".env": "BRIDGE_PORT=9443\n", "watch.json": "{}", "tls/kept.pem": "key"}
    files |= {"spool/7-1": "{}", "spool/.draft-1": "half"}
    for name, text in files.items():
        (made.data / name).write_text(text)
    os.utime(made.data / "spool/7-1", ns=(SPOOLED_NS, SPOOLED_NS))
    return made.data


@pytest.fixture
def idle(template: Path, tmp_path: Path) -> Bridge:
    """One with a copy of it, which does not run."""
    made = QuickBridge(tmp_path)
    shutil.copytree(template, made.data)
    return made


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    made = QuickBridge(tmp_path)
    yield made
    made.__exit__()


def test_a_backup_of_a_busy_bridge_brings_everything_back(bridge: Bridge, tmp_path: Path) -> None:
    bridge.start()
    pairing_ = bridge.mint("--name", "phone")
    session_id, saved = new_session(), tmp_path / "saved.tar.gz"
    be_seen(bridge, bridge.phone(pairing_, device_id="this phone"), session_id)
    posters, before = backed_up_while_posting(bridge, session_id, saved)
    done = bridge.manage("restore", str(saved), check=False)
    refused(done, "A bridge runs with", str(bridge.data))
    bridge.kill()
    shutil.rmtree(bridge.data)
    bridge.log.unlink()

    bridge.data = tmp_path / "a new place" / "data"
    bridge.settings["BRIDGE_DATA_DIR"] = str(bridge.data)
    said = bridge.manage("restore", str(saved)).stdout
    assert "was revoked since then, it is valid again" in said and "list_devices" in said
    assert said.endswith(f"Next: BRIDGE_DATA_DIR={shlex.quote(str(bridge.data))} make run\n")
    bridge.start()
    assert "0 devices that never paired removed" in bridge.manage("prune").stdout
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


def be_seen(bridge: Bridge, phone: Phone, session_id: str) -> None:
    """The phone is there for an event, and acknowledges it."""
    phone.ready()
    bridge.watch(phone, session_id)
    bridge.accept(prompt(session_id, "seen"))
    phone.wait_numbers(session_id, ["seen"])
    phone.ack(*phone.events(session_id))
    phone.close()


def backed_up_while_posting(
    bridge: Bridge, session_id: str, saved: Path
) -> tuple[list[Poster], list[int]]:
    """The posters, and how many events of each had been acknowledged when the backup began."""
    posters = [Poster([bridge], session_id, str(number), pace=0) for number in range(POSTERS)]
    for poster in posters:
        poster.start()
    wait_until(lambda: all(len(one.acknowledged) > 20 for one in posters), "events are posted")
    before = [len(poster.acknowledged) for poster in posters]
    said = bridge.manage("backup", str(saved)).stdout
    during = sum(len(poster.acknowledged) for poster in posters) - sum(before)
    for poster in posters:
        poster.ending.set()
        poster.join(180)
    assert during > 0, "everybody waited for the backup"
    assert str(saved) in said
    assert saved.stat().st_mode & 0o777 == 0o600
    return posters, before


@pytest.fixture(scope="module")
def saved(template: Path) -> Path:
    bridge = QuickBridge(template.parent)
    said = bridge.manage("backup").stdout
    (made,) = (template / "backups").iterdir()
    assert str(made) in said
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
    (tmp_path / "in use" / "bridge.sqlite3").chmod(0o600)
    return conf.model_copy(update={"bridge_data_dir": tmp_path / "in use"})


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]


def test_what_a_backup_holds(saved: Path, template: Path) -> None:
    found = members(saved)
    manifest = json.loads(found["manifest.json"])
    kept = [path for name in ("secrets", "tls") for path in (template / name).iterdir()]
    assert set(found) == {
        *("manifest.json", "bridge.sqlite3", ".env", "instance", "server.json"),
        "watch.json",
        *("spool/id", "spool/hook.sh", "spool/answer.sh", "spool/7-1"),
        *(str(path.relative_to(template)) for path in kept if path.name != "lock"),
    }
    assert set(manifest["files"]) == set(found) - {"manifest.json"}
    assert "sessions_app.0001_initial" in manifest["migrations"]


def test_a_backup_while_a_hook_writes_its_event(
    target: Conf, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the spool that grows meanwhile is saved as it was at one moment."""
    full = conf.model_copy(update={"bridge_data_dir": shutil.copytree(template, tmp_path / "full")})
    event, saved = full.bridge_data_dir / "spool/4711", tmp_path / "saved.tar.gz"
    event.write_text('{"hook_event_name": ')
    os.utime(event, ns=(SPOOLED_NS, SPOOLED_NS))
    look = tarfile.TarFile.gettarinfo

    def grown(*given: Any, **more: Any) -> tarfile.TarInfo:
        with event.open("a") as file:
            file.write('"Stop", ')
        return look(*given, **more)

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", grown)
    back_up(full, saved)
    monkeypatch.undo()
    restore(target, saved)
    brought = target.bridge_data_dir / "spool/4711"
    assert event.read_text().startswith(brought.read_text())
    assert brought.stat().st_mtime_ns == SPOOLED_NS, "by which the event is known again"


def test_a_backup_that_cannot_be_made_is_one_line(idle: Bridge, tmp_path: Path) -> None:
    """A file that is there is not replaced; what has no database cannot be saved."""
    mine, nowhere = tmp_path / "mine", str(tmp_path / "nowhere.tar.gz")
    mine.write_text("mine")
    before = set(tmp_path.iterdir())
    refused(idle.manage("backup", str(mine), check=False), f"{mine} is there already")
    assert mine.read_text() == "mine" and set(tmp_path.iterdir()) == before
    refused(idle.manage("restore", nowhere, check=False), nowhere)
    assert is_whole(idle.data / "bridge.sqlite3")
    (idle.data / "bridge.sqlite3").unlink()
    refused(idle.manage("backup", f"{mine.parent}/none/", check=False), "There is no directory")
    refused(idle.manage("backup", check=False), "no database yet")


def test_restored_as_it_was_and_the_other_kept(saved: Path, target: Conf, template: Path) -> None:
    _, aside = restore(target, saved)
    directory = target.bridge_data_dir
    assert aside is not None and aside.name.startswith("before-restore-")
    assert aside.parent == directory, "where no device can read the tokens in it"
    assert (aside / "bridge.sqlite3").read_text() == "precious"
    assert is_whole(directory / "bridge.sqlite3")
    # which is a part of the event's id
    assert (directory / "spool" / "7-1").stat().st_mtime_ns == SPOOLED_NS
    assert not [path for path in directory.rglob("*") if path.stat().st_mode & 0o077]
    assert not list(directory.glob(".restoring-*"))


def test_what_was_put_aside_can_be_removed(idle: Bridge) -> None:
    """The backups stay where they are, also when a restore is killed while it moves files."""
    idle.manage("backup")
    (backup,) = (idle.data / "backups").iterdir()
    killed = idle.run(["-c", KILLED, str(backup)])
    assert killed.returncode == -signal.SIGKILL, killed
    assert list(idle.data.glob("before-restore-*/*")), "half of it"
    for _ in range(2):
        said = idle.manage("restore", str(backup)).stdout
        assert f"in {idle.data}/before-restore-" in said
        for one in idle.data.glob("before-restore-*"):
            shutil.rmtree(one)
        assert list((idle.data / "backups").iterdir()) == [backup]
        assert is_whole(idle.data / "bridge.sqlite3")


def test_a_database_that_the_settings_want_elsewhere(
    saved: Path, target: Conf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "bridge.sqlite3"
    elsewhere.write_text("the old one")
    monkeypatch.setenv("DATABASE_URL", f"sqlite://{elsewhere}")
    _, aside = restore(target, saved)
    assert is_whole(elsewhere)
    assert not (target.bridge_data_dir / "bridge.sqlite3").exists()
    assert aside is not None
    assert (aside / "replaced-bridge.sqlite3").read_text() == "the old one"


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """An attacker's entry before all others."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


LINK, HARD_LINK, FIFO = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE
FUTURE = "sessions_app.9999_future"
# what is said, and what is changed: an entry more; a file's bytes, fields, or that it is there; or
# how much there is of the archive
BAD: dict[str, tuple[str, tarfile.TarInfo | dict[str, Any] | int]] = {
    "empty": ("damaged", 0),
    "cut off at once": ("damaged", 100),
    "cut off": ("damaged", 2000),
    "another checksum": ("checksum of 'secrets/hook_token'", {"secrets/hook_token": b"x"}),
    "a file more": ("checksum of 'secrets/more'", {"secrets/more": b"x"}),
    "a file less": ("checksum of 'instance'", {"instance": None}),
    "no manifest": ("damaged", {"manifest.json": None}),
    "newer tables": (FUTURE, {"manifest.json": {"migrations": [FUTURE]}}),
    "another format": ("no backup", {"manifest.json": {"format": 2}}),
    "upwards": ("'../evil'", entry("../evil")),
    "upwards inside": ("'secrets/..'", entry("secrets/..")),
    "absolute": ("evil", entry("/tmp/bridge-test-evil")),
    "a link": ("'secrets/a'", entry("secrets/a", LINK, "/etc/passwd")),
    "a hard link": ("'secrets/a'", entry("secrets/a", HARD_LINK, "/etc/passwd")),
    "a device": ("'instance'", entry("instance", FIFO)),
    "twice": ("'instance'", entry("instance")),
    "something else": ("'serve.lock'", entry("serve.lock")),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_backup_is_refused_and_nothing_touched(
    case: str, saved: Path, target: Conf, tmp_path: Path
) -> None:
    words, change = BAD[case]
    files, bad = members(saved), tmp_path / "bad.tar.gz"
    with tarfile.open(bad, "w:gz") as made:
        if isinstance(change, tarfile.TarInfo):
            made.addfile(change)
        for name, what in change.items() if isinstance(change, dict) else ():
            fields = isinstance(what, dict)
            files[name] = json.dumps(json.loads(files[name]) | what).encode() if fields else what
        for name, data in files.items():
            if data is not None:
                info = entry(name)
                info.size = len(data)
                made.addfile(info, io.BytesIO(data))
    if isinstance(change, int):
        bad.write_bytes(saved.read_bytes()[:change])
    with pytest.raises(CommandError, match=words.replace(".", r"\.")) as caught:
        restore(target, bad)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar.gz", "in use"]
    assert [path.read_text() for path in target.bridge_data_dir.iterdir()] == ["precious"]


def test_a_bad_copy_of_the_database_is_refused(idle: Bridge, tmp_path: Path) -> None:
    database, copy = idle.data / "bridge.sqlite3", tmp_path / "copy.sqlite3"

    def restored() -> subprocess.CompletedProcess[str]:
        return idle.manage("restore", str(copy), check=False)

    before = database.read_bytes()
    copy.write_bytes(before[:4096] + bytes(4096) + before[8192:])
    refused(restored(), "copied", "copy.sqlite3")
    copy.write_bytes(before)
    row = "(999, 'sessions_app', '0099_x', '2030-01-01')"
    query(copy, f"INSERT INTO django_migrations VALUES {row}")
    refused(restored(), "newer version", "sessions_app.0099_x")
    assert database.read_bytes() == before
    assert not list(idle.data.glob("*before-restore*")) + list(idle.data.glob(".*restoring*"))


LOOKED_AT = """
import fcntl, time
from bridge_project.kernel.config import conf
from bridge_project.composition import startup
look = (conf.bridge_data_dir / "serve.lock").open("a")
fcntl.flock(look, fcntl.LOCK_SH)
time.sleep = lambda _: look.close()
with startup.only_server(conf):
    pass
"""


def test_a_look_at_who_serves_stops_no_start(idle: Bridge) -> None:
    """`doctor`, `upgrade` and the admin site lock serve.lock for a moment to find out."""
    done = idle.run(["-c", LOOKED_AT])
    assert done.returncode == 0, done.stderr


def test_postgresql_is_the_operators_to_dump(
    idle: Bridge, saved: Path, target: Conf, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, rest = "postgres://bridge:hushhush@db.invalid/bridge", idle.directory / "rest.tar.gz"
    idle.settings["DATABASE_URL"] = url
    done = idle.manage("backup", str(rest))
    assert "NOT in this backup" in done.stderr and "pg_dump" in done.stderr
    assert "hushhush" not in done.stdout + done.stderr
    assert "bridge.sqlite3" not in members(rest)
    refused(idle.manage("restore", str(idle.data / "bridge.sqlite3"), check=False), "server")
    with pytest.raises(CommandError, match="holds no database"):
        restore(target, rest)
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(CommandError, match="SQLite"):
        restore(target, saved)
    manifest, _ = restore(target, rest)
    assert manifest is not None and "bridge.sqlite3" not in manifest.files


@pytest.mark.slow
def test_processes_that_start_together(postgres_server: Postgres, tmp_path: Path) -> None:
    """docs/operations.md: the tables are made once, and whoever comes second waits for them."""
    url = postgres_server.create_database()
    tokens = {"BRIDGE_HOOK_TOKEN": "h" * 43, "BRIDGE_ADMIN_TOKEN": "a" * 43}
    both = [Bridge(tmp_path / name, database_url=url, **tokens) for name in ("first", "second")]
    with ExitStack() as ending:
        for bridge in both:
            bridge.data.mkdir()
            (bridge.data / "bridge.sqlite3").touch()
            ending.callback(bridge.spawn().kill)
        for bridge in both:
            bridge.wait_ready()
        sid = new_session()
        both[0].accept(prompt(sid, 1))
        assert both[1].knows(sid)
        assert "bridge.sqlite3 is not used" in both[1].manage("doctor", check=False).stdout
    assert "no device of the one before" in both[0].log.read_text() + both[1].log.read_text()
