"""Several ways to allow a call, and a refusal with its reason, as a phone sees them (D68)."""

from typing import Any

import pytest

from tests.conformance.agent_tools import Script, bridge_of, script_of, session_of
from tests.conformance.agents import question, say, words
from tests.conformance.approvals import decide
from tests.conformance.phone import Phone

script, bridge, session = script_of("plain"), bridge_of(), session_of("plain")
CHOICES = [("pg", "Postgres"), ("lite", "SQLite"), ("my", "SQLite"), ("none", ""), ("x", " ")]
NAMES = ["Postgres", "SQLite (lite)", "SQLite (my)", "none", "x"]  # as a person is shown them
SKIPS = [("no", "Skip"), ("never", "Skip for good")]
Options = list[dict[str, str]]


def options(ones: list[tuple[str, str]], kind: str) -> Options:
    return [{"optionId": id_, "name": name, "kind": kind} for id_, name in ones]


def put(phone: Phone, session: str, offered: Options) -> dict[str, Any]:
    """Have the agent ask with these options, and say which was chosen; what the phone is asked."""
    say(
        phone,
        session,
        f"/do say(str(answer(ask('q', title='Which one?', kind='other', options={offered}))))",
    )
    return question(phone, session)


def answer(phone: Phone, session: str, call: dict[str, Any], decision: str, **more: Any) -> str:
    """Decide, and return which option the agent was given."""
    before = len(phone.messages)
    recorded = decide(phone, session, call["tool_call_id"], decision, **more)
    assert recorded["type"] == "approval_recorded", recorded
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    return words(phone.messages[before:])


def test_a_question_whose_answers_are_options(phone: Phone, session: str) -> None:
    """All are listed, told apart by their names; none is taken unless it is named."""
    offered = [*options(CHOICES, "allow_once"), *options(SKIPS, "reject_once")]
    offered += options([("all", "Always")], "allow_always")
    call = put(phone, session, offered)
    shown = [(one["id"], one["name"], one["kind"]) for one in call["options"]]
    allow = [(id_, name, "allow_once") for (id_, _), name in zip(CHOICES, NAMES, strict=True)]
    assert shown == [*allow, *[(id_, name, "reject_once") for id_, name in SKIPS]]
    for decision, option in (
        ("approved", None),
        ("approved", "other"),
        ("approved", "no"),
        ("approved", "all"),
        ("rejected", "pg"),
        ("modified", "pg"),
    ):
        more = {} if option is None else {"option_id": option}
        refused = decide(phone, session, call["tool_call_id"], decision, **more)["payload"]
        assert refused["code"] == "PROTO_INVALID_MESSAGE" and "option_id" in refused["message"]
    assert "'lite'" in answer(phone, session, call, "approved", option_id="lite")
    again = decide(phone, session, call["tool_call_id"], "approved", option_id="lite")
    assert again["type"] == "approval_recorded"
    other = decide(phone, session, call["tool_call_id"], "approved", option_id="pg")
    assert other["payload"]["code"] == "TOOL_ALREADY_DECIDED"


@pytest.mark.parametrize(("option", "chosen"), [(None, "'no'"), ("never", "'never'")])
def test_a_refusal_takes_the_first_or_the_named(
    phone: Phone, session: str, option: str | None, chosen: str
) -> None:
    call = put(
        phone, session, [*options(CHOICES[:1], "allow_once"), *options(SKIPS, "reject_once")]
    )
    more = {} if option is None else {"option_id": option}
    assert chosen in answer(phone, session, call, "rejected", **more)


def test_one_of_each_kind_is_no_choice(phone: Phone, session: str) -> None:
    """And no option of another request is taken for one of this."""
    offered = [*options(CHOICES[:1], "allow_once"), *options(SKIPS[:1], "reject_once")]
    call = put(phone, session, offered)
    assert "options" not in call
    refused = decide(phone, session, call["tool_call_id"], "approved", option_id="lite")
    assert refused["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    assert "'pg'" in answer(phone, session, call, "approved")


def test_a_hundred_options(phone: Phone, session: str) -> None:
    call = put(phone, session, options([(f"o{n}", "x" * 1000) for n in range(100)], "allow_once"))
    assert len(call["options"]) == 100 and len(str(call["options"])) < 100_000
    assert "'o99'" in answer(phone, session, call, "approved", option_id="o99")


def test_a_refusal_says_why(phone: Phone, session: str, script: Script) -> None:
    """The protocol has no word for it, so the agent is told when its turn has ended."""
    call = put(
        phone, session, options([("y", "Yes")], "allow_once") + options(SKIPS, "reject_once")
    )
    why = "Use the other table. " + "ü" * 1900
    answer(phone, session, call, "rejected", reason=why)
    told = script.prompts()[-1]
    assert "did not approve" in told and "Use the other table." in told
    result = phone.expect("tool_result", session_id=session)["payload"]["result"]
    assert result["success"] is False and result["error"] == why


def test_a_reason_of_more_than_two_thousand_characters(phone: Phone, session: str) -> None:
    call = put(phone, session, options([("y", "Yes")], "allow_once"))
    refused = decide(phone, session, call["tool_call_id"], "rejected", reason="x" * 2001)
    assert refused["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    answer(phone, session, call, "rejected", reason="x" * 2000)
