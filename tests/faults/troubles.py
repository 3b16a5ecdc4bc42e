"""Two bridges, PostgreSQL and Redis on hosts of their own, and what can befall each of the four."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.conformance.bridge import Bridge
from tests.faults.hosts import Cable, Host, Relay, hosts, live_on
from tests.faults.load import GOES_WRONG, within
from tests.servers import Postgres, Redis, wait_until

PATIENCE = 180.0  # seconds until all is well again, on a machine that does other things too
LASTS, PAUSE = (0.2, 8.0), (0.2, 3.0)  # seconds of a trouble, and between two
SETTLES = 0.7  # the share of troubles after which all is well again before the next
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
    seen: Counter[str] = field(default_factory=Counter)  # how often which trouble was
    # seconds until all was well again, after which
    took: list[tuple[float, list[str]]] = field(default_factory=list)

    def trouble(self, rng: random.Random, seconds: float, after_each: Callable[[], None]) -> None:
        """One or two troubles at a time, for so long; mostly the next one waits until all is well."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            chosen = {one.whose: one for one in rng.sample(self.troubles, rng.choice((1, 1, 2)))}
            endings = []
            for one in chosen.values():
                self.seen[f"{one.whose} {one.what}"] += 1
                endings.append(one.begin())
            time.sleep(rng.uniform(*LASTS))
            for ending in endings:
                ending()
            pause = rng.uniform(*PAUSE)
            if rng.random() < SETTLES:
                self.recover(f"{one.whose} {one.what}" for one in chosen.values())
            time.sleep(pause)
            after_each()

    def recover(self, after: Iterable[str]) -> None:
        """All is well again, by itself and in time."""
        began = time.monotonic()
        for bridge in self.bridges:
            serve_again(bridge)
            within(PATIENCE, lambda bridge=bridge: well(bridge), f"well: {bridge.tail()}")  # type: ignore[misc]
        self.took.append((round(time.monotonic() - began, 1), list(after)))


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
        server.process.wait(20)
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


@contextmanager
def two_bridges(tmp_path: Path, **settings: str) -> Iterator[World]:
    """Two bridges with these settings, PostgreSQL and Redis on hosts of their own, clients on a
    fifth.
    """
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
                BRIDGE_MAX_SESSIONS="500",
                BRIDGE_SESSION_GRACE_SECONDS="10",
                BRIDGE_MAX_WEBSOCKETS="60",
                database_url=f"postgresql://postgres@{data.there}:5432{name}",
                redis_url=f"redis://{quick.there}:6379/0",
                **settings,
            )
            live_on(bridge, host)
            outside = Cable(host, clients)
            bridge.dial = lambda timeout, address=outside.here, port=bridge.port: clients.dial(
                address, port, timeout
            )
            made.bridges.append(bridge.spawn())
            bridge.wait_ready()
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


def well(bridge: Bridge) -> bool:
    """It reaches its database and its Redis."""
    try:
        body = bridge.get("/api/v1/health", bridge.hook_token).json()
    except GOES_WRONG:
        return False
    checks = body.get("checks", {})
    return "status" in body and not {"websocket_server", "hook_endpoint"} & {
        name for name, word in checks.items() if word != "healthy"
    }


def serve_again(bridge: Bridge) -> None:
    """As a service manager does with one that began while it had no database, and said so."""

    def serves() -> bool:
        process = bridge.process
        assert process is not None
        if process.poll() is not None:
            said = bridge.tail().rstrip().rpartition("\n")[2]
            assert "he database cannot be used" in said, bridge.tail()
            assert process.returncode == 1, "it asked not to be started again"
            bridge.spawn()
            return False
        try:
            bridge.get("/api/v1/health", bridge.hook_token)
        except GOES_WRONG:
            return False
        return True

    wait_until(serves, f"it serves: {bridge.tail()}")
