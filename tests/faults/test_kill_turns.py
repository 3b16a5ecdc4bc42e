"""kill -9 of the bridge while agents speak, ask and run: every turn ends as it would have (D79).

Half of the calls are covered by a rule (D68), a message with a picture waits for its time (D70,
D71), and an agent in a terminal has its hook wait (D66).
"""

import base64
import logging
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.agent_tools import Script, quick_bridge
from tests.conformance.agents import begin, end, log_of, say, words
from tests.conformance.approvals import decide, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Closed, Message, Phone
from tests.conformance.samples import new_session
from tests.conformance.terminal import Dialog, Terminal
from tests.conformance.test_attachments import PNG, sent
from tests.conformance.test_send_later import QUICK, in_seconds
from tests.servers import wait_until

pytestmark = pytest.mark.slow
log = logging.getLogger("tests.faults")

EPOCH = 20  # kills, after which the turns end
SESSIONS, PIECES, EACH_CALL, AGAIN = 3, 400, 20, 40
MOMENTS = 0.5
LATER = 5  # seconds: the turns take longer
# It speaks in numbers, and at each EACH_CALLth asks for a call, which it notes when it is allowed.
# Every other call runs the same command.
TURN = """/do for number in range({pieces}):
    say('{label}-%d ' % number)
    time.sleep(0.05)
    if number % {each} == 0:
        call = '{label}-call-%d' % number
        command = 'make test' if number % {again} else call
        told = {{'title': call, 'kind': 'execute', 'rawInput': {{'command': command}}}}
        done = allowed(ask(call, **told))
        journal('ran', call=call, allowed=done)
        update('tool_call_update', toolCallId=call, status='completed')
"""


def open_calls(phone: Phone, decided: Counter[str]) -> list[Message]:
    """Calls that the phone is asked about, and has not decided."""
    told = [one for one in phone.messages if one["type"] != "replay_buffer"]
    for page in [one for one in phone.messages if one["type"] == "replay_buffer"]:
        told += page["payload"]["messages"]
    asked = [one["payload"] for one in told if one["type"] == "approval_required"]
    return [one for one in asked if one["tool_call_id"] not in decided]


def answer_of(call: Message) -> dict[str, str]:
    """What is decided of it: yes, and what is asked again is covered by a rule from then on."""
    rule = {"remember": "exact"} if call["params"]["command"] == "make test" else {}
    return {"decision": "approved"} | rule


def approve(phone: Phone, decided: Counter[str], but: str = "") -> None:
    """Approve what waits, but for one session."""
    for call in open_calls(phone, decided):
        if call["session_id"] == but:
            continue
        answer = decide(phone, call["session_id"], call["tool_call_id"], **answer_of(call))
        assert answer["type"] == "approval_recorded", answer
        decided[call["tool_call_id"]] += 1


def check(label: str, kept: list[Message], script: Script) -> int:
    """All that was said, every row once and in order, every call decided once and run once.

    How many were decided by the rule.
    """
    said = "".join(f"{label}-{number} " for number in range(PIECES))
    assert words(kept) == said + f"{label}-late"
    ids = [one["id"] for one in kept]
    assert len(ids) == len(set(ids))
    numbers = range(0, PIECES, EACH_CALL)
    calls = [f"{label}-call-{number}" for number in numbers]
    commands = ["make test" if number % AGAIN else f"{label}-call-{number}" for number in numbers]
    ruled = [one for one in kept if one["payload"].get("decided_by") == "rule"]
    asked = [
        one["payload"]["params"]["command"]
        for one in kept
        if _is(one, "approval_required") or one in ruled
    ]
    assert asked == commands
    results = [one["payload"]["result"]["success"] for one in kept if _is(one, "tool_result")]
    assert results == [True] * len(calls)
    ran = [one for one in script.lines("ran") if one["call"].startswith(f"{label}-")]
    assert [(one["call"], one["allowed"]) for one in ran] == [(call, True) for call in calls]
    ends = [one["payload"]["finish_reason"] for one in kept if _is(one, "stream_end")]
    assert ends == ["tool_call"] * len(calls) + ["stop"] * 2
    assert script.prompts().count(f"/do say('{label}-late')") == 1
    return len(ruled)


def _is(message: Message, type_: str) -> bool:
    return bool(message["type"] == type_)


