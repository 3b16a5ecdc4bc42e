"""Yes once for all of a session: rules that a person chooses on a call (D68)."""

import json
import re
from typing import Any

import pytest

from tests.conformance.admin import Admin, links_of, rows_of, text_of
from tests.conformance.agents import ask, begin, end, log_of, resume, say, tool
from tests.conformance.approvals import decide, notifications, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.terminal import shown, take_back
from tests.faults.quick import bridge_of_module

pytestmark = [pytest.mark.spec("ws.approval_response"), pytest.mark.spec("ws.rule_remove")]
TRAIL = "/admin/devices_app/auditentry/"
bridge = bridge_of_module(BRIDGE_MAX_WEBSOCKETS="100")


@pytest.fixture
def session(bridge: Bridge, phone: Phone) -> str:
    return begin(bridge, phone)


def rules(phone: Phone, session: str) -> list[dict[str, Any]]:
    return list(shown(phone, session).get("rules", []))


def keep(phone: Phone, session: str, kind: str, **params: Any) -> dict[str, Any]:
    """Approve a call and keep the rule of that kind; the rule."""
    call = tool(phone, session, **params)
    offered = {one["id"]: one for one in call["remember"]}
    assert offered.keys() <= {"exact", "reads", "builds", "edits"}
    assert all(one["label"] and one["covers"] and one["not"] for one in offered.values())
    before = rules(phone, session)
    recorded = decide(phone, session, call["tool_call_id"], "approved", remember=kind)
    assert recorded["type"] == "approval_recorded", recorded
    phone.expect("tool_result", session_id=session, tool_call_id=call["tool_call_id"])
    phone.collect(lambda: len(rules(phone, session)) > len(before), "the session shows the rule")
    made = rules(phone, session)[-1]
    assert made["label"] == offered[kind]["label"] and made["used"] == 0 and made["since"]
    return made


def called(phone: Phone, session: str) -> dict[str, Any]:
    """The payload of the agent's next call, asked about or not."""
    call = phone.until(
        lambda message: (
            message["type"] in ("tool_call", "approval_required")
            and message["payload"]["session_id"] == session
        ),
        "the call",
    )
    return dict(call["payload"])


def approved_by(phone: Phone, session: str, command: str, name: str = "Bash") -> str | None:
    """Let the agent make a call; the rule that approved it, None if somebody is asked."""
    say(phone, session, f'/tool {name} {{"command": "{command}"}}')
    call = called(phone, session)
    if "risk_level" in call:
        assert "decided_by" not in call
        decide(phone, session, call["tool_call_id"], "rejected")
        phone.expect("tool_result", session_id=session, tool_call_id=call["tool_call_id"])
        return None
    assert call["decided_by"] == "rule"
    ended = phone.expect("tool_result", session_id=session, tool_call_id=call["tool_call_id"])
    assert ended["payload"]["result"]["success"]
    return str(call["rule"]["id"])


def test_a_rule_approves_what_is_like_it_and_nothing_else(
    bridge: Bridge, phone: Phone, session: str
) -> None:
    """And nobody is asked or notified; the log says which rule it was, and whose."""
    rule = keep(phone, session, "builds", command="pytest -q")
    assert approved_by(phone, session, "npm test") == rule["id"]
    assert len(of(phone, "approval_required", session)) == 1
    assert len(notifications(phone, session, "approval_required")) == 1
    assert len(notifications(phone, session, "approval_decided")) == 1
    assert approved_by(phone, session, "npm publish") is None
    assert approved_by(phone, session, "ls") is None
    assert approved_by(phone, session, "rm -rf build") is None
    phone.collect(lambda: rules(phone, session)[0]["used"] == 1, "its use is counted")
    by_rule = [one["payload"] for one in log_of(phone, session) if one["type"] == "tool_call"]
    named = {name: rule[name] for name in ("id", "label", "device", "since")}
    assert [one["rule"] for one in by_rule] == [named]
    trail = [
        row for row in rows_of(Admin(bridge, "ada").page(TRAIL)) if "rule" in row and session in row
    ]
    assert len(trail) == 1 and "decision" in trail[0], "it is in the audit trail"


