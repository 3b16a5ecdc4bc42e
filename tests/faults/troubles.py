"""Two bridges, PostgreSQL and Redis on hosts of their own, and what can befall each of the four."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.conformance.bridge import Bridge
from tests.faults.hosts import Cable, Host, bridge_on, hosts
from tests.faults.load import GOES_WRONG
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, Redis, running, wait_until
from tests.web.link import Link

PATIENCE = 180.0  # seconds until all is well again, on a machine that does other things too
LASTS, PAUSE = (0.2, 8.0), (0.2, 3.0)  # seconds of a trouble, and between two
SETTLES = 0.7  # the share of troubles after which all is well again before the next


@dataclass
class World:
    bridges: list[Bridge]
    # whose, what befalls it, and how
    troubles: list[tuple[str, str, Callable[[], AbstractContextManager[None]]]]
    seen: Counter[str] = field(default_factory=Counter)  # how often which trouble was
    took: list[float] = field(default_factory=list)  # seconds until all was well again
    # of each bridge, whose end is the first: to PostgreSQL, to Redis
    to_stores: list[tuple[Cable, Cable]] = field(default_factory=list)

    def trouble(self, rng: random.Random, seconds: float, after_each: Callable[[], object]) -> None:
        """One or two troubles at a time, for so long; mostly the next waits until all is well."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            chosen = {one[0]: one for one in rng.sample(self.troubles, rng.choice((1, 1, 2)))}
            with ExitStack() as ending:
                for whose, what, befall in chosen.values():
                    self.seen[f"{whose} {what}"] += 1
                    ending.enter_context(befall())
                time.sleep(rng.uniform(*LASTS))
            if rng.random() < SETTLES:
                self.recover()
            time.sleep(rng.uniform(*PAUSE))
            after_each()

    def recover(self) -> None:
        """All is well again, by itself and in time."""
        began = time.monotonic()
        for bridge in self.bridges:
            serve_again(bridge)
            wait_until(lambda bridge=bridge: well(bridge), bridge.tail())
        self.took.append(round(time.monotonic() - began, 1))


def family(server: Any) -> list[psutil.Process]:
    """Its processes; none of a bridge that began while it had no database, and has ended."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(server.process.pid)
        return [first, *first.children(recursive=True)]
    return []


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        # a connection's process of PostgreSQL may just have ended
        with suppress(psutil.NoSuchProcess):
            one.send_signal(number)


@contextmanager
def stopped(server: Any) -> Iterator[None]:
    found = family(server)
    send(found, signal.SIGSTOP)
    yield
    send(found, signal.SIGCONT)


@contextmanager
def killed(server: Any, start: Callable[[], object]) -> Iterator[None]:
    found = family(server) if isinstance(server, Postgres) else family(server)[:1]
    send(found, signal.SIGKILL)
    server.process.wait(20)
    psutil.wait_procs(found, 20)
    yield
    start()


@contextmanager
def cut(host: Host, *cables: Cable) -> Iterator[None]:
    for cable in cables:
        cable.cut(host)
    yield
    for cable in cables:
        cable.mend()


@contextmanager
def two_bridges(tmp_path: Path, **settings: str) -> Iterator[World]:
    """Two bridges and their stores on hosts of their own, clients on a fifth (see `hosts`)."""
    with hosts(5) as (first, second, database, cache, clients), ExitStack() as ending:
        postgres = ending.enter_context(running(Postgres))
        redis = ending.enter_context(running(Redis))
        for host, port, store in ((database, 5432, postgres), (cache, 6379, redis)):
            ending.callback(Link(store.port, host.listen(port)).close)
        name = urlsplit(postgres.create_database()).path
        made, shared = World([], []), dict[str, str]()
        for number, host in enumerate((first, second)):
            whose = f"bridge {number}"
            data, quick, outside = (Cable(host, other) for other in (database, cache, clients))
            made.to_stores.append((data, quick))
            bridge = bridge_on(
                host,
                tmp_path / whose,
                BRIDGE_HOST="0.0.0.0",
                BRIDGE_ALLOWED_ROOTS=str(tmp_path),
                BRIDGE_MAX_SESSIONS="500",
                BRIDGE_SESSION_GRACE_SECONDS="10",
                BRIDGE_MAX_WEBSOCKETS="60",
                database_url=f"postgresql://postgres@{data.there}:5432{name}",
                redis_url=f"redis://{quick.there}:6379/0",
                **settings | shared,
            )
            tokens = ("BRIDGE_HOOK_TOKEN", "BRIDGE_ADMIN_TOKEN")
            shared = {token: bridge.settings[token] for token in tokens}
            bridge.dial = lambda timeout, address=outside.here, port=bridge.port: clients.dial(
                address, port, timeout
            )
            made.bridges.append(bridge.spawn())
            ending.callback(QuickBridge.kill, bridge)
            ending.callback(bridge.hang_up)
            bridge.wait_ready()
            made.troubles += [
                (whose, "killed", partial(killed, bridge, bridge.spawn)),
                (whose, "stopped", partial(stopped, bridge)),
                (whose, "cut off from clients", partial(cut, clients, outside)),
                (whose, "cut off from PostgreSQL", partial(cut, host, data)),
                (whose, "cut off from Redis", partial(cut, cache, quick)),
            ]
        to_database, to_cache = zip(*made.to_stores, strict=True)
        stores: list[tuple[str, Any, Host, Any]] = [
            ("PostgreSQL", postgres, database, to_database),
            ("Redis", redis, cache, to_cache),
        ]
        for whose, store, host, cables in stores:
            made.troubles += [
                (whose, "killed", partial(killed, store, store.start)),
                (whose, "stopped", partial(stopped, store)),
                (whose, "cut off", partial(cut, host, *cables)),
            ]
        yield made


def well(bridge: Bridge) -> bool:
    """It reaches its database and its Redis."""
    try:
        body = bridge.health()
    except GOES_WRONG:
        return False
    checks = body.get("checks", {})
    reached = ("websocket_server", "hook_endpoint")
    return "status" in body and all(checks.get(one) != "unhealthy" for one in reached)


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