def later(bridge: Bridge, phone: Phone, session_id: str, label: str) -> None:
    """Send a picture, and a message with it that waits for its time."""
    picture = sent(bridge, session_id)["attachment_id"]
    about = {"session_id": session_id, "content": f"/do say('{label}-late')", "role": "user"}
    about |= {"not_before": in_seconds(LATER)}
    answer = phone.send("message", about | {"attachments": [picture]})
    phone.expect("message_state", session_id=session_id, message_id=answer, state="queued")


def epoch(
    bridge: Bridge, script: Script, name: str, kills: int, rng: random.Random, found: Counter[str]
) -> None:
    phone, decided = bridge.phone().ready(), Counter[str]()
    labels = [f"{name}{number}" for number in range(SESSIONS)]
    sessions = {label: begin(bridge, phone, agent="sees") for label in labels}
    desk = Terminal(bridge.data, new_session(), str(bridge.root), bridge.data.parent / "home")
    with closing(phone), desk:
        desk.hook("SessionStart", source="startup")
        phone.expect("session_started", session_id=desk.session_id)
        phone.join(desk.session_id)
        for label, session_id in sessions.items():
            turn = TURN.format(label=label, pieces=PIECES, each=EACH_CALL, again=AGAIN)
            say(phone, session_id, turn)
            phone.expect("message_state", session_id=session_id, state="given")
            later(bridge, phone, session_id, label)
        for number in range(kills):
            dialog = desk.asks("Bash", {"command": f"{name}-desk-{number}"})
            until = time.monotonic() + rng.uniform(0, MOMENTS)
            leave = rng.choice(("", desk.session_id))
            while time.monotonic() < until:
                approve(phone, decided, but=leave)
                phone.ping()
            if calls := open_calls(phone, decided):  # an answer is on its way, stored or not
                call = {key: calls[-1][key] for key in ("session_id", "tool_call_id")}
                phone.send("approval_response", call | answer_of(calls[-1]))
            kill(bridge, rng, found)
            phone.vanish()
            phone.ready()
            for session_id in (*sessions.values(), desk.session_id):
                phone.join(session_id)
            found[given(dialog, phone, decided)] += 1

        def ended() -> bool:
            approve(phone, decided)
            phone.ping()
            given = [one for one in script.prompts() if one.endswith("-late')")]
            idle = all(bridge.session(one)["turn"] == "idle" for one in sessions.values())
            return idle and len([one for one in given if name in one]) == SESSIONS

        wait_until(ended, lambda: str([bridge.session(one) for one in sessions.values()]))
        desk.hook("SessionEnd", reason="exit")
        for label, session_id in sessions.items():
            found["by rule"] += check(label, log_of(phone, session_id), script)
            assert not [one for one in of(phone, "notification", session_id) if _fault(one)]
            end(phone, session_id)
        assert {one["data"] for one in script.lines("picture")} == {base64.b64encode(PNG).decode()}
        found["calls"] += len(decided)


def kill(bridge: Bridge, rng: random.Random, found: Counter[str]) -> None:
    """And start it, and one time of five kill it while it starts."""
    bridge.kill()
    bridge.spawn()
    found["kills"] += 1
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0, MOMENTS))
        bridge.kill()
        bridge.spawn()
        found["twice"] += 1
    bridge.wait_ready()


def given(dialog: Dialog, phone: Phone, decided: Counter[str]) -> str:
    """What came of a dialog whose bridge was killed.

    Its hook has ended, with an answer or without; or the next bridge has found it.
    """

    def over() -> bool:
        approve(phone, decided)
        phone.ping()
        return dialog.over

    wait_until(over)
    answer = dialog.answer()
    assert answer in (None, {"behavior": "allow"}), answer
    return "left to the desk" if answer is None else "answered from the phone"


def _fault(message: Message) -> bool:
    return bool(message["payload"]["notification_type"] == "error")


@pytest.mark.spec("state.resume")
def test_turns(tmp_path: Path, instants: int, seed: str) -> None:
    script, rng, found = Script(tmp_path / "script", "sees"), random.Random(seed), Counter[str]()
    script.journal.parent.mkdir()
    with quick_bridge(tmp_path / "bridge", script, first=QUICK) as bridge:
        try:
            while found["kills"] < instants:
                left = min(EPOCH, instants - found["kills"])
                epoch(bridge, script, f"e{found['kills']}x", left, rng, found)
                log.info("%s", dict(found))
        except (AssertionError, Closed) as error:
            error.add_note(f"seed {seed}, {found}\n{bridge.tail()}")
            raise
