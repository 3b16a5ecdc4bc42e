"""An agent never acts unasked: agents that would, as a phone sees them (D59)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attack.conftest import answer
from tests.attack.moody_lines import ALLOWS_ALL, install
from tests.conformance.agent_tools import wait_status
from tests.conformance.agents import ask, begin, end, say, start, words
from tests.conformance.approvals import notifications
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.faults.quick import QuickBridge
from tests.run.test_doctor import doctor

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    place = tmp_path_factory.mktemp("unasked")
    settings = install(place / "bin") | {"BRIDGE_MAX_SESSIONS": "100"}
    with QuickBridge(place / "bridge", **settings) as bridge:
        (bridge.root / "opencode.json").write_text(ALLOWS_ALL)
        yield bridge


def refused_act(bridge: Bridge, phone: Phone, agent: str, prompt: str = "/act") -> list[Message]:
    """Have a session's agent act, refuse it, and see that nothing was done; what was said of it."""
    ready = start(phone, bridge.root, agent=agent)
    assert ready["type"] == "session_ready" and ready["payload"]["asks"] is True, ready
    session = ready["payload"]["session_id"]
    say(phone, session, f"{prompt} {agent}-{session}")
    asked = answer(phone, session, "rejected")
    assert asked["params"]["command"] == f"touch {agent}-{session}"
    assert not (bridge.root / f"{agent}-{session}").exists()
    end(phone, session)
    return [one for one in phone.messages if one["payload"].get("session_id") == session]


ASKING = "careful by-option named oc oc-path oc-allow oc-empty oc-npx"


@pytest.mark.parametrize("agent", ASKING.split())
def test_a_command_asks_and_a_refused_one_does_not_run(
    bridge: Bridge, phone: Phone, agent: str
) -> None:
    """Whatever mode it begins in, whatever its line says, and whatever the repository allows it."""
    refused_act(bridge, phone, agent)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("no-such-mode", "(build, plan)"),
        ("false-name", "offers no modes"),
        ("locked", "this mode is locked"),
        ("oc-shell", "without a shell"),
        ("oc-split", "without a shell"),
    ],
)
def test_what_cannot_be_made_to_ask_does_not_start(
    bridge: Bridge, phone: Phone, agent: str, words: str
) -> None:
    refused = start(phone, bridge.root, agent=agent)
    assert refused["type"] == "error" and refused["payload"]["code"] == "AGENT_UNAVAILABLE", refused
    assert words in refused["payload"]["message"]
    assert "BRIDGE_ACP_UNASKED" in refused["payload"]["message"]
    assert info(bridge)[agent]["asks"] is False


@pytest.mark.parametrize(
    ("agent", "asks", "title"),
    [
        ("wild", False, "wild does not ask"),
        # the name that the user chose is no recipe, nor is that of a mode
        ("qwen", None, "Nobody knows whether qwen asks"),
        ("silent", None, "Nobody knows whether silent asks"),
    ],
)
def test_the_user_may_let_one_run_that_may_act_unasked(
    bridge: Bridge, agent: str, asks: bool | None, title: str
) -> None:
    """BRIDGE_ACP_UNASKED: its session says so, to who joins too, and so does every device, once."""
    with bridge.phones(2) as (phone, other):
        ready = start(phone, bridge.root, agent=agent)["payload"]
        assert ready["asks"] is asks
        session = ready["session_id"]
        for each in (phone, other):
            each.expect("notification", session_id=session, notification_type="agent_notification")
        assert other.join(session)["payload"]["asks"] is asks
        assert words(ask(phone, session, f"/act {agent}")) == "written"
        [told] = notifications(other, session, "agent_notification")
        assert told["title"] == title and (asks is None or told["priority"] == "high")
        end(phone, session)
    assert info(bridge)[agent].get("asks") is asks


def info(bridge: Bridge) -> dict[str, dict[str, Any]]:
    told = bridge.get("/api/v1/info", bridge.hook_token).json()
    return {one["name"]: one for one in told["agents"]}


def test_doctor_has_a_line_for_each_that_may_act_unasked(bridge: QuickBridge, phone: Phone) -> None:
    for agent in ("wild", "silent"):
        end(phone, begin(bridge, phone, agent=agent))
    checks = json.loads(doctor(bridge).stdout)["checks"]
    found = [one["text"] for one in checks if one["level"] == "warning"]
    assert any(text.startswith("wild ") and "does not ask" in text for text in found), found
    assert any(text.startswith("silent ") and "nobody knows" in text for text in found), found
    assert not any(text.startswith(("oc ", "demo ")) for text in found), found


@pytest.mark.parametrize("agent", ["strays", "strays-by-option"])
def test_an_agent_that_leaves_the_mode_is_set_back(
    bridge: Bridge, phone: Phone, agent: str
) -> None:
    said = refused_act(bridge, phone, agent, "/stray yolo")
    assert not [message for message in said if message["type"] == "error"]


@pytest.mark.parametrize("agent", ["stuck", "restless"])
def test_one_that_cannot_be_set_back_is_interrupted(bridge: Bridge, agent: str) -> None:
    """Every device is told; the next turn is not begun in that mode either."""
    with bridge.phones(2) as (phone, other):
        session = begin(bridge, phone, agent=agent)
        for name in ("first", "second"):
            said = ask(phone, session, f"/stray yolo {agent}-{name}")
            assert said[-1]["payload"]["finish_reason"] == "stop", said
            assert "written" not in words(said)
            told: dict[str, Any] = {"title": "Agent may act unasked", "priority": "high"}
            error = other.expect("notification", session_id=session, **told)["payload"]
            assert error["notification_type"] == "error" and "yolo" in error["body"]
            assert not (bridge.root / f"{agent}-{name}").exists()
        end(phone, session)


@pytest.mark.parametrize(
    ("agent", "does"), [("deaf", "/stray yolo never"), ("stuck", "stray later")]
)
def test_one_that_does_not_stop_either_is_ended(
    bridge: Bridge, phone: Phone, agent: str, does: str
) -> None:
    """Nor one of which nobody can see it, as no turn runs."""
    session = begin(bridge, phone, agent=agent)
    say(phone, session, does)
    phone.expect("notification", session_id=session, title="Agent may act unasked")
    wait_status(bridge, session, "paused")
    assert not (bridge.root / "never").exists()


def test_a_call_is_allowed_once_and_never_for_good(bridge: Bridge, phone: Phone) -> None:
    session = begin(bridge, phone, agent="strays")
    for number in range(2):
        say(phone, session, f"/act once-{number}")
        answer(phone, session, "approved")
        assert (bridge.root / f"once-{number}").exists()
    assert "chosen allow_always" not in words(phone.messages)
    end(phone, session)


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ("allow_always,reject_once", "reject_once"),
        ("allow_always,reject_always", "reject_always"),
        ("allow_always", "cancelled"),
        ("allow_once,allow_once", "cancelled"),
    ],
)
def test_what_offers_no_way_to_allow_it_once_is_refused(
    bridge: Bridge, phone: Phone, kinds: str, chosen: str
) -> None:
    """Nobody is asked, the call has a tool_error that says why, and the refusal is chosen."""
    session = begin(bridge, phone, agent="strays")
    said = ask(phone, session, f"/offer {kinds} for-good")
    assert f"chosen {chosen} " in words(said)
    [error] = [message["payload"] for message in said if message["type"] == "tool_error"]
    assert "allow this call once" in error["message"]
    assert not [message for message in said if message["type"] == "approval_required"]
    assert not (bridge.root / "for-good").exists()
    end(phone, session)
