"""What an agent offers: options that a person chooses, and commands (D69)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.admin import Admin, rows_of
from tests.conformance.agent_tools import (
    Script,
    bridge_of,
    http_say,
    script_of,
    session_of,
    wait_status,
)
from tests.conformance.agents import begin, end, resume, say, start, words
from tests.conformance.approvals import notifications, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.faults.quick import with_limits

pytestmark = [
    pytest.mark.spec("ws.session_options"),
    pytest.mark.spec("ws.session_set"),
    pytest.mark.spec("ws.session_ready"),
]
script = script_of("offers", "models", "plain")
bridge = bridge_of(first=with_limits(AGENT_OPTION_SECONDS=1.0))
session = session_of("offers")


@pytest.fixture
def other(bridge: Bridge, session: str) -> Iterator[Phone]:
    """A second phone that has joined the session."""
    with bridge.phones(1) as (phone,):
        phone.join(session)
        yield phone


def choose(phone: Phone, session: str, option: str, value: str) -> Message:
    body = {"session_id": session, "option_id": option, "value": value}
    return phone.request("session_set", body)


def values(payload: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["value"] for one in payload["options"]}


def told(phone: Phone, session: str) -> list[dict[str, Any]]:
    return [message["payload"] for message in of(phone, "session_options", session)]


def resumed(bridge: Bridge, phone: Phone, session: str, how: str) -> dict[str, Any]:
    """session_ready after the agent has died; it does as the file `how` says meanwhile."""
    say(phone, session, "/exit 3")
    wait_status(bridge, session, "error")
    (bridge.root / how).touch()
    try:
        return dict(resume(bridge, phone, session)["payload"])
    finally:
        (bridge.root / how).unlink()


def test_the_model_is_chosen(bridge: Bridge, script: Script, session: str, other: Phone) -> None:
    """All who joined are told; who has not joined is not, and cannot choose."""
    with bridge.phones(2) as (phone, stranger):
        ready = phone.join(session)["payload"]
        assert [(one["id"], one["kind"]) for one in ready["options"]] == [
            ("brain", "model"),
            ("depth", "effort"),
        ]
        assert [one["value"] for one in ready["options"][0]["choices"]] == ["small", "large"]
        for _ in "ab":  # harmless when repeated
            answer = choose(phone, session, "brain", "large")
            assert answer["type"] == "session_options", answer
            assert values(answer["payload"]) == {"brain": "large", "depth": "small"}
        other.collect(lambda: bool(told(other, session)), "the other one is told")
        assert values(told(other, session)[-1])["brain"] == "large"
        refused = choose(stranger, session, "brain", "small")["payload"]
        assert refused["code"] == "PROTO_SEQUENCE_ERROR"
        assert not told(stranger, session)
    chosen = [(line["option"], line["value"]) for line in script.lines("set")]
    assert chosen[-2:] == [("brain", "large")] * 2
    entry = rows_of(Admin(bridge, "offers").page("/admin/devices_app/auditentry/"))[0]
    assert "session_set" in entry and "brain" in entry


@pytest.mark.parametrize(
    ("option", "value"),
    [("brain", "huge"), ("style", "large"), ("approvals", "large"), ("gone", "small"), ("", "")],
)
def test_only_what_is_offered_is_set(
    script: Script, phone: Phone, session: str, option: str, value: str
) -> None:
    before = len(script.lines("set"))
    refused = choose(phone, session, option, value)["payload"]
    assert refused["code"] == "PROTO_INVALID_MESSAGE" and "offer" in refused["message"]
    assert len(script.lines("set")) == before


@pytest.mark.parametrize("how", ["refuses", "silent", "stubborn"])
def test_an_agent_that_does_not_take_it(
    bridge: Bridge, phone: Phone, session: str, how: str
) -> None:
    """It says so in words; what stood stands, and the session goes on."""
    (bridge.root / how).touch()
    try:
        refused = choose(phone, session, "brain", "large")["payload"]
    finally:
        (bridge.root / how).unlink()
    assert refused["code"] == "AGENT_ERROR", refused
    assert {"refuses": "gone home", "silent": "in time", "stubborn": "small"}[how] in (
        refused["message"]
    )
    say(phone, session, "still there")
    phone.expect("stream_end", session_id=session)
    assert values(choose(phone, session, "depth", "large")["payload"])["depth"] == "large"


def test_options_that_change_in_mid_turn(bridge: Bridge, phone: Phone, session: str) -> None:
    """One that is gone cannot be set any more; several with one id are none."""
    say(
        phone,
        session,
        "/do brain = agent.choices[0]\n"
        "twice = [dict(brain, id='same'), dict(brain, id='same')]\n"
        "bidi = dict(brain, id='b', name='a\\u202etest\\x07 ' + 'n' * 1000)\n"
        "evil = dict(brain, id='e', name='Permission mode')\n"
        "agent.choices[:] = [*twice, bidi, evil, {'id': 'broken'}, dict(brain, options=[])]\n"
        "update('config_option_update', configOptions=agent.choices)\n"
        "while not os.path.exists('go'): time.sleep(0.01)",
    )
    phone.collect(lambda: bool(told(phone, session)), "the new options")
    [option] = told(phone, session)[-1]["options"]
    assert option["id"] == "b" and len(option["name"]) == 200
    assert option["name"].startswith("a\ufffdtest\ufffd n")
    refused = choose(phone, session, "brain", "large")["payload"]
    assert refused["code"] == "PROTO_INVALID_MESSAGE"
    (bridge.root / "go").touch()


def test_ten_thousand_commands(bridge: Bridge, phone: Phone, session: str) -> None:
    """Of 200 devices are told; none that would change how the agent asks, none that is no name."""
    say(
        phone,
        session,
        "/do names = ['yolo', 'Permissions', 'allowed-tools', 'approval-mode', 'mode', 'two words',"
        " '', '/', 'a/b', '__hidden', 'compact', 'compact', 'model', 'b\\u202ed', 7]\n"
        "names += [f'command-{number}' for number in range(10_000)]\n"
        "update('available_commands_update', availableCommands=[\n"
        "    {'name': name, 'description': 'd' * 2000, 'input': {'hint': 'what\\u2066'}}\n"
        "    for name in names] + ['x', None])\n"
        "while not os.path.exists('then'): time.sleep(0.01)\n"
        "update('available_commands_update')",
    )
    phone.collect(lambda: any(one["commands"] for one in told(phone, session)), "the commands")
    commands = next(one["commands"] for one in told(phone, session) if one["commands"])
    names = [one["name"] for one in commands]
    assert names[:3] == ["compact", "model", "command-0"] and len(names) == 200
    assert commands[0]["hint"] == "what\ufffd" and len(commands[0]["description"]) == 500
    (bridge.root / "then").touch()
    phone.collect(lambda: told(phone, session)[-1]["commands"] == [], "there are none any more")


@pytest.mark.parametrize(
    "content",
    ["/yolo", " \n/permissions allow all", "/ mode yolo", "/allowed-tools", "\ufeff/approval-mode",
     "/auto-mode-setup", "/config permissions.defaultMode=auto", "/add-dir /", "//YOLO"],
)  # fmt: skip
def test_a_command_that_changes_how_it_asks_is_not_given(
    bridge: Bridge, script: Script, phone: Phone, session: str, content: str
) -> None:
    before = script.prompts()
    say(phone, session, content)
    refused = phone.expect("error", session_id=session)["payload"]
    assert refused["code"] == "PROTO_INVALID_MESSAGE" and "is not given" in refused["message"]
    answer = http_say(bridge, session, {"type": "user_message", "content": content})
    assert answer.status == 400 and "is not given" in answer.json()["message"]
    assert script.prompts() == before


@pytest.mark.parametrize("content", ["/compact", "/home/me/mode is wrong", "say /yolo", "/modelx"])
def test_any_other_message_is(phone: Phone, session: str, content: str) -> None:
    say(phone, session, content)
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert content in words(phone.messages)


def test_models_by_their_own_request(bridge: Bridge, script: Script, phone: Phone) -> None:
    """As agents do whose protocol is older: the models stand beside the options."""
    ready = start(phone, bridge.root, agent="models")["payload"]
    assert values(ready) == {"model": "small"} and ready["commands"] == []
    answer = choose(phone, ready["session_id"], "model", "large")["payload"]
    assert values(answer) == {"model": "large"}
    assert [(one["option"], one["value"]) for one in script.lines("set")][-1] == ("model", "large")
    end(phone, ready["session_id"])


def test_what_was_chosen_stands_after_a_resume(
    bridge: Bridge, script: Script, phone: Phone
) -> None:
    session = begin(bridge, phone, agent="offers")
    choose(phone, session, "brain", "large")
    say(phone, session, "/exit 3")
    wait_status(bridge, session, "error")
    refused = choose(phone, session, "brain", "small")["payload"]
    assert refused["code"] == "SESS_NOT_ACTIVE"
    before = len(script.lines("set"))
    ready = resume(bridge, phone, session)["payload"]
    assert values(ready)["brain"] == "large"
    assert [one["value"] for one in script.lines("set")[before:]] == ["large"]
    end(phone, session)


def test_one_choice_after_the_other(bridge: Bridge, phone: Phone) -> None:
    """As of a model, which brings an effort of its own: what stood then is not what stands now."""
    session = begin(bridge, phone, agent="offers")
    for option in ("brain", "depth"):
        choose(phone, session, option, "large")
    ready = resumed(bridge, phone, session, "anew")
    assert [values(ready)[one] for one in ("brain", "depth")] == ["large", "large"]
    bridge.fence(phone)
    told = [one["body"] for one in notifications(phone, session)]
    assert not [one for one in told if "did not take" in one], told
    end(phone, session)


def test_what_it_does_not_take_after_a_resume_is_said(bridge: Bridge, phone: Phone) -> None:
    session = begin(bridge, phone, agent="offers")
    choose(phone, session, "brain", "large")
    ready = resumed(bridge, phone, session, "refuses")
    assert values(ready)["brain"] == "small"
    lost = "The agent did not take Model Large again; it is Small now."
    phone.collect(
        lambda: (
            lost in [one["body"] for one in notifications(phone, session, "agent_notification")]
        ),
        "it is said",
    )
    end(phone, session)


def test_an_agent_that_offers_nothing(bridge: Bridge, phone: Phone) -> None:
    ready = start(phone, bridge.root, agent="plain")["payload"]
    assert (ready["options"], ready["commands"]) == ([], [])
    end(phone, ready["session_id"])
