"""Which processes run a session in a terminal, and what they do in silence (D65)."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hooks_app.producer.shell_command import hook_command
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session
from tests.conformance.terminal import CONTAINER, SOONER, Terminal, heard, shown, until, until_quiet
from tests.faults.quick import bridge_of_module
from tests.servers import wait_until
from tests.short import SHORT

pytestmark = [pytest.mark.spec("ws.session_update"), pytest.mark.slow]

Open = Callable[..., Terminal]
bridge = bridge_of_module(BRIDGE_MAX_WEBSOCKETS="100", **SOONER)


def test_a_program_that_was_killed_ends_its_session(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    agent.tool("PreToolUse", "make deploy", "t1")
    agent.tool("PermissionRequest", "make deploy")
    until(phone, sid, turn="waiting")
    agent.kill()
    end = phone.expect("session_end", session_id=sid)["payload"]
    assert end["reason"] == "error"
    until(phone, sid, session_status="closed", pending_approvals=0, turn="idle")
    phone.collect(lambda: "The session ended with an error" in heard(phone, sid), "why")


def test_a_program_that_ended_after_its_stop_has_completed(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    """As `claude -p` may, without a SessionEnd."""
    agent.hook("Stop", last_assistant_message="done")
    until(phone, sid, turn="idle")
    agent.kill()
    assert phone.expect("session_end", session_id=sid)["payload"]["reason"] == "completed"
    assert "The session ended with an error" not in heard(phone, sid)


def test_what_the_killed_program_had_said_comes_first(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """Events that wait in the spool while the bridge is away are stored before the end."""
    with bridge.asleep():
        agent.tool("PreToolUse", "make", "t1")
        agent.hook("Stop", last_assistant_message="done")
        agent.kill()
    assert phone.expect("session_end", session_id=sid)["payload"]["reason"] == "completed"


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text()
UNKNOWN: dict[str, tuple[str | None, str | None]] = {
    "another machine's": ("12345678-1234-1234-1234-123456789012", None),
    "another container's": (None, "1 (init) S 0 1 1" + " 0" * 15 + " 999999999 0\n"),
    "one of which nothing is known": ("", ""),
}


def test_a_process_that_cannot_be_compared_ends_nothing(
    bridge: Bridge, phone: Phone, open_terminal: Open
) -> None:
    """Its id may be another process here: the session is only said to be silent."""
    agents = {whose: open_terminal(new_session()) for whose in UNKNOWN}
    for number, (whose, agent) in enumerate(agents.items()):
        agent.hook("UserPromptSubmit", prompt=whose)
        agent.tool("PreToolUse", "sleep 1000", "t1")
        boot, first = UNKNOWN[whose]
        note = f"#1 {2**22 + 5} agent /nowhere\n"
        note += BOOT if boot is None else f"{boot}\n" if boot else ""
        note += Path("/proc/1/stat").read_text() if first is None else first
        event = {"hook_event_name": "PreToolUse", "session_id": agent.session_id}
        event |= {"tool_name": "Bash", "tool_use_id": "t2"}
        spooled = bridge.data / "spool" / f"{os.getpid()}.{number}"
        spooled.write_text(note + json.dumps(event))
        wait_until(lambda: not spooled.exists(), "it is stored")  # noqa: B023
        agent.kill()
    for whose, agent in agents.items():
        until_quiet(phone, agent.session_id)
        assert bridge.session(agent.session_id)["session_status"] == "active", whose


def test_a_program_in_a_container_is_not_taken_for_one_that_has_ended(
    bridge: Bridge, phone: Phone, open_terminal: Open
) -> None:
    """Its process ids are other processes' here, or nobody's, from its first event on."""
    if subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody make a pid namespace")
    inside, beside = open_terminal(new_session(), CONTAINER), open_terminal(new_session())
    for agent in (inside, beside):
        for prompt in ("Deploy it", "Go on"):
            agent.hook("UserPromptSubmit", prompt=prompt)
        phone.expect("session_started", session_id=agent.session_id)
    beside.kill()
    phone.expect("session_end", session_id=beside.session_id)
    until_quiet(phone, inside.session_id)
    assert bridge.session(inside.session_id)["session_status"] == "active"


def test_a_process_id_that_is_used_again_is_another_process(
    bridge: Bridge, phone: Phone, sid: str
) -> None:
    """The start that the hook noted is not that of the process which has the id now."""
    fields = Path(f"/proc/{os.getpid()}/stat").read_text().rsplit(") ", 1)
    other = fields[1].split()
    other[19] = str(int(other[19]) - 1)
    note = f"#1 {os.getpid()} agent /nowhere\n"
    note += BOOT + Path("/proc/1/stat").read_text()
    note += f"{fields[0]}) {' '.join(other)}\n"
    event = {"hook_event_name": "UserPromptSubmit", "session_id": sid, "prompt": "x"}
    (bridge.data / "spool" / f"{os.getpid()}.9").write_text(note + json.dumps(event))
    phone.expect("session_started", session_id=sid)
    assert phone.expect("session_end", session_id=sid)["payload"]["reason"] == "error"


def test_a_wrapper_that_ends_with_the_hook_is_no_agent(
    bridge: Bridge, phone: Phone, sid: str
) -> None:
    """Each event comes from another process, which is gone by then."""
    command = hook_command(str(bridge.data / "spool"))
    wrapper = "import subprocess, sys; subprocess.run(['sh', '-c', sys.argv[1]])"
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse"):
        body = {"hook_event_name": event, "session_id": sid, "prompt": "x", "tool_name": "Bash"}
        kept = {name: value for name, value in os.environ.items() if name != "CLAUDE_PID"}
        arguments = [sys.executable, "-c", wrapper, command]
        subprocess.run(arguments, input=json.dumps(body), text=True, check=True, env=kept)
    phone.expect("session_started", session_id=sid)
    until_quiet(phone, sid)
    assert bridge.session(sid)["session_status"] == "active"


# silence


@pytest.mark.slow
def test_since_when_there_is_no_sign_is_said_until_there_is_one(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """Esc: nothing comes any more. A decision on a phone is no sign of the agent."""
    agent.tool("PreToolUse", "make deploy", "t1")
    agent.tool("PermissionRequest", "make deploy")
    until(phone, sid, turn="waiting")
    last = bridge.session(sid)["last_activity_at"]
    assert until_quiet(phone, sid)["quiet_since"] == last
    decide(phone, sid, "t1", "approved")
    until(phone, sid, pending_approvals=0, quiet_since=last)
    assert bridge.session(sid)["quiet_since"] == last
    agent.tool("PreToolUse", "ls", "t2")
    until(phone, sid, quiet_since=None)
    agent.hook("Stop")
    until(phone, sid, turn="idle")
    phone.stay(SHORT["QUIET_SECONDS"] + 2)
    assert bridge.session(sid)["quiet_since"] is None, "who is idle is not asked for a sign"


def test_the_agents_own_word_ends_a_turn_without_a_stop(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    """Esc: the registry says idle. Until then its word that it works is a sign."""
    agent.tool("PreToolUse", "sleep 1000", "t1")
    agent.register("busy", time.time())
    until(phone, sid, turn="working")
    phone.stay(SHORT["QUIET_SECONDS"] + 2)
    assert shown(phone, sid)["quiet_since"] is None
    agent.register("idle", time.time())
    view = until(phone, sid, turn="idle")
    assert view["doing"] is None and view["session_status"] == "active"
    assert heard(phone, sid) == [], "it was stopped by a person, and has not finished"


BAD = ("broken", "huge", "a link", "a pipe", "another session's", "older than the boot", "a list")


def spoil(registry: Path, kind: str) -> None:
    """Put something else in the place of what a program says of itself."""
    text, draft = registry.read_text(), registry.with_suffix(".other")
    match kind:
        case "broken":
            draft.write_text(text[:-3])
        case "huge":
            draft.write_text(text[:-1] + ', "more": "' + "x" * 2**20 + '"}')
        case "a link":
            linked = registry.with_suffix(".linked")
            linked.write_text(text)
            draft.symlink_to(linked)
        case "a pipe":
            os.mkfifo(draft)
        case "another session's":
            draft.write_text(text.replace("session-", "session+"))
        case "older than the boot":
            draft.write_text(text)
            os.utime(draft, (0, 0))
        case "a list":
            draft.write_text("[" * 200_000)
    draft.replace(registry)


def test_a_registry_that_is_not_to_be_believed(phone: Phone, open_terminal: Open) -> None:
    """It is as if it were not there."""
    agents = {kind: open_terminal(new_session()) for kind in BAD}
    for kind, agent in agents.items():
        agent.register("idle", time.time() - 60)
        spoil(agent.registry, kind)
        agent.hook("UserPromptSubmit", prompt=kind)
        agent.tool("PreToolUse", "sleep 1000", "t1")
    for kind, agent in agents.items():
        assert until_quiet(phone, agent.session_id)["turn"] == "working", kind
