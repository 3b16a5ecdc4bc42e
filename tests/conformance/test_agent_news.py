"""What becomes of a message, and what an agent says of its session, on every phone (D71, D72)."""

from collections.abc import Iterator

import pytest

from tests.conformance.agent_tools import Script, bridge_of, script_of, session_of
from tests.conformance.agents import answers, ask, end, question, say, words
from tests.conformance.approvals import decide, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id
from tests.faults.quick import with_limits

pytestmark = pytest.mark.spec("ws.message_state")
SMALL = with_limits(ACP_BUSY_SECONDS=0.5, ACP_BUSY_MAX_SECONDS=4, ACP_REFUSAL_SECONDS=0.5)
script = script_of("plain")
bridge = bridge_of(first=SMALL)
session = session_of("plain")


@pytest.fixture
def other(bridge: Bridge) -> Iterator[Phone]:
    """A phone that has joined no session."""
    with bridge.phones(1) as (phone,):
        yield phone


GO = "/do while not os.path.exists('go'): time.sleep(0.01)"
# it refuses the next prompt twice, and says something by itself in between
BUSY = """/do agent.busy = ['busy', 'busy']
def own():
    while len(agent.busy) > 1: time.sleep(0.01)
    say('my own')
threading.Thread(target=own, daemon=True).start()"""


def until_state(phone: Phone, session_id: str, message_id: str, state: str) -> list[str]:
    """Every state of the message, in order, once it has this one."""

    def states() -> list[str]:
        told = (one["payload"] for one in of(phone, "message_state", session_id))
        return [one["state"] for one in told if one["message_id"] == message_id]

    phone.collect(lambda: states()[-1:] == [state], f"{state} of {message_id}")
    return states()


def test_a_message_that_waits_its_turn(
    bridge: Bridge, phone: Phone, other: Phone, session: str
) -> None:
    """Every phone learns that it is queued, and when the agent has it."""
    first = say(phone, session, GO)
    assert until_state(other, session, first, "given") == ["given"]
    waits = say(phone, session, "hello")
    until_state(other, session, waits, "queued")
    (bridge.root / "go").touch()
    assert until_state(other, session, waits, "given") == ["queued", "given"]
    (bridge.root / "go").unlink()


def withdraw(phone: Phone, session_id: str, message_id: str) -> str:
    """Its state, as the answer says."""
    body = {"session_id": session_id, "message_id": message_id}
    answer = phone.request("message_withdraw", body)
    assert answer["type"] == "message_state" and answer["payload"].items() >= body.items(), answer
    return str(answer["payload"]["state"])


def test_a_message_for_now_to_an_agent_that_nobody_steers(
    bridge: Bridge, phone: Phone, session: str
) -> None:
    """It comes after the turn, as without it."""
    until_state(phone, session, say(phone, session, GO), "given")
    body = {"session_id": session, "content": "hello", "role": "user", "when": "now"}
    sent = phone.send("message", body)
    until_state(phone, session, sent, "queued")
    (bridge.root / "go").touch()
    assert until_state(phone, session, sent, "given") == ["queued", "given"]
    (bridge.root / "go").unlink()


@pytest.mark.spec("ws.message_withdraw")
def test_a_message_that_is_withdrawn(
    bridge: Bridge, phone: Phone, other: Phone, script: Script, session: str
) -> None:
    """Any phone takes it back while it waits, once; what the agent was given stays given."""
    given = say(phone, session, GO)
    until_state(other, session, given, "given")
    gone, waits = say(phone, session, "taken back"), say(phone, session, "onward")
    until_state(other, session, waits, "queued")
    assert withdraw(other, session, gone) == "withdrawn"
    assert until_state(phone, session, gone, "withdrawn") == ["queued", "withdrawn"]
    assert withdraw(phone, session, gone) == "withdrawn"
    assert withdraw(phone, session, given) == "given"
    (bridge.root / "go").touch()
    until_state(other, session, waits, "given")
    (bridge.root / "go").unlink()
    assert "taken back" not in script.prompts()


@pytest.mark.spec("ws.message_withdraw")
def test_a_withdrawal_that_overtakes_its_message(
    phone: Phone, other: Phone, script: Script, session: str
) -> None:
    """It is kept for an hour; the message is shown nowhere, and its sender learns why."""
    late = new_id()
    assert withdraw(phone, session, late) == "withdrawn"
    body = {"session_id": session, "content": "came late", "role": "user"}
    phone.send("message", body, id=late)
    assert until_state(other, session, late, "withdrawn")[-1] == "withdrawn"
    ask(phone, session, "onward")
    assert "came late" not in script.prompts() + [str(one) for one in phone.events(session)]
    missing = phone.request("message_withdraw", {"session_id": new_id(), "message_id": late})
    assert missing["payload"]["code"] == "SESSION_NOT_FOUND"


def test_a_message_that_a_busy_agent_takes_later(phone: Phone, other: Phone, session: str) -> None:
    """What the agent says while the message waits is a turn of its own."""
    ask(phone, session, BUSY)
    phone.messages.clear()
    sent = say(phone, session, "hello")
    states = until_state(other, session, sent, "given")
    assert states[0] == "queued" and states.count("given") == 1
    phone.collect(lambda: len(answers(phone, session)) == 2, "both turns")
    own, answer = answers(phone, session)
    assert own == "my own" and answer.endswith("hello")


def test_a_message_that_a_busy_agent_never_takes(phone: Phone, other: Phone, session: str) -> None:
    """Every phone learns that it was refused, and why; the next one is taken."""
    ask(phone, session, "/do agent.busy = ['busy'] * 1000")
    sent = say(phone, session, "hello")
    assert until_state(other, session, sent, "refused") == ["queued", "refused"]
    error = phone.expect("error", session_id=session)["payload"]
    assert "busy with something of its own" in error["message"]
    assert "hello" not in "".join(answers(phone, session))


def test_what_an_agent_says_of_its_session(
    bridge: Bridge, phone: Phone, other: Phone, session: str
) -> None:
    """Its title, what it has used, and once that a limit is near."""
    limit = {"status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.9}
    meta = {"_claude/rateLimit": limit}
    ask(
        phone,
        session,
        "/do update('session_info_update', title='Find\\nthe bug')\n"
        f"for n in 1, 2: update('usage_update', used=n, size=9, _meta={meta})",
    )
    near = {"name": "five_hour", "status": "near", "used": 0.9}
    usage = {"context_tokens": 2, "context_window": 9, "limits": [near]}
    phone.collect(
        lambda: any(one["usage"] == usage and one["title"] == "Find the bug"
                    for one in phone.updates if one["session_id"] == session),
        "the view",
    )  # fmt: skip
    assert bridge.session(session)["usage"] == usage
    other.expect("notification", session_id=session, title="A limit is nearly reached")
    end(phone, session)
    other.expect("session_end", session_id=session)
    told = of(other, "notification", session)
    assert sum("limit" in one["payload"]["title"] for one in told) == 1


def test_a_form_is_answered_on_a_phone(phone: Phone, session: str) -> None:
    field = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}
    form = {"mode": "form", "message": "Which?", "requestedSchema": {"properties": {"f": field}}}
    say(phone, session, f"/do say(str(answer(request('elicitation/create', **{form}))))")
    asked = question(phone, session)
    assert asked["tool"] == "AskUserQuestion" and asked["description"].startswith("Which?")
    given = asked["params"] | {"answers": {"Which?": "Red"}}
    decide(phone, session, asked["tool_call_id"], "modified", given)
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert "{'f': 'r'}" in words(phone.messages)
