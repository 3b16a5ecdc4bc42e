"""The network is cut between hosts that are namespaces (D23, D26, D31, D46, D47)."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hooks_app.producer.__main__ import make_one_file
from hooks_app.producer.shell_command import write_hook_scripts
from hooks_app.producer.spool import spool_status
from tests.conformance.bridge import REPOSITORY
from tests.conformance.https import assert_error
from tests.conformance.samples import new_session, prompt
from tests.faults.hosts import Cable, Host, bridge_on, hosts
from tests.faults.load import under_load
from tests.faults.troubles import two_bridges
from tests.hooks.conftest import run_hook
from tests.servers import stop_process, wait_until

pytestmark = pytest.mark.slow

IMPATIENT = 2  # seconds that a client waits for an answer
ANSWERS_WITHIN = 30.0  # seconds for /health: what it gives its checks is 2
DOWN = 3.0  # seconds without a network: longer than clients of this test wait for an answer
# seconds: /info promises producers 30; it takes 5 until TCP gives up, and a queue behind that
TOLD_WITHIN = 25.0
GOES_ON_WITHIN = 60.0  # seconds, also when the host that is gone held the head of the log


class Land:
    """A bridge on one host; clients and an agent on another, by two cables; clients use Wi-Fi."""

    def __init__(self, server: Host, clients: Host, directory: Path) -> None:
        self.server, self.clients = server, clients
        self.wifi, self.mobile = Cable(server, clients), Cable(server, clients)
        settings = {"BRIDGE_HOST": "0.0.0.0", "BRIDGE_MAX_WEBSOCKETS": "20"}
        self.bridge = bridge_on(server, directory, **settings)
        self.bridge.dial = self.over(self.wifi)

    def over(self, cable: Cable) -> Callable[[float], socket.socket]:
        def dial(timeout: float) -> socket.socket:
            """Connect in little time; what is asked then may take more."""
            wait, port = min(timeout, IMPATIENT), self.bridge.port
            made = self.clients.dial(cable.here, port, wait, source=cable.there)
            made.settimeout(timeout)
            return made

        return dial


class Agent:
    """A coding agent on the clients' host, with a spool and a forwarder there (D47)."""

    def __init__(self, land: Land, directory: Path) -> None:
        self.session_id, self.fired, self.spool = new_session(), 0, directory / "spool"
        self.spool.mkdir(mode=0o700)
        write_hook_scripts(self.spool)
        producer, token = directory / "producer.py", directory / "token"
        make_one_file(producer)
        token.write_text(land.bridge.hook_token)
        there = ["--url", f"https://{land.wifi.here}:{land.bridge.port}"]
        there += ["--token-file", str(token), "--pin", land.bridge.pairing().pin]
        command = [sys.executable, str(producer), "--spool", str(self.spool), *there]
        self.forwarder = subprocess.Popen(
            [*land.clients.enter, *command], cwd=REPOSITORY, stdin=subprocess.DEVNULL
        )

    def fire(self, count: int = 1) -> None:
        """The hook of a prompt, as the agent runs it."""
        about = {"hook_event_name": "UserPromptSubmit", "session_id": self.session_id}
        for _ in range(count):
            raw = about | {"prompt": f"prompt {self.fired}", "number": self.fired}
            run_hook(self.spool, json.dumps(raw).encode())
            self.fired += 1

    def waiting(self) -> int:
        return int(spool_status(self.spool)["waiting"])


@pytest.fixture(scope="module")
def land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    with hosts(2) as (server, clients):
        made = Land(server, clients, tmp_path_factory.mktemp("land"))
        with made.bridge:
            yield made


