"""The disk under the data directory is full (D26, D27, D46 to D48): nothing half-written."""

import errno
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import agents
from tests.conformance.approvals import decide
from tests.conformance.https import assert_error
from tests.conformance.samples import new_session, prompt
from tests.conformance.terminal import Terminal
from tests.conformance.test_attachments import upload
from tests.faults.hosts import Host, bridge_on, hosts
from tests.faults.load import under_load
from tests.faults.quick import QuickBridge
from tests.hooks.conftest import run_hook, waiting
from tests.servers import PATIENCE, wait_until

pytestmark = pytest.mark.slow

SIZE_MB = 128  # over the 100 MB that D48 wants free
CHECK = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
for what in ("integrity_check", "foreign_key_check"):
    print(database.execute("PRAGMA " + what).fetchall())
"""


class Disk:
    """A small disk under the data directory of a bridge on a host of its own."""

    def __init__(self, host: Host, bridge: QuickBridge) -> None:
        self.host, self.bridge, self.data = host, bridge, bridge.seen  # where tests see it

    def fill(self) -> None:
        """No room for a byte; again and again, for the bridge may give some room back."""
        with open(self.data / "filler", "ab", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        if (filler := self.data / "filler").exists():  # a disk that is read-only has none
            filler.unlink()

    def store_nothing(self) -> None:
        """Return when nothing can be stored; the database keeps some room for itself."""

        def refused() -> bool:
            self.fill()
            return self.bridge.post_hook(prompt(new_session(), "x" * 20_000)).status == 503

        wait_until(refused, "full")

    def assert_sound(self) -> None:
        done = self.bridge.run(["-c", CHECK, str(self.bridge.data / "bridge.sqlite3")])
        assert (done.returncode, done.stdout.split()) == (0, ["[('ok',)]", "[]"]), done

    def fire(self, session_id: str, number: int) -> None:
        """A hook as the agent runs it there."""
        about = {"hook_event_name": "UserPromptSubmit", "session_id": session_id}
        raw = about | {"prompt": "x" * 10_000, "number": number}
        spool = self.bridge.data / "spool"
        run_hook(spool, json.dumps(raw).encode(), enter=self.host.enter)

    def spooled(self) -> list[str]:
        return waiting(self.data / "spool")


@pytest.fixture(scope="module")
def made_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with hosts(1) as [host]:
        bridge = bridge_on(host, tmp_path_factory.mktemp("small-disk"))
        bridge.data.mkdir()
        host.mount(bridge.data, f"{SIZE_MB}m")
        with bridge:
            yield Disk(host, bridge)


@pytest.fixture
def disk(made_disk: Disk) -> Iterator[Disk]:
    yield made_disk
    made_disk.free()


def test_the_disk_is_full_under_load(disk: Disk) -> None:
    """D26, D46, D48: 503 and not half a row; sockets live on; back by itself."""
    bridge = disk.bridge
    assert bridge.health()["status"] == "healthy"
    with under_load([bridge], watchers=2, timeout=PATIENCE, patience=PATIENCE) as load:
        load.more(10)
        disk.fill()
        full = time.monotonic()

        def all_refused() -> bool:
            disk.fill()
            return all(poster.refusals and poster.refusals[-1].at > full for poster in load.posters)

        wait_until(all_refused, "each poster is refused")
        body = bridge.health()
        assert body["status"] == "degraded" and body["checks"]["disk_space"] == "unhealthy"
        listed = bridge.get("/api/v1/sessions", bridge.admin_token)
        assert listed.status == 200, "what is stored can be read"
        stored, since = -1, 0.0

        def none_stored() -> bool:
            """Each poster is refused three times, and nothing is acknowledged meanwhile."""
            nonlocal stored, since
            disk.fill()
            if load.count() != stored:  # what the database keeps for itself held one more
                stored, since = load.count(), time.monotonic()
            return all(sum(one.at > since for one in p.refusals) > 3 for p in load.posters)

        wait_until(none_stored, "refused for good")
        disk.free()
        load.more(10)
        wait_until(lambda: bridge.health()["status"] == "healthy", "healthy again")
        load.finish()
        assert [len(watcher.views) for watcher in load.watchers] == [1, 1], "a socket was closed"
        assert not load.unanswered()
        for refusal in load.refusals():
            assert_error(refusal.answer, 503, "STORAGE_UNAVAILABLE")
            assert int(refusal.answer.headers["retry-after"]) > 0
    disk.assert_sound()


def test_a_phone_goes_on_while_the_disk_is_full(disk: Disk) -> None:
    """D27, D46: what must be stored is an error that says so; an agent stops all the same (D40)."""
    bridge, sid, others = disk.bridge, new_session(), [new_session() for _ in range(20)]
    bridge.accept(prompt(sid, 0), *[prompt(other, 0) for other in others])
    phone = bridge.phone().ready()
    phone.join(sid)
    bridge.accept(prompt(sid, 1), prompt(sid, 2))
    events, talk = phone.wait_numbers(sid, [1, 2]), agents.begin(bridge, phone)
    agents.say(phone, talk, "/sleep 900")
    phone.expect("stream_chunk", session_id=talk)
    disk.store_nothing()
    phone.ack(*events)
    # the first may still fit into what the database has kept for itself
    answers = [phone.start(other) for other in others]
    answers.append(phone.request("session_interrupt", {"session_id": talk}))
    refused = [answer["payload"] for answer in answers if answer["type"] != "session_ready"]
    said = {(payload["code"], payload["recoverable"]) for payload in refused}
    assert said == {("STORAGE_UNAVAILABLE", True)}, answers[-1]
    phone.ping()
    disk.free()
    wait_until(lambda: bridge.post_hook(prompt(sid, 3)).status == 200, "room again")
    phone.wait_numbers(sid, [1, 2, 3])
    end = phone.expect("stream_end", session_id=talk)
    assert end["payload"]["finish_reason"] == "stop"
    phone.close()

    def only_the_new_one() -> bool:
        phone.ready()
        phone.collect(lambda: 3 in phone.numbers(sid), "the event after")
        phone.close()
        return phone.numbers(sid) == [3]

    wait_until(only_the_new_one, "the acknowledgement is stored")


def test_a_hook_that_waits_for_an_answer(disk: Disk, tmp_path: Path) -> None:
    """D66: what cannot be stored is no decision, and the dialog stands; then it can be given."""
    bridge, sid = disk.bridge, new_session()
    agent = Terminal(bridge.data, sid, str(bridge.root), tmp_path / "home", disk.host.enter)
    phone = bridge.phone().ready()
    try:
        dialog = agent.asks("Bash", {"command": "ls"})
        phone.expect("session_started", session_id=sid)
        phone.join(sid)
        question = phone.expect("approval_required", session_id=sid)["payload"]
        assert question["answerable"] is True
        disk.store_nothing()
        answer = decide(phone, sid, question["tool_call_id"], "approved")
        assert answer["payload"]["code"] == "STORAGE_UNAVAILABLE" and not dialog.over
        disk.free()
        wait_until(lambda: bridge.post_hook(prompt(new_session(), 1)).status == 200, "room again")
        answer = decide(phone, sid, question["tool_call_id"], "rejected", reason="Not now")
        assert answer["payload"]["forwarded"] is True
        assert dialog.answer() == {"behavior": "deny", "message": "Not now"}
    finally:
        phone.close()
        agent.kill()


def test_hooks_on_a_full_disk(disk: Disk) -> None:
    """D47: what was spooled is sent once; what could not be leaves no half, and is said."""
    bridge, sid = disk.bridge, new_session()
    disk.fire(sid, 0)
    wait_until(lambda: bridge.knows(sid) and not disk.spooled(), "the first hook is through")
    phone = bridge.phone().ready()
    phone.close()  # it would be silent for too long
    # or the forwarder would be faster than the disk is full
    with bridge.asleep():
        for number in range(1, 6):
            disk.fire(sid, number)
        disk.fill()
        for number in range(100, 110):
            disk.fire(sid, number)
        assert len(disk.spooled()) == 5, "half a file stays"
        assert (disk.data / "spool" / "lost").exists()
    disk.store_nothing()
    disk.free()
    disk.fire(sid, 6)
    wait_until(lambda: not disk.spooled(), "the forwarder has waited, and sent everything")
    phone.ready()
    phone.collect(lambda: 6 in phone.numbers(sid), "what was spooled")
    assert [number for number in phone.numbers(sid) if number is not None] == [1, 2, 3, 4, 5, 6]
    # the forwarder's own session, if nothing of another one waited when it could say it
    phone.again()
    phone.collect(lambda: "the disk was full" in str(phone.messages), "the gap is said")
    phone.close()
    disk.assert_sound()


def test_an_upload_to_a_full_disk(disk: Disk) -> None:
    """D70: 503, and nothing of it stays."""
    bridge, size = disk.bridge, 10 * 2**20
    with bridge.phones() as [phone]:
        session = agents.begin(bridge, phone)
        disk.fill()
        (disk.data / "filler").write_bytes(bytes((disk.data / "filler").stat().st_size - size // 2))
        answer = upload(bridge, session, bytes(size))
        assert_error(answer, 503, "STORAGE_UNAVAILABLE")
        assert [path for path in (disk.data / "attachments").rglob("*") if path.is_file()] == []
        disk.free()
        assert upload(bridge, session, bytes(size)).status == 201


INTO_A_FILE = {
    "backup": [],
    "install_hooks": ["--settings", "SETTINGS", "--yes"],
    "new_ca": ["--yes"],
}
WRITING = INTO_A_FILE | {
    "mint_pairing_qr": ["--name", "new"],
    "revoke_device": ["known"],
    "make_admin": ["--username", "admin"],
    "serve": [],
    "restore": ["BACKUP"],
    "upgrade": [],
    "uninstall": ["--data", "--yes"],
}


def refused(disk: Disk, command: str, words: list[str]) -> bool:
    """Whether it ends with 1 and one line that says why."""
    places = {"SETTINGS": "settings.json", "BACKUP": "../kept.tar.gz"}
    words = [str(disk.bridge.data / places[word]) if word in places else word for word in words]
    done = disk.bridge.run(["manage.py", command, *words])
    said = done.stderr.strip().splitlines()
    return (done.returncode, len(said)) == (1, 1) and "Start the bridge once" not in said[0]


def test_commands_on_a_full_disk(disk: Disk) -> None:
    """Nothing is half done: the agent's settings are as they were."""
    settings = disk.data / "settings.json"
    settings.write_text('{"model": "x"}')
    for command, words in INTO_A_FILE.items():
        disk.store_nothing()
        assert refused(disk, command, words), command
    assert settings.read_text() == '{"model": "x"}'
    assert not list(disk.data.glob("backups/*"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_host_keeps_what_cannot_be_stored(disk: Disk, killed: bool) -> None:
    """D79: the turn ends as it would have, each row once, for a new bridge too."""
    bridge = disk.bridge
    with bridge.phones() as [phone]:
        session_id = agents.begin(bridge, phone)
        agents.say(phone, session_id, "/sleep 4")
        phone.expect("stream_chunk", session_id=session_id)
        began = time.monotonic()
        disk.store_nothing()
        wait_until(lambda: time.monotonic() - began > 5, "the turn is over")
        assert bridge.session(session_id)["turn"] != "idle"
        if killed:
            bridge.kill()
        disk.free()
        if killed:
            bridge.start()
        wait_until(lambda: bridge.session(session_id)["turn"] == "idle")
        phone.close()
        phone.ready().join(session_id)
        kept = agents.log_of(phone, session_id)
        kinds = [one["type"] for one in kept if one["type"] in ("stream_start", "stream_end")]
        assert kinds == ["stream_start", "stream_end"]
        numbers, rest = agents.words(kept).split("Slept")
        assert rest.split() == ["for", "4", "seconds."]
        assert numbers.split() == [str(n + 1) for n in range(len(numbers.split()))]
        agents.end(phone, session_id)


def test_commands_on_a_disk_that_takes_nothing(disk: Disk) -> None:
    """Mounted read-only. The last test, for it stays so."""
    bridge = disk.bridge
    bridge.settings["DJANGO_SUPERUSER_PASSWORD"] = "a long password"
    bridge.mint("--name", "known")
    assert bridge.stop() == 0
    bridge.manage("backup", str(bridge.data / "../kept.tar.gz"))
    mount = ["mount", "-o", "remount,bind,ro", str(bridge.data)]
    subprocess.run([*disk.host.enter, *mount], check=True)
    assert not [command for command, words in WRITING.items() if not refused(disk, command, words)]
