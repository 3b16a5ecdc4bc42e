"""What a real agent sends, the whole way: installed hook command, spool, forwarder, TLS, log, a
phone's socket (D47).

The captured files are in ``tests/fixtures/hooks``; what each must become stands in one table, which
the forwarder's own tests use too.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer.shell_command import HOOK_EVENTS
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session
from tests.hooks.scripted import FIXTURES, fixture
from tests.hooks.test_producer_fixtures import EXPECTED, NAMES


class Agent:
    """Runs the commands of a settings file as an agent runs them."""

    def __init__(self, bridge: Bridge, settings: Path) -> None:
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        self.hooks = json.loads(settings.read_text())["hooks"]

    def fire(self, raw: dict[str, Any]) -> None:
        """Fire a hook; a kind that is not installed goes through the command of one that is, as if
        a user had added it.
        """
        kind = raw["hook_event_name"]
        entry = self.hooks[kind if kind in self.hooks else "Notification"][0]["hooks"][0]
        done = subprocess.run(
            ["/bin/sh", "-c", entry["command"]],
            input=json.dumps(raw).encode(),
            capture_output=True,
            timeout=180,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    return make_bridge("real-hooks")


@pytest.fixture(scope="module")
def agent(bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return Agent(bridge, tmp_path_factory.mktemp("agent") / "settings.json")


@pytest.fixture(scope="module")
def phone(bridge: Bridge) -> Iterator[Phone]:
    """It joins the sessions of one test after the other."""
    with bridge.phones() as [phone]:
        yield phone


def test_every_kind_of_event_is_installed(agent: Agent) -> None:
    assert set(HOOK_EVENTS) == set(agent.hooks)


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_hook_reaches_the_phone(
    name: str, bridge: Bridge, agent: Agent, phone: Phone
) -> None:
    session_id = new_session()
    bridge.watch(phone, session_id)
    raw = fixture(name) | {"session_id": session_id}
    agent.fire(raw)
    expected = EXPECTED[name]
    if expected is None:
        # comes after it, and alone
        agent.fire(fixture("UserPromptSubmit") | {"session_id": session_id})
        event = phone.expect("agent_event", session_id=session_id)["payload"]
        assert event["event"] == "UserPromptSubmit"
        return
    event = phone.expect("agent_event", session_id=session_id)["payload"]
    assert event["event"] == event["event_type"] == expected[0]
    assert event["payload"] == event["payload"] | expected[1]
    if "tool_name" in raw:
        assert event["payload"]["params"] == raw["tool_input"]


def test_a_whole_session_in_the_order_in_which_it_happened(
    bridge: Bridge, agent: Agent, phone: Phone
) -> None:
    """SessionStart to SessionEnd; the session is announced, titled by its prompt, and closed."""
    session_id = new_session()
    story = [
        "SessionStart-startup",
        "UserPromptSubmit",
        "PreToolUse-Bash",
        "PostToolUse-Bash",
        "Stop",
        "SessionEnd-other",
    ]
    agent.fire(fixture(story[0]) | {"session_id": session_id})
    phone.expect("session_started", session_id=session_id)
    phone.join(session_id)
    for name in story[1:]:
        agent.fire(fixture(name) | {"session_id": session_id})
    phone.expect("session_end", session_id=session_id)
    phone.collect(lambda: len(phone.events(session_id)) == len(story), "all events")
    assert [event["payload"]["event"] for event in phone.events(session_id)] == [
        name.partition("-")[0] for name in story
    ]
    session = bridge.session(session_id)
    assert (session["status"], session["title"], session["hook_count"]) == (
        "closed",
        "SCN:bash go",
        len(story),
    )
    assert [event["type"] for event in session["recent_events"]] == [
        name.partition("-")[0] for name in reversed(story)
    ]


def test_what_happens_while_the_bridge_is_down_arrives_afterwards(
    make_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    """The agent notices nothing; the phone gets everything, once and in order."""
    bridge = make_bridge("away")
    agent = Agent(bridge, tmp_path / "settings.json")
    session_id = new_session()
    phone = bridge.phone(device_id="a-phone")
    phone.ready()
    phone.close()
    bridge.kill()
    for number in range(20):
        agent.fire(
            fixture("UserPromptSubmit") | {"session_id": session_id, "prompt": f"prompt {number}"}
        )
    bridge.start()
    phone.ready()
    phone.expect("session_started", session_id=session_id)
    phone.join(session_id)
    phone.collect(lambda: len(phone.events(session_id)) >= 20, "what the spool held")
    assert [event["payload"]["payload"]["prompt"] for event in phone.events(session_id)] == [
        f"prompt {number}" for number in range(20)
    ]
    phone.close()


def test_a_backlog_holds_no_person_up_and_no_rate_limit_holds_the_backlog(
    make_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    """More than the rate of `/hooks/event` allows in a minute wait in the spool: all arrive, in
    order for each session, and first the session in which the agent waits for a decision.
    """
    bridge = make_bridge("backlog", BRIDGE_RATE_LIMITS="on")
    agent, asks, others = Agent(bridge, tmp_path / "settings.json"), new_session(), new_session()
    phone = bridge.phone(device_id="a-phone")
    phone.ready()
    phone.close()
    bridge.kill()
    spool, began = bridge.data / "spool", time.time() - 100
    for number in range(300):
        path, raw = spool / str(number), fixture("UserPromptSubmit")
        path.write_text(json.dumps(raw | {"session_id": others, "number": number}))
        os.utime(path, (began + number / 10,) * 2)
    agent.fire(fixture("PermissionRequest-Bash") | {"session_id": asks})
    bridge.start()
    phone.ready()
    for session_id in (asks, others):
        assert phone.expect("session_started")["payload"]["session_id"] == session_id
    asked = phone.expect("notification", session_id=asks)["payload"]
    assert asked["notification_type"] == "approval_required"
    phone.join(others)
    phone.wait_numbers(others, range(300))
    phone.close()


def test_the_fixtures_are_all_here() -> None:
    assert len(list(FIXTURES.glob("*.json"))) == 45  # 44 captured files and their index
