"""Two processes on PostgreSQL and Redis, each of the four killed, stopped and cut off in random
order under the mix and under approvals (D26, D31, D38, D46): nothing is lost, doubled or out of
order, and an agent runs what was approved, once, and nothing else.

SOAK_TROUBLE says for how many seconds, TROUBLE_SEED in which order; `make soak` asks for it.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.conformance.agent_tools import Script, figure
from tests.conformance.agents import begin, end, say
from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.samples import new_session
from tests.faults.hosts import Cable, Host, Relay, hosts, live_on
from tests.faults.load import GOES_WRONG, under_load
from tests.servers import Postgres, Redis, wait_until

SECONDS = float(os.environ.get("SOAK_TROUBLE", "0"))
pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="takes minutes: make soak"),
    pytest.mark.timeout(600 + 3 * SECONDS),
]
ROUND = 60.0  # seconds of troubles, after which everything must have arrived
PATIENCE = 90.0  # seconds until it has, on a machine that does other things too
LASTS, PAUSE = (0.2, 8.0), (0.2, 3.0)  # seconds of a trouble, and between two
Begin = Callable[[], Callable[[], object]]  # returns what ends it


@dataclass(frozen=True)
class Trouble:
    whose: str
    what: str
    begin: Begin


@dataclass
class World:
    bridges: list[Bridge]
    postgres: Postgres
    redis: Redis
    troubles: list[Trouble] = field(default_factory=list)


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    first = psutil.Process(process.pid)
    return [first, *first.children(recursive=True)]


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        # a connection's process of PostgreSQL may just have ended
        with suppress(psutil.NoSuchProcess):
            one.send_signal(number)


def stopped(process: Callable[[], Any]) -> Begin:
    def begin_it() -> Callable[[], object]:
        found = family(process())
        send(found, signal.SIGSTOP)
        return lambda: send(found, signal.SIGCONT)

    return begin_it


def killed(server: Postgres | Redis) -> Begin:
    def begin_it() -> Callable[[], object]:
        assert server.process is not None
        found = family(server.process)
        send(found, signal.SIGKILL)
        server.process.wait(180)
        psutil.wait_procs(found, 20)
        return server.start

    return begin_it


def killed_bridge(bridge: Bridge) -> Begin:
    def begin_it() -> Callable[[], object]:
        bridge.kill()
        return bridge.spawn

    return begin_it


def cut(*ends: tuple[Cable, Host]) -> Begin:
    def begin_it() -> Callable[[], object]:
        for cable, host in ends:
            cable.cut(host)
        return mend

    def mend() -> None:
        for cable, _ in ends:
            cable.mend()

    return begin_it


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path, "plain")


@pytest.fixture
def world(tmp_path: Path, script: Script) -> Iterator[World]:
    """Two bridges, PostgreSQL and Redis on hosts of their own, clients on a fifth."""
    with hosts(5) as (first, second, database, cache, clients), ExitStack() as ending:
        places = [Path(ending.enter_context(TemporaryDirectory(prefix="br-"))) for _ in range(2)]
        postgres, redis = Postgres(places[0]), Redis(places[1])
        for server in (postgres, redis):
            ending.callback(server.stop)
            server.start()
        relays = ((database, 5432, postgres.port), (cache, 6379, redis.port))
        for host, port, real in relays:
            ending.callback(Relay(host, port, ("127.0.0.1", real)).close)
        name, secret = urlsplit(postgres.create_database()).path, secrets.token_urlsafe(32)
        made = World([], postgres, redis)
        to_stores: list[tuple[Cable, Cable]] = []
        for number, host in enumerate((first, second)):
            data, quick = Cable(host, database), Cable(host, cache)
            to_stores.append((data, quick))
            bridge = Bridge(
                tmp_path / f"bridge {number}",
                BRIDGE_HOST="0.0.0.0",
                BRIDGE_HOOK_TOKEN=f"hook-{secret}",
                BRIDGE_ADMIN_TOKEN=f"admin-{secret}",
                BRIDGE_ALLOWED_ROOTS=str(tmp_path),
                BRIDGE_ACP_AGENTS=script.setting,
                BRIDGE_MAX_SESSIONS="500",
                BRIDGE_SESSION_GRACE_SECONDS="10",
                BRIDGE_MAX_WEBSOCKETS="20",
                database_url=f"postgresql://postgres@{data.there}:5432{name}",
                redis_url=f"redis://{quick.there}:6379/0",
            )
            live_on(bridge, host)
            outside = Cable(host, clients)
            bridge.dial = lambda timeout, address=outside.here, port=bridge.port: clients.dial(
                address, port, timeout
            )
            made.bridges.append(bridge.spawn())
            bridge.wait_ready(120)
            ending.callback(Bridge.kill, bridge)
            ending.callback(bridge.hang_up)
            made.troubles += [
                Trouble(f"bridge {number}", "killed", killed_bridge(bridge)),
                Trouble(f"bridge {number}", "stopped", stopped(lambda b=bridge: b.process)),  # type: ignore[misc]
                Trouble(f"bridge {number}", "cut off from clients", cut((outside, clients))),
                Trouble(f"bridge {number}", "cut off from PostgreSQL", cut((data, host))),
                Trouble(f"bridge {number}", "cut off from Redis", cut((quick, cache))),
            ]
        for server, called, at in ((postgres, "PostgreSQL", 0), (redis, "Redis", 1)):
            host = (database, cache)[at]
            made.troubles += [
                Trouble(called, "killed", killed(server)),
                Trouble(called, "stopped", stopped(lambda s=server: s.process)),  # type: ignore[misc]
                Trouble(called, "cut off", cut(*[(cables[at], host) for cables in to_stores])),
            ]
        yield made


class Decider(threading.Thread):
    """A person with two phones: has an agent ask for commands, approves some and rejects others,
    each maybe twice, as the troubles let him.
    """

    def __init__(self, world: World, script: Script, done: Path, seed: str) -> None:
        super().__init__(daemon=True)
        self.world, self.done, self.rng = world, done, random.Random(f"{seed} decider")
        self.pairings: list[Pairing] = [world.bridges[0].pairing() for _ in range(2)]
        self.approved: set[str] = set()  # commands whose approval was sent, maybe in vain
        self.rejected: set[str] = set()
        self.asked, self.ending = 0, threading.Event()

    def run(self) -> None:
        while not self.ending.wait(0.1):
            try:
                self._one()
            except (*GOES_WRONG, AssertionError):
                continue  # what became of it is in the file that its command writes

    def _one(self) -> None:
        phones = []
        for pairing in self.pairings:
            phone = self.rng.choice(self.world.bridges).phone(pairing)
            phone.pin = None  # each process has its own certificate
            phones.append(phone)
        try:
            first, second = [phone.ready() for phone in phones]
            bridge = self.world.bridges[0]
            sid = begin(bridge, first, agent="plain")
            second.join(sid)
            for _ in range(self.rng.randint(1, 4)):
                self.asked += 1
                mark = f"command-{self.asked}"
                say(first, sid, f"/run echo {mark} >> '{self.done}'")
                call = first.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
                yes = self.rng.random() < 0.6
                (self.approved if yes else self.rejected).add(mark)
                body = {"session_id": sid, "tool_call_id": call}
                for phone in self.rng.choice(([first], [second], [first, second], [first, first])):
                    word = "approved" if yes else "rejected"
                    phone.send("approval_response", body | {"decision": word})
                first.expect("stream_end", session_id=sid, finish_reason="stop")
            end(first, sid)
        finally:
            for phone in phones:
                phone.vanish()


@contextmanager
def deciding(decider: Decider) -> Iterator[None]:
    decider.start()
    try:
        yield
    finally:
        decider.ending.set()
        decider.join(PATIENCE)


def trouble(world: World, rng: random.Random, seen: Counter[str]) -> None:
    """One or two troubles at a time, for a round."""
    until = time.monotonic() + min(ROUND, SECONDS)
    while time.monotonic() < until:
        chosen = {one.whose: one for one in rng.sample(world.troubles, rng.choice((1, 1, 2)))}
        endings = []
        for one in chosen.values():
            seen[f"{one.whose} {one.what}"] += 1
            endings.append(one.begin())
        time.sleep(rng.uniform(*LASTS))
        for ending in endings:
            ending()
        time.sleep(rng.uniform(*PAUSE))


def test_troubles(world: World, script: Script, tmp_path: Path) -> None:
    seed = os.environ.get("TROUBLE_SEED") or secrets.token_hex(4)
    sys.stdout.write(f"\nTROUBLE_SEED={seed}\n")
    rng, seen, done = random.Random(seed), Counter[str](), tmp_path / "done"
    done.touch()
    events = 0
    decider = Decider(world, script, done, seed)
    began = time.monotonic()
    with deciding(decider):
        while time.monotonic() - began < SECONDS:
            with under_load(world.bridges, new_session(), watchers=2, timeout=20) as load:
                trouble(world, rng, seen)
                for bridge in world.bridges:
                    serve_again(bridge)
                load.more(3, PATIENCE)
                others = [one.answer for one in load.refusals() if one.answer.status != 503]
                assert not others, others
                events += len(load.finish(PATIENCE))
            check_commands(decider, done)
            figure(
                f"{time.monotonic() - began:.0f} s: {events} events; of {decider.asked} commands"
                f" {len(decider.approved)} approved, {len(decider.rejected)} rejected,"
                f" {len(done.read_text().split())} ran; {dict(seen)}"
            )
    for bridge in world.bridges:
        bridge.hang_up()
        bridge.terminate()
        bridge.ended(PATIENCE)
    script.assert_gone(PATIENCE)
    check_commands(decider, done)


def serve_again(bridge: Bridge) -> None:
    """As a service manager does with one that began while it had no database, and said so."""
    assert bridge.process is not None

    def settled() -> bool:
        assert bridge.process is not None
        try:
            bridge.get("/api/v1/health", bridge.hook_token)
        except GOES_WRONG:
            return bridge.process.poll() is not None
        return True

    wait_until(settled, PATIENCE, "it serves, or has ended")
    if bridge.process.poll() is None:
        return
    assert "DATABASE_URL: the database cannot be used" in bridge.tail(), bridge.tail()
    bridge.start()


def check_commands(decider: Decider, done: Path) -> None:
    ran = Counter(done.read_text().split())
    assert not [mark for mark, times in ran.items() if times > 1], f"executed twice: {ran}"
    assert not set(ran) - decider.approved, f"executed unasked: {set(ran) - decider.approved}"
