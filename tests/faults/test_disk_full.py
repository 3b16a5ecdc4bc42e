"""The disk under the data directory is full (D26, D27, D46, D47, D48): nothing half-written,
nothing acknowledged, nobody dies, and back by itself.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from hooks_app.producer.shell_command import hook_command
from hooks_app.producer.spool import RESERVED
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.samples import new_session, prompt
from tests.faults.hosts import Host, bridge_on, hosts, missing
from tests.faults.load import under_load, within
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

SIZE_MB = 128  # over the 100 MB that D48 wants free
REFUSED_WITHIN, BACK_WITHIN = 60.0, 60.0  # seconds
FILLER = "filler"
CHECK = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
for what in ("integrity_check", "foreign_key_check"):
    print(database.execute("PRAGMA " + what).fetchall())
"""


class Disk(Protocol):
    """A bridge and what can be done to the disk under its data directory."""

    bridge: Bridge
    data: Path  # where the tests see that directory

    def fill(self) -> None:
        """No room for a byte; to be called again and again, for the bridge may give some room
        back.
        """

    def free(self) -> None: ...


class SmallDisk:
    """A disk of its own, on a host of its own."""

    def __init__(self, host: Host, bridge: QuickBridge) -> None:
        self.host, self.data = host, bridge.seen
        self.bridge: Bridge = bridge

    def fill(self) -> None:
        with open(self.data / FILLER, "ab", buffering=0) as filler:
            while self._page(filler.fileno()):
                pass

    @staticmethod
    def _page(filler: int) -> bool:
        try:
            return os.write(filler, bytes(4096)) > 0
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False

    def free(self) -> None:
        (self.data / FILLER).unlink(missing_ok=True)

    def fire(self, session_id: str, number: int) -> None:
        """A hook as the agent runs it on that host, with the spool in the data directory: it prints
        nothing and exits 0, whatever happens.
        """
        raw = {
            "hook_event_name": "UserPromptSubmit",
            "session_id": session_id,
            "prompt": "x" * 10_000,
            "number": number,
        }
        command = [*self.host.enter, "/bin/sh", "-c", hook_command(str(self.bridge.data / "spool"))]
        done = subprocess.run(
            command, input=json.dumps(raw).encode(), capture_output=True, timeout=180
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done

    def spooled(self) -> list[Path]:
        return [path for path in (self.data / "spool").iterdir() if path.name not in RESERVED]


class Quota:
    """No disk, but a limit of the system's: the bridge may not write a byte to any file. Everybody
    may do that to a process of his.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge, self.data = bridge, bridge.data

    def _limit(self, most: int) -> None:
        assert self.bridge.process is not None
        _, hard = resource.prlimit(self.bridge.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.bridge.process.pid, resource.RLIMIT_FSIZE, (most, hard))

    def fill(self) -> None:
        self._limit(0)

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with hosts(1) as [host]:
        bridge = bridge_on(host, tmp_path_factory.mktemp("small-disk"))
        bridge.data.mkdir()
        host.mount(bridge.data, f"{SIZE_MB}m")
        try:
            bridge.start()
            yield SmallDisk(host, bridge)
        finally:
            bridge.hang_up()
            assert bridge.process is not None
            bridge.kill()


@pytest.fixture(scope="module")
def quota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quota]:
    with QuickBridge(tmp_path_factory.mktemp("quota")) as bridge:
        yield Quota(bridge)


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    """A real one, or a quota where nobody may mount one."""
    disk: Disk = request.getfixturevalue("quota" if missing() else "small_disk")
    yield disk
    disk.free()


def health(bridge: Bridge) -> dict[str, Any]:
    return dict(bridge.get("/api/v1/health", bridge.hook_token).json())


def full_for(disk: Disk) -> bool:
    """The bridge can store nothing; what its database keeps for itself may last for a while."""
    disk.fill()
    return disk.bridge.post_hook(prompt(new_session(), "x" * 20_000)).status == 503


def assert_sound(disk: Disk) -> None:
    """SQLite finds nothing wrong with its file."""
    done = disk.bridge.run(["-c", CHECK, str(disk.bridge.data / "bridge.sqlite3")])
    assert (done.returncode, done.stdout.split()) == (0, ["[('ok',)]", "[]"]), done


def test_the_disk_is_full_under_load(disk: Disk) -> None:
    """D26, D46, D48: 503 STORAGE_UNAVAILABLE and not half a row; sockets live on; /health says
    which part; space is freed, and all goes on by itself.
    """
    bridge = disk.bridge
    assert health(bridge)["status"] == "healthy"
    with under_load([bridge], new_session(), watchers=2) as load:
        load.more(10)
        disk.fill()
        full = time.monotonic()

        def all_refused() -> bool:
            disk.fill()
            return all(poster.refusals and poster.refusals[-1].at > full for poster in load.posters)

        within(REFUSED_WITHIN, all_refused, "each poster is refused")
        if isinstance(disk, SmallDisk):
            body = health(bridge)
            assert body["status"] == "degraded" and body["checks"]["disk_space"] == "unhealthy", (
                body
            )
        assert bridge.get("/api/v1/sessions", bridge.admin_token).status == 200, (
            "what is stored can be read"
        )
        stored, refused = -1, [0]

        def none_stored() -> bool:
            """Each poster is refused three times, and nothing is acknowledged meanwhile."""
            nonlocal stored, refused
            disk.fill()
            now = [len(poster.refusals) for poster in load.posters]
            if load.count() != stored:  # what the database keeps for itself held one more
                stored, refused = load.count(), now
            return all(count > had + 3 for count, had in zip(now, refused, strict=True))

        within(REFUSED_WITHIN, none_stored, "refused for good")
        disk.free()
        load.more(10, BACK_WITHIN)
        within(BACK_WITHIN, lambda: health(bridge)["status"] == "healthy", "healthy again")
        load.finish()
        assert [len(watcher.views) for watcher in load.watchers] == [1, 1], "a socket was closed"
        assert not sum(poster.unanswered for poster in load.posters)
        for refusal in load.refusals():
            assert_error(refusal.answer, 503, "STORAGE_UNAVAILABLE")
            assert int(refusal.answer.headers["retry-after"]) > 0
    assert_sound(disk)


def test_a_phone_goes_on_while_the_disk_is_full(disk: Disk) -> None:
    """D27, D46: heartbeats are answered; what needs to be stored is an error that says so; an
    acknowledgement waits until it can be stored.
    """
    bridge, sid, others = disk.bridge, new_session(), [new_session() for _ in range(20)]
    bridge.accept(prompt(sid, 0), *[prompt(other, 0) for other in others])
    phone = bridge.phone().ready()
    phone.join(sid)
    bridge.accept(prompt(sid, 1), prompt(sid, 2))
    events = phone.wait_numbers(sid, [1, 2])
    disk.fill()
    within(REFUSED_WITHIN, lambda: full_for(disk), "full")
    phone.ack(*events)
    # the first may still fit into what the database has kept for itself
    answers = [phone.start(other) for other in others]
    refused = [answer["payload"] for answer in answers if answer["type"] != "session_ready"]
    assert refused and all(
        payload["code"] == "STORAGE_UNAVAILABLE" and payload["recoverable"] is True
        for payload in refused
    ), answers[-1]
    phone.ping()
    disk.free()
    within(BACK_WITHIN, lambda: bridge.post_hook(prompt(sid, 3)).status == 200, "room again")
    phone.wait_numbers(sid, [1, 2, 3])
    phone.close()

    def only_the_new_one() -> bool:
        phone.ready()
        phone.collect(lambda: 3 in phone.numbers(sid), "the event after")
        phone.close()
        return phone.numbers(sid) == [3]

    within(BACK_WITHIN, only_the_new_one, "the acknowledgement is stored")


def test_hooks_on_a_full_disk(small_disk: SmallDisk) -> None:
    """D47: they print nothing and exit 0; what was spooled is sent when there is room, once; what
    could not be spooled leaves no half and is said.
    """
    disk, bridge, sid = small_disk, small_disk.bridge, new_session()
    assert bridge.process is not None
    disk.fire(sid, 0)
    wait_until(lambda: bridge.knows(sid) and not disk.spooled(), "the first hook is through")
    phone = bridge.phone().ready()
    phone.join(sid)
    # or the forwarder would be faster than the disk is full
    bridge.process.send_signal(signal.SIGSTOP)
    try:
        for number in range(1, 6):
            disk.fire(sid, number)
        disk.fill()
        for number in range(100, 110):
            disk.fire(sid, number)
        assert len(disk.spooled()) == 5, "half a file stays"
        assert (disk.data / "spool" / "lost").exists()
    finally:
        bridge.process.send_signal(signal.SIGCONT)
    within(REFUSED_WITHIN, lambda: full_for(disk), "full")
    disk.free()
    disk.fire(sid, 6)
    wait_until(
        lambda: not disk.spooled(), "the forwarder has waited as it was told, and sent everything"
    )
    phone.collect(lambda: 6 in phone.numbers(sid), "what was spooled", 20)
    assert [number for number in phone.numbers(sid) if number is not None] == [1, 2, 3, 4, 5, 6]
    phone.close()
    # the forwarder's own session, if nothing of another one waited when it could say it
    phone.ready()
    phone.collect(lambda: "the disk was full" in str(phone.messages), "the gap is said", 20)
    phone.close()
    assert_sound(disk)


# What SQLite writes may still fit into its log, whose file keeps its size; a new file never does.
INTO_THE_DATABASE = {
    "mint_pairing_qr": ["--name", "new"],
    "revoke_device": ["known"],
    "make_admin": ["--username", "admin"],
}
INTO_A_FILE = {
    "backup": [],
    "install_hooks": ["--settings", "SETTINGS", "--yes"],
    "new_ca": ["--yes"],
}
WHILE_IT_IS_STOPPED = {
    "serve": [],
    "restore": ["BACKUP"],
    "upgrade": [],
    "uninstall": ["--data", "remove"],
}
READING: dict[str, list[str]] = {"prune": [], "list_devices": [], "doctor": []}


def told(disk: SmallDisk, command: str, words: list[str]) -> tuple[int, list[str]]:
    """The exit code of a command, and what it said of it; never a traceback."""
    places = {"SETTINGS": "settings.json", "BACKUP": "../kept.tar.gz"}
    words = [str(disk.bridge.data / places[word]) if word in places else word for word in words]
    done = disk.bridge.run(["manage.py", command, *words])
    assert "Traceback" not in done.stderr and "Start the bridge once" not in done.stderr, done
    return done.returncode, done.stderr.strip().splitlines()


def test_commands_on_a_full_disk(small_disk: SmallDisk) -> None:
    """What cannot be written is refused in one line with exit code 1, and nothing is half done."""
    disk, bridge = small_disk, small_disk.bridge
    bridge.settings["DJANGO_SUPERUSER_PASSWORD"] = "a long password"
    bridge.mint("--name", "known")
    before = bridge.manage("list_devices", "--json").stdout
    disk.fill()
    within(REFUSED_WITHIN, lambda: full_for(disk), "full")
    ended = {}
    for command, words in (INTO_THE_DATABASE | INTO_A_FILE | READING).items():
        disk.fill()
        ended[command], said = told(disk, command, words)
        assert ended[command] in (0, 1), (command, said)
        assert command in READING or ended[command] == 0 or len(said) == 1, (command, said)
    assert all(ended[command] == 1 for command in INTO_A_FILE), ended
    disk.free()
    if ended["mint_pairing_qr"] == ended["revoke_device"] == 1:
        assert bridge.manage("list_devices", "--json").stdout == before


def test_commands_on_a_disk_that_takes_nothing(small_disk: SmallDisk) -> None:
    """Mounted read-only: what would write says in one line that it cannot, what reads does. The last
    test, for it stays so.
    """
    disk, bridge = small_disk, small_disk.bridge
    assert bridge.stop() == 0
    bridge.manage("backup", str(bridge.data / "../kept.tar.gz"))
    mount = ["mount", "-o", "remount,bind,ro", str(bridge.data)]
    subprocess.run([*disk.host.enter, *mount], check=True)
    failed = {}
    writing = INTO_THE_DATABASE | INTO_A_FILE | WHILE_IT_IS_STOPPED
    for command, words in (writing | READING).items():
        ended, said = told(disk, command, words)
        if command in writing and (ended == 0 or len(said) != 1):
            failed[command] = (ended, said)
    assert not failed, failed