def test_the_admin_site_shows_rules_and_what_they_approved(
    bridge: Bridge, phone: Phone, session: str
) -> None:
    rule = keep(phone, session, "builds", command="pytest -q")
    assert approved_by(phone, session, "npm test") == rule["id"]
    phone.collect(lambda: rules(phone, session)[0]["used"] == 1, "its use is counted")
    admin = Admin(bridge, "eve")
    words = f"{rule['label']} ({rule['device']}, since {rule['since']}, used 1 times)"
    assert words in detail(admin, "session", session)
    calls = admin.page(f"/admin/sessions_app/toolcall/?q={session}")
    (row,) = (one for one in rows_of(calls) if "npm test" in one)
    assert f"a rule of {rule['device']}" in row
    said = detail(admin, "toolcall", session)
    assert f"by the rule “{rule['label']}” of the device {rule['device']}" in said
    assert "Begun by the agent." in said
    end(phone, session)
    assert words not in detail(admin, "session", session)


def detail(admin: Admin, model: str, session: str) -> str:
    """The text of the newest one of a session."""
    listed = admin.page(f"/admin/sessions_app/{model}/?q={session}")
    address = next(one for one in links_of(listed) if re.search(rf"/{model}/\d+/change/", one))
    return text_of(admin.page(address.partition("?")[0]))


def test_the_very_same_call(phone: Phone, session: str) -> None:
    rule = keep(phone, session, "exact", command="npm install")
    assert "npm install" in rule["label"]
    assert approved_by(phone, session, "npm install") == rule["id"]
    assert approved_by(phone, session, "npm install x") is None


