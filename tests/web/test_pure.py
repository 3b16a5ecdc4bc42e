"""The client's pure modules in Node: on the golden messages, and on what a real bridge sends."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bridge_project.docs import asyncapi
from devices_app.web_client import DIRECTORY
from tests.checks import TSC
from tests.conformance import agents, approvals
from tests.conformance.samples import EVENTS, hook, new_session
from tests.faults.quick import QuickBridge

PROGRAMS = Path(__file__).parent / "pure"
FIXTURES = Path(__file__).parents[1] / "fixtures"
OLDEST_NODE = 20


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which Node runs the pure modules as modules."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is missing (Debian: apt install nodejs)")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"Node {OLDEST_NODE} or newer is needed, here is {version.strip()}")
    directory = tmp_path_factory.mktemp("modules")
    for name in ("net", "parts", "protocol", "store"):
        shutil.copytree(DIRECTORY / name, directory / name)
    (directory / "views").mkdir()
    for name in ("views/addresses.js", "sw.js"):
        shutil.copy(DIRECTORY / name, directory / name)
    shutil.copytree(PROGRAMS, directory, dirs_exist_ok=True)
    (directory / "package.json").write_text('{"type": "module"}')
    return directory


def run(modules: Path, program: str, **environment: str) -> None:
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 600}
    command = ["node", "--test", program]
    done = subprocess.run(command, cwd=modules, env=os.environ | environment, **how)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "program",
    [
        *("addresses", "blocks", "connection", "diff", "exact", "home", "net", "outbox", "sw"),
        *("notify", "picture", "tabs", "tasks", "tokens", "usage", "words"),
    ],
)
def test_a_pure_module(modules: Path, program: str) -> None:
    run(modules, f"{program}.mjs")


def test_output_of_a_terminal(modules: Path) -> None:
    run(modules, "terminal.mjs", TERMINAL=str(FIXTURES / "terminal_output.json"))


def test_the_golden_messages(modules: Path) -> None:
    golden: dict[str, list[str]] = {"client": [], "server": []}
    for message in asyncapi.messages():
        path = asyncapi.EXAMPLES / f"{message.name}.json"
        golden["client" if message.from_client else "server"].append(str(path))
    run(modules, "messages.mjs", GOLDEN=json.dumps(golden))


def test_a_recorded_feed(
    modules: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Nothing that a bridge sends is unknown, and it leads to one state however it comes."""
    observed, feed = new_session(), tmp_path / "feed.json"
    with (
        QuickBridge(tmp_path_factory.mktemp("bridge"), BRIDGE_DEMO_SHELL="1") as bridge,
        bridge.phones(1) as (phone,),
    ):
        bridge.accept(*[hook(event, observed) for event in EVENTS if event != "SessionEnd"])
        phone.join(observed)
        talk = agents.begin(bridge, phone)
        agents.ask(phone, talk, "Hello")
        for decision in ("approved", "rejected"):
            asked = agents.tool(phone, talk, command="echo out; false")
            approvals.decide(phone, talk, asked["tool_call_id"], decision)
            phone.expect("stream_end", session_id=talk)
        agents.ask(phone, talk, "/fail because")
        agents.end(phone, talk)
        bridge.accept(hook("SessionEnd", observed))
        phone.expect("session_end", session_id=observed)
        feed.write_text(json.dumps(phone.messages))
    run(modules, "feed.mjs", FEED=str(feed))


@pytest.mark.web
def test_types() -> None:
    """The comments that say what is of which type agree with the code."""
    if not os.path.exists(TSC):
        pytest.skip("TypeScript is missing: make test-web, where npm is")
    options = ["--allowJs", "--checkJs", "--noEmit", "--target", "esnext", "--module", "esnext"]
    options += ["--moduleResolution", "bundler", "--lib", "esnext,dom,dom.iterable"]
    files = [str(path) for end in ("*.js", "*.d.ts") for path in DIRECTORY.rglob(end)]
    command = [TSC, *options, "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
