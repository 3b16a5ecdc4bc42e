"""Servers and devices for the conformance tests, shared where a test needs no settings."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agents import begin, end
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Reader, Repository, Work
from tests.conformance.samples import hook, new_session
from tests.conformance.terminal import Terminal, until
from tests.faults.quick import QuickBridge, bridge_of_module
from tests.servers import Postgres, free_port

ALLOWED_ORIGIN = "https://app.example"
COMMAND = {"type": "command", "command": "true", "timeout": 10}
HOOKS_CONFIG = {"PreToolUse": [{"matcher": "Bash", "hooks": [COMMAND]}]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        metafunc.parametrize("database", ["sqlite", "postgresql"], scope="session")


@pytest.fixture(scope="session")
def make_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Bridge]]:
    """Start a bridge with settings of its own; the end of the run stops it, or the test."""
    with ExitStack() as ending:

        def make(
            name: str, *, start: bool = True, kind: type[QuickBridge] = QuickBridge, **settings: Any
        ) -> Bridge:
            bridge = ending.push(kind(tmp_path_factory.mktemp(name), **settings))
            if start:
                bridge.start()
                bridge.pin = bridge.pairing().pin
            return bridge

        yield make


@pytest.fixture(scope="session")
def shared(make_bridge: Callable[..., Bridge], tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    """The bridge that most tests share: SQLite, no rate limits, room for 100 sockets."""
    config = tmp_path_factory.mktemp("config") / "hooks.json"
    config.write_text(json.dumps(HOOKS_CONFIG))
    return make_bridge(
        "shared",
        BRIDGE_MAX_WEBSOCKETS="100",
        BRIDGE_ALLOWED_ORIGINS=ALLOWED_ORIGIN,
        BRIDGE_HOOKS_CONFIG=str(config),
    )


@pytest.fixture(scope="session")
def database_url(database: str, request: pytest.FixtureRequest) -> str | None:
    """DATABASE_URL of a fresh database; None is SQLite in the data directory."""
    if database == "sqlite":
        return None
    postgres: Postgres = request.getfixturevalue("postgres_server")
    return postgres.create_database()


@pytest.fixture(scope="session")
def shared_postgresql(make_bridge: Callable[..., Bridge], postgres_server: Postgres) -> Bridge:
    url = postgres_server.create_database()
    return make_bridge("postgresql", database_url=url, BRIDGE_MAX_WEBSOCKETS="100")


@pytest.fixture
def bridge(request: pytest.FixtureRequest) -> Bridge:
    """The shared bridge; in tests that ask for `database`, the one on that database."""
    both = "database" in request.fixturenames
    on_postgresql = both and request.getfixturevalue("database") == "postgresql"
    found: Bridge = request.getfixturevalue("shared_postgresql" if on_postgresql else "shared")
    return found


@pytest.fixture
def sid() -> str:
    return new_session()


@pytest.fixture
def joined(bridge: Bridge, sid: str, phone: Phone) -> Iterator[Phone]:
    """A ready phone at the session's present; the session ends with the test."""
    bridge.watch(phone, sid)
    yield phone
    bridge.accept(hook("SessionEnd", sid))


@pytest.fixture
def session(shared: Bridge, phone: Phone) -> Iterator[str]:
    """A session of the demo agent that the phone has joined, ended with the test."""
    made = begin(shared, phone)
    yield made
    if shared.session(made)["status"] != "closed":
        with shared.phones(1) as (other,):
            other.join(made)
            end(other, made)


@pytest.fixture
def repository(bridge: Bridge) -> Repository:
    """A fresh repository below the bridge's allowed root, with a space in its path."""
    return Repository(bridge.root / f"repository {new_session()[8:20]}")


@pytest.fixture
def work(bridge: Bridge, phone: Phone, repository: Repository) -> Work:
    return Work(bridge, phone, repository.path)


@pytest.fixture
def home(bridge: Bridge) -> Iterator[Path]:
    """The home of the bridge's user, where a file's own bridge has set one."""
    home = bridge.directory / "home"
    home.mkdir()
    yield home
    shutil.rmtree(home)


@pytest.fixture
def reader(bridge: Bridge, phone: Phone) -> Reader:
    """A joined session that works in a directory of this test alone."""
    return Reader(bridge, phone)


@pytest.fixture
def device(bridge: Bridge) -> Iterator[Phone]:
    """A fresh device's phone, not connected."""
    phone = bridge.phone()
    yield phone
    phone.close()


mortal = bridge_of_module()  # which may be killed


@pytest.fixture(scope="session")
def public(make_bridge: Callable[..., Bridge]) -> Bridge:
    """Behind a public name and a proxy on 127.0.0.1, CORS open, clients from 1.2.0 to 1.10.0."""
    return make_bridge(
        "public",
        BRIDGE_PUBLIC_URL="https://bridge.example.com",
        BRIDGE_CORS_ALLOW_ALL="1",
        BRIDGE_PLAIN_PORT=str(free_port()),
        BRIDGE_TRUSTED_PROXIES="127.0.0.1",
        BRIDGE_MIN_CLIENT_VERSION="1.2.0",
        BRIDGE_MAX_CLIENT_VERSION="1.10.0",
    )


@pytest.fixture(scope="session")
def misconfigured(make_bridge: Callable[..., Bridge]) -> Bridge:
    """A public URL that is not https, with which no device can be paired."""
    url = "http://bridge.example.com"
    return make_bridge("misconfigured", start=False, BRIDGE_PUBLIC_URL=url).start()


@pytest.fixture(scope="session")
def narrow(make_bridge: Callable[..., Bridge], tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    """Three sockets, the strict protocol, two allowed roots, and a third that is its own data."""
    settings = {"BRIDGE_MAX_WEBSOCKETS": "3", "BRIDGE_STRICT_PROTOCOL": "1"}
    bridge = make_bridge("narrow", start=False, **settings)
    second = tmp_path_factory.mktemp("second root")
    bridge.settings["BRIDGE_ALLOWED_ROOTS"] = f"{bridge.root}:{second}:{bridge.data}"
    return bridge.start()


@pytest.fixture(scope="session")
def two_roots(narrow: Bridge) -> tuple[Bridge, Path]:
    return narrow, Path(narrow.settings["BRIDGE_ALLOWED_ROOTS"].split(":")[1])


@pytest.fixture(scope="session")
def rated(make_bridge: Callable[..., Bridge]) -> Bridge:
    return make_bridge("rated", BRIDGE_RATE_LIMITS="on", BRIDGE_MAX_WEBSOCKETS="50")


@pytest.fixture
def open_terminal(bridge: Bridge, sid: str, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Open a terminal in which an agent works on the session, or on another one."""
    with ExitStack() as ending:

        def open_(session_id: str = sid, inside: Sequence[str] = ()) -> Terminal:
            home = tmp_path / "home"
            made = Terminal(bridge.data, session_id, str(bridge.root), home, inside)
            ending.callback(made.kill)
            return made

        yield open_


@pytest.fixture
def agent(open_terminal: Callable[..., Terminal], phone: Phone, sid: str) -> Terminal:
    """An agent at work in a terminal, watched by a phone that has joined its session."""
    made = open_terminal()
    made.hook("SessionStart", source="startup")
    made.hook("UserPromptSubmit", prompt="Deploy it")
    phone.expect("session_started", session_id=sid)
    phone.join(sid)
    until(phone, sid, turn="working")
    return made