def test_what_nobody_may_remember(phone: Phone, session: str) -> None:
    """Nothing is offered with it, so nothing is taken; the call still waits."""
    call = tool(phone, session, command="rm -rf build")
    assert "remember" not in call
    for remember in ("exact", "builds", "", "other"):
        refused = decide(phone, session, call["tool_call_id"], "approved", remember=remember)
        assert refused["payload"]["code"] == "PROTO_INVALID_MESSAGE"
        assert "remember" in refused["payload"]["message"]
    decide(phone, session, call["tool_call_id"], "rejected")
    call = tool(phone, session, command="npm test")
    for decision in ("rejected", "modified"):
        refused = decide(phone, session, call["tool_call_id"], decision, remember="builds")
        assert refused["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    assert decide(phone, session, call["tool_call_id"], "approved")["type"] == "approval_recorded"
    # the answer is of another decision: without a rule
    late = decide(phone, session, call["tool_call_id"], "approved", remember="builds")
    assert late["payload"]["code"] == "TOOL_ALREADY_DECIDED"
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert approved_by(phone, session, "npm test") is None


def test_a_rule_is_taken_back(phone: Phone, session: str) -> None:
    rule = keep(phone, session, "builds", command="pytest -q")
    take_back(phone, session, rule["id"])
    assert approved_by(phone, session, "npm test") is None
    for id_, where, code in (
        (rule["id"], session, "PROTO_INVALID_MESSAGE"),
        ("x", session, "PROTO_INVALID_MESSAGE"),
        (rule["id"], "no-session", "SESSION_NOT_FOUND"),
    ):
        answer = phone.request("rule_remove", {"session_id": where, "rule_id": id_})
        assert answer["payload"]["code"] == code


def test_a_rule_ends_with_an_interrupt(phone: Phone, session: str) -> None:
    keep(phone, session, "builds", command="pytest -q")
    phone.send("session_interrupt", {"session_id": session})
    phone.collect(lambda: not rules(phone, session), "it is gone")
    assert approved_by(phone, session, "npm test") is None


def test_a_rule_ends_with_its_session(bridge: Bridge, phone: Phone, session: str) -> None:
    """It is not there when the session is resumed, nor in another one of the directory."""
    keep(phone, session, "builds", command="pytest -q")
    other = begin(bridge, phone)
    assert approved_by(phone, other, "npm test") is None
    bridge.restart("stop")
    phone.again()
    phone.collect(
        lambda: any(
            "Its rules have ended." in one["body"] for one in notifications(phone, session)
        ),
        "it is said",
    )
    assert not any("rules" in one["body"] for one in notifications(phone, other))
    assert resume(bridge, phone, session)["type"] == "session_ready"
    assert not rules(phone, session)
    assert approved_by(phone, session, "npm test") is None
    end(phone, session)


def test_a_rule_ends_with_its_device(bridge: Bridge, phone: Phone, session: str) -> None:
    """Whoever found the phone that was lost has set nothing."""
    pairing = bridge.pairing()
    lost = bridge.phone(pairing).ready()
    lost.join(session)
    call = tool(phone, session, command="pytest -q")
    decide(lost, session, call["tool_call_id"], "approved", remember="builds")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    phone.collect(lambda: bool(rules(phone, session)), "the other phone sees it too")
    bridge.manage("revoke_device", pairing.name)
    phone.collect(lambda: not rules(phone, session), "it is gone")
    assert approved_by(phone, session, "npm test") is None


@pytest.mark.slow
def test_at_most_fifty_rules(phone: Phone, session: str) -> None:
    """The oldest goes, so what was chosen last holds."""
    for number in range(52):
        call = tool(phone, session, command=f"touch file{number}")
        decide(phone, session, call["tool_call_id"], "approved", remember="exact")
        phone.expect("stream_end", session_id=session, finish_reason="stop")
    phone.collect(lambda: len(rules(phone, session)) == 50, "fifty are left")
    assert approved_by(phone, session, "touch file51") is not None
    assert approved_by(phone, session, "touch file0") is None


def test_a_rule_for_edits(bridge: Bridge, phone: Phone, session: str) -> None:
    keep_one = tool(phone, session, "Write", file_path="made.py", content="x")
    assert [one["id"] for one in keep_one["remember"]] == ["edits"]
    decide(phone, session, keep_one["tool_call_id"], "approved", remember="edits")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    done = ask(phone, session, '/tool Edit {"file_path": "made.py", "old_string": "x"}')
    assert "approval_required" not in [message["type"] for message in done]
    for path in ("package.json", "/etc/hosts", "../x", ".env"):
        call = tool(phone, session, "Write", file_path=path, content="x")
        assert "remember" not in call
        decide(phone, session, call["tool_call_id"], "rejected")


def afternoon() -> list[tuple[str, dict[str, str]]]:
    """60 calls: 30 that read, 12 builds and tests, 14 edits, two installs, two dangerous ones."""
    calls: list[tuple[str, dict[str, str]]] = []
    reads = ("ls", "git status --short", "git diff --stat", "pwd", "date", "git log --oneline -3")
    builds = ("npm test", "npm run build", "pytest -q 2>&1 | tail -5")
    for number in range(30):
        calls.append(("Bash", {"command": reads[number % len(reads)]}))
        if number % 5 < 2:
            calls.append(("Bash", {"command": builds[number % len(builds)]}))
        if number % 2 == 0 and number < 28:
            edit = {"file_path": f"part{number}.py", "content": f"{number}"}
            calls.append(("Write", edit))
    calls[20:20] = [("Bash", {"command": "npm install"}), ("Bash", {"command": "rm -rf build"})]
    return [*calls, ("Bash", {"command": "npm install"}), ("Bash", {"command": "git push --force"})]


@pytest.mark.slow
def test_an_afternoon_takes_ten_taps(bridge: Bridge, phone: Phone) -> None:
    """Each call that ran was allowed by a decision or by a rule that was chosen on a card."""
    (bridge.root / ".git").mkdir(exist_ok=True)
    session, taps, calls = begin(bridge, phone), 0, afternoon()
    assert len(calls) == 60
    decided, by_rule, ran = set(), set(), set()
    for name, params in calls:
        before = len(phone.messages)
        say(phone, session, f"/tool {name} {json.dumps(params)}")
        call = called(phone, session)
        id_ = call["tool_call_id"]
        if call.get("decided_by") == "rule":
            by_rule.add(id_)
        else:
            taps += 1
            offers = [one["id"] for one in call.get("remember", [])]
            more = {"remember": offers[-1]} if offers else {}
            assert call["risk_level"] == "critical" or offers
            decide(phone, session, id_, "approved" if offers else "rejected", **more)
            if offers:
                decided.add(id_)
        phone.expect("stream_end", session_id=session, finish_reason="stop")
        ran |= {
            one["payload"]["tool_call_id"]
            for one in phone.messages[before:]
            if one["type"] == "tool_result" and one["payload"]["result"]["success"]
        }
    assert ran == decided | by_rule and not decided & by_rule
    assert taps <= 10, taps