@pytest.fixture
def agent(land: Land, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(land, tmp_path)
    yield agent
    stop_process(agent.forwarder)


def test_the_network_is_cut_under_load(land: Land, agent: Agent) -> None:
    """D26, D27, D31, D47: also what was accepted and its answer lost is there once. D23: a phone
    that changes networks takes the place of its half-open connection.
    """
    pairing = land.bridge.pairing()
    phone, moved = land.bridge.phone(pairing), land.bridge.phone(pairing)
    moved.dial = land.over(land.mobile)
    agent.fire()
    wait_until(lambda: land.bridge.knows(agent.session_id), "the first hook is through")
    phone.ready()
    with under_load([land.bridge], timeout=IMPATIENT, patience=IMPATIENT) as load:
        agent.fire(5)
        phone.ping()
        land.wifi.cut(land.server)
        cut = time.monotonic()
        agent.fire(10)

        def noticed() -> bool:
            over = time.monotonic() - cut >= DOWN
            return over and all(poster.unanswered for poster in load.posters)

        wait_until(noticed, "each poster is without an answer")
        moved.ready().close()
        assert agent.waiting() >= 10, "nothing can have got through"
        land.wifi.mend()
        load.more(10)
        agent.fire(5)
        load.finish()
        assert not load.refusals()
        assert len(load.watchers[0].views) > 1, "the phone has noticed nothing"
    assert phone.wait_closed() in (4409, 1006)
    # its patience between two attempts is at most 30 seconds
    wait_until(lambda: agent.waiting() == 0, "the forwarder has sent everything")
    land.bridge.accept(prompt(agent.session_id, "after"))
    phone.ready()
    phone.wait_numbers(agent.session_id, [*range(1, agent.fired), "after"])
    phone.close()


def test_one_of_two_bridges_loses_the_stores(tmp_path: Path) -> None:
    """D46: the one that is cut off says 503, in time; the other one goes on."""
    with (
        two_bridges(tmp_path) as world,
        under_load(world.bridges, posters=8, watchers=2, timeout=TOLD_WITHIN, pace=0) as load,
    ):
        fine, lost = load.posters[0::2], load.posters[1::2]
        load.more(10)
        for cable in world.to_stores[1]:
            cable.cut(cable.second)
        cut = time.monotonic()
        load.more(1, GOES_ON_WITHIN, fine)
        wait_until(lambda: all(poster.refusals for poster in lost), "told", within=TOLD_WITHIN)
        asked = time.monotonic()
        answer = world.bridges[1].get("/api/v1/health", world.bridges[1].hook_token)
        assert answer.status == 503 and time.monotonic() - asked < ANSWERS_WITHIN, answer
        words = answer.json()["checks"]
        assert words["hook_endpoint"] == words["websocket_server"] == "unhealthy", words
        load.more(10, posters=fine)
        mended = time.monotonic()
        for cable in world.to_stores[1]:
            cable.mend()
        load.more(10)
        acknowledged = load.acknowledged(cut, mended)
        prefixes = tuple(f"{poster.prefix}-" for poster in lost)
        assert not [name for name in acknowledged if name.startswith(prefixes)], (
            "without a database"
        )
        assert not [poster.refusals for poster in fine if poster.refusals]
        assert max(poster.slowest for poster in fine) < GOES_ON_WITHIN
        for refusal in load.refusals():
            assert_error(refusal.answer, 503, "STORAGE_UNAVAILABLE")
            assert refusal.seconds < TOLD_WITHIN
        load.finish()


@pytest.mark.spec("mode.direct_public")
def test_by_default_a_public_address_is_dropped(tmp_path: Path) -> None:
    """D44, D45: before TLS; what comes by a private network is served."""
    with hosts(2) as (server, clients):
        near, public = Cable(server, clients), Cable(server, clients, "203.0.113")
        with bridge_on(server, tmp_path, BRIDGE_HOST="auto") as bridge:
            for cable in (near, public):
                bridge.dial = partial(clients.dial, cable.here, bridge.port)
                if cable is near:
                    assert bridge.get("/pair").status == 200
                else:
                    with pytest.raises(ConnectionResetError):
                        bridge.https().stream()
