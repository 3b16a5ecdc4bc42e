"""What tests of agents see from outside: the scripted agent's journal and processes."""

import json
import shlex
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conformance.agents import begin, end, say
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.phone import Message, Phone
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, Redis, wait_until

CHAT = {"content": "hi", "role": "user"}  # a message, but for its session
USER_MESSAGE = {"type": "user_message", "content": "hi"}  # the same over HTTP
PROGRAM = REPOSITORY / "tests" / "agents" / "scripted_agent.py"


class Script:
    """The scripted agent in several modes, each an agent for the bridge, and their journal."""

    def __init__(self, directory: Path, *modes: str) -> None:
        # named in every command line, so processes are found by it
        self.journal = directory / f"journal-{uuid.uuid4().hex}"
        self.go = Path(f"{self.journal}-go")  # what the mode `told` waits for
        run, journal = shlex.join([sys.executable, "-IS", str(PROGRAM)]), str(self.journal)
        self.setting = ";".join(f"{mode}={run} {mode} {shlex.quote(journal)}" for mode in modes)

    def lines(self, what: str) -> list[dict[str, Any]]:
        """What the agents were told, of that kind, in order."""
        text = self.journal.read_text() if self.journal.exists() else ""
        return [line for line in map(json.loads, text.splitlines()) if line["what"] == what]

    def prompts(self) -> list[str]:
        return [line["text"] for line in self.lines("prompt")]

    def processes(self) -> dict[int, str]:
        """pid → command line of all that lives of these agents, and of what they started."""
        every = psutil.process_iter(["cmdline"])
        lines = {one.pid: " ".join(one.info["cmdline"] or ()) for one in every}
        return {pid: line for pid, line in lines.items() if str(self.journal) in line}

    def assert_gone(self) -> None:
        wait_until(lambda: not self.processes())


@contextmanager
def quick_bridge(
    directory: Path, *scripts: Script, first: str = "", **settings: Any
) -> Iterator[QuickBridge]:
    """A bridge with the scripts' agents, of which nothing is left when it has been stopped.

    ``first``: what its processes execute before all else.
    """
    agents = {"BRIDGE_ACP_AGENTS": ";".join(script.setting for script in scripts)}
    with QuickBridge(directory, first=first, **agents | settings) as bridge:
        bridge.pin = bridge.pairing().pin
        yield bridge
    for script in scripts:
        script.assert_gone()


def script_of(*modes: str) -> object:
    """A fixture of a module, `script`: the scripted agent in these modes."""

    @pytest.fixture(scope="module")
    def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
        return Script(tmp_path_factory.mktemp("script"), *modes)

    return script


def bridge_of(**settings: Any) -> object:
    """A fixture of a module: a bridge with the agents of fixture `script`; see `quick_bridge`."""

    @pytest.fixture(scope="module")
    def bridge(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[QuickBridge]:
        with quick_bridge(tmp_path_factory.mktemp("bridge"), script, **settings) as bridge:
            yield bridge

    return bridge


def bridges_of(count: int, *scripts: str, first: str = "", **settings: str) -> object:
    """A fixture of a module: so many processes of one bridge, with the root of the first one, each
    in its directory; `scripts` names fixtures, `first` is as for `quick_bridge`.
    """

    @pytest.fixture(scope="module")
    def bridges(
        request: pytest.FixtureRequest,
        tmp_path_factory: pytest.TempPathFactory,
        postgres_server: Postgres,
        redis_server: Redis,
    ) -> Iterator[list[QuickBridge]]:
        agents = [request.getfixturevalue(name) for name in scripts]
        more = settings | {"BRIDGE_ACP_AGENTS": ";".join(script.setting for script in agents)}
        stores = {
            "database_url": postgres_server.create_database(),
            "redis_url": redis_server.create_database(),
        }
        made = [QuickBridge(tmp_path_factory.mktemp("one-of-several"), **stores, **more)]
        more["BRIDGE_ALLOWED_ROOTS"] = str(made[0].root)
        for _ in range(1, count):
            made.append(made[0].beside(tmp_path_factory.mktemp("one-of-several"), **more))
        for bridge in made:
            bridge.first, bridge.root = first, made[0].root
        with ExitStack() as ending:
            for bridge in made:
                ending.enter_context(bridge)
            yield made
        for script in agents:
            script.assert_gone()

    return bridges


def session_of(agent: str) -> object:
    """A fixture, `session`: one of this agent on the module's bridge, which the phone ends."""

    @pytest.fixture
    def session(bridge: Bridge, phone: Phone) -> Iterator[str]:
        session_id = begin(bridge, phone, agent=agent)
        yield session_id
        end(phone, session_id)

    return session


def figure(text: str) -> None:
    """What was measured, for whoever reads along (`-s`, or the output of a test that failed)."""
    sys.stdout.write(f"\n{text}\n")


def status(bridge: Bridge, session_id: str) -> str:
    return str(bridge.session(session_id)["status"])


def wait_status(bridge: Bridge, session_id: str, wanted: str) -> None:
    wait_until(lambda: status(bridge, session_id) == wanted)


def stream(messages: list[Message], session_id: str) -> list[Message]:
    return [
        message
        for message in messages
        if message["type"].startswith("stream_") and message["payload"]["session_id"] == session_id
    ]


def later(code: str) -> str:
    """A prompt whose turn ends at once; the agent does as the Python says when there is a `go`."""
    wait = "    while not os.path.exists('go'): time.sleep(0.01)\n"
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return f"/do def late():\n{wait}{body}threading.Thread(target=late, daemon=True).start()"


def begun(bridge: Bridge, phone: Phone, prompt: str) -> str:
    """A session that is in the middle of a turn: something has been said."""
    session_id = begin(bridge, phone, agent="plain")
    say(phone, session_id, prompt)
    phone.expect("stream_chunk", session_id=session_id)
    return session_id


def http_say(
    bridge: Bridge, session_id: str, body: Any = USER_MESSAGE, token: str | None = None
) -> Any:
    return bridge.https().post(
        f"/api/v1/sessions/{session_id}/events", token=token or bridge.admin_token, json_body=body
    )
