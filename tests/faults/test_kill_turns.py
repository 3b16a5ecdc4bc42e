"""kill -9 of the bridge while agents speak, ask and run: every turn ends as it would have (D79)."""

import logging
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.agent_tools import Script, quick_bridge
from tests.conformance.agents import begin, end, log_of, say, words
from tests.conformance.approvals import decide, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Closed, Message, Phone
from tests.servers import wait_until

pytestmark = pytest.mark.slow
log = logging.getLogger("tests.faults")

EPOCH = 20  # kills, after which the turns end
SESSIONS, PIECES, EACH_CALL = 3, 400, 20
MOMENTS = 0.5
# It speaks in numbers, and at each EACH_CALLth asks for a call, which it notes when it is allowed.
TURN = """/do for number in range({pieces}):
    say('{label}-%d ' % number)
    time.sleep(0.05)
    if number % {each} == 0:
        call = '{label}-call-%d' % number
        told = {{'title': call, 'kind': 'execute', 'rawInput': {{'command': call}}}}
        done = allowed(ask(call, **told))
        journal('ran', call=call, allowed=done)
        update('tool_call_update', toolCallId=call, status='completed')
"""


def open_calls(phone: Phone, decided: Counter[str]) -> list[dict[str, str]]:
    """Calls that the phone is asked about, and has not decided."""
    told = [one for one in phone.messages if one["type"] != "replay_buffer"]
    for page in [one for one in phone.messages if one["type"] == "replay_buffer"]:
        told += page["payload"]["messages"]
    asked = [one["payload"] for one in told if one["type"] == "approval_required"]
    waiting = [one for one in asked if one["tool_call_id"] not in decided]
    return [{name: one[name] for name in ("session_id", "tool_call_id")} for one in waiting]


def approve(phone: Phone, decided: Counter[str]) -> None:
    """Approve what waits."""
    for call in open_calls(phone, decided):
        answer = decide(phone, call["session_id"], call["tool_call_id"], "approved")
        assert answer["type"] == "approval_recorded", answer
        decided[call["tool_call_id"]] += 1


def check(label: str, kept: list[Message], script: Script) -> None:
    """All that was said, every row once and in order, every call decided once and run once."""
    assert words(kept) == "".join(f"{label}-{number} " for number in range(PIECES))
    ids = [one["id"] for one in kept]
    assert len(ids) == len(set(ids))
    calls = [f"{label}-call-{number}" for number in range(0, PIECES, EACH_CALL)]
    asked = [one["payload"]["params"]["command"] for one in kept if _is(one, "approval_required")]
    assert asked == calls
    results = [one["payload"]["result"]["success"] for one in kept if _is(one, "tool_result")]
    assert results == [True] * len(calls)
    ran = [one for one in script.lines("ran") if one["call"].startswith(f"{label}-")]
    assert [(one["call"], one["allowed"]) for one in ran] == [(call, True) for call in calls]
    ends = [one["payload"]["finish_reason"] for one in kept if _is(one, "stream_end")]
    assert ends == ["tool_call"] * len(calls) + ["stop"]


def _is(message: Message, type_: str) -> bool:
    return bool(message["type"] == type_)


def epoch(
    bridge: Bridge, script: Script, name: str, kills: int, rng: random.Random, found: Counter[str]
) -> None:
    phone, decided = bridge.phone().ready(), Counter[str]()
    labels = [f"{name}{number}" for number in range(SESSIONS)]
    sessions = {label: begin(bridge, phone, agent="plain") for label in labels}
    for label, session_id in sessions.items():
        say(phone, session_id, TURN.format(label=label, pieces=PIECES, each=EACH_CALL))
        phone.expect("message_state", session_id=session_id, state="given")
    for _ in range(kills):
        until = time.monotonic() + rng.uniform(0, MOMENTS)
        while time.monotonic() < until:
            approve(phone, decided)
            phone.ping()
        if calls := open_calls(phone, decided):  # an answer is on its way, stored or not
            phone.send("approval_response", calls[0] | {"decision": "approved"})
        bridge.kill()
        phone.vanish()
        bridge.spawn()
        if rng.random() < 0.2:  # while it starts
            time.sleep(rng.uniform(0, MOMENTS))
            bridge.kill()
            bridge.spawn()
            found["twice"] += 1
        bridge.wait_ready()
        phone.ready()
        found["kills"] += 1
        for session_id in sessions.values():
            phone.join(session_id)

    def ended() -> bool:
        approve(phone, decided)
        phone.ping()
        return all(bridge.session(one)["turn"] == "idle" for one in sessions.values())

    wait_until(ended, lambda: str([bridge.session(one) for one in sessions.values()]))
    for label, session_id in sessions.items():
        check(label, log_of(phone, session_id), script)
        assert not [one for one in of(phone, "notification", session_id) if _fault(one)]
        end(phone, session_id)
    found["calls"] += len(decided)
    phone.close()


def _fault(message: Message) -> bool:
    return bool(message["payload"]["notification_type"] == "error")


@pytest.mark.spec("state.resume")
def test_turns(tmp_path: Path, instants: int, seed: str) -> None:
    script, rng, found = Script(tmp_path / "script", "plain"), random.Random(seed), Counter[str]()
    script.journal.parent.mkdir()
    with quick_bridge(tmp_path / "bridge", script) as bridge:
        try:
            while found["kills"] < instants:
                left = min(EPOCH, instants - found["kills"])
                epoch(bridge, script, f"e{found['kills']}x", left, rng, found)
                log.info("%s", dict(found))
        except (AssertionError, Closed) as error:
            error.add_note(f"seed {seed}, {found}\n{bridge.tail()}")
            raise
