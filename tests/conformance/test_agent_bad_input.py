"""Agents that are not there, hang, talk nonsense or end, and people who ask for what cannot be
(issue, Bad input; D7, D35, D36, D39, D41, D48).
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.agent_tools import (
    CHAT,
    Script,
    alive,
    http_say,
    restart,
    served,
    status,
    stream,
    tidied,
    wait_status,
)
from tests.conformance.agents import (
    answer_to,
    ask,
    begin,
    end,
    log_of,
    say,
    send_start,
    start,
    words,
)
from tests.conformance.approvals import (
    assert_refused,
    assert_stands,
    decide,
    notifications,
    of,
    pending,
)
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session
from tests.faults.quick import QuickBridge, with_limits

MODES = ("plain", "exits", "flaky", "garbage", "nonsense", "refuses", "hangs")
LIMIT = 10
KEY = "the-user's-own-key"
# after which an agent that does not start has failed here; elsewhere it has a minute
START_SECONDS = 20


class Impatient(QuickBridge):
    """It serves as any other, but for how long it waits for an agent to start, and to try again."""

    first = with_limits(AGENT_START_SECONDS=START_SECONDS, CIRCUIT_BREAKER_PROBE_SECONDS=3)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), *MODES)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without this file the agent `late` does not start."""
    return tmp_path_factory.mktemp("late") / "there"


@pytest.fixture(scope="module")
def bridge(
    tmp_path_factory: pytest.TempPathFactory, script: Script, there: Path
) -> Iterator[Bridge]:
    absent = f"absent=no-such-program-{new_id()} --acp"
    plain = script.setting.split(";")[0].removeprefix("plain=")
    late = f"late=sh -c {shlex.quote(f'test -e {shlex.quote(str(there))} && exec {plain}')}"
    impatient = Impatient(
        tmp_path_factory.mktemp("bad-agents"),
        BRIDGE_ACP_AGENTS=f"{script.setting};{late};{absent}",
        BRIDGE_DEFAULT_AGENT="demo",
        SCRIPTED_API_KEY=KEY,
    )
    with served(impatient, script) as bridge:
        yield bridge


class Hanging(NamedTuple):
    """Somebody who has asked for an agent that hangs, and waits."""

    phone: Phone
    sid: str
    asked: str


@pytest.fixture(scope="module")
def hanging(bridge: Bridge) -> Iterator[Hanging]:
    """Asked for as early as can be: it hangs while the other tests run."""
    with bridge.phones(1) as (phone,):
        sid = new_session()
        yield Hanging(phone, sid, send_start(phone, bridge.root, sid, "hangs"))


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest, bridge: Bridge, hanging: Hanging) -> Iterator[None]:
    """A test that fails leaves nothing to the next one."""
    with tidied(request, bridge, spared=[hanging.sid]):
        yield


def readable(payload: dict[str, Any], *any_of: str) -> None:
    """Words that a person can act on: a sentence, with something of what went wrong, and nothing of
    the inside.
    """
    text = payload["message"]
    assert len(text.split()) >= 3, text
    assert not any(inside in text for inside in ("Traceback", "Error(", "object at 0x")), text
    assert not any_of or any(word.lower() in text.lower() for word in any_of), text


# -- while an agent hangs: first, before it has failed ---------------------------------------------


def test_others_work_while_an_agent_hangs(bridge: Bridge, hanging: Hanging, phone: Phone) -> None:
    """Its session is created, whoever waits is answered meanwhile, and others start theirs."""
    eventually(lambda: bridge.knows(hanging.sid))
    alive(hanging.phone)
    other = begin(bridge, phone)
    assert words(ask(phone, other, "meanwhile")).endswith("meanwhile")
    assert status(bridge, hanging.sid) in ("created", "error")
    end(phone, other)


# -- what cannot be started ------------------------------------------------------------------------


def test_what_cannot_be_asked_for(bridge: Bridge, phone: Phone) -> None:
    """D41, D7: an unknown agent, a directory outside the roots or that is none: its code, in words,
    nothing created and nobody told.
    """
    (bridge.root / "a file").write_text("x")
    (bridge.root / "out").unlink(missing_ok=True)
    (bridge.root / "out").symlink_to("/tmp", target_is_directory=True)
    cases: list[tuple[str, Path | str, str, list[str]]] = [
        ("nobody", bridge.root, "AGENT_UNAVAILABLE", ["nobody", "demo"]),
        ("absent", bridge.root, "AGENT_UNAVAILABLE", ["absent", "found"]),
        ("demo", "/", "FILE_ACCESS_DENIED", ["outside"]),
        ("demo", bridge.data, "FILE_ACCESS_DENIED", []),
        ("demo", f"{bridge.root}/..", "FILE_ACCESS_DENIED", []),
        ("demo", f"{bridge.root}/out", "FILE_ACCESS_DENIED", []),
        ("demo", f"{bridge.root}/a file", "FILE_INVALID_PATH", ["director"]),
        ("demo", f"{bridge.root}/missing", "FILE_NOT_FOUND", []),
        ("demo", "", "FILE_INVALID_PATH", []),
    ]
    with bridge.phones(1) as (other,):
        for agent, directory, code, said in cases:
            wanted = new_session()
            answer = start(phone, directory, wanted, agent=agent)
            readable(assert_refused(answer, code, True), *said)
            assert not bridge.knows(wanted), f"{agent} in {directory}"
        alive(phone)
        bridge.fence(other)
        told = [message for message in other.messages if message["type"] == "session_started"]
        assert len(told) == 1, "only the fence's own"


def test_what_is_offered(bridge: Bridge, phone: Phone) -> None:
    """D41: supported_agents lists what can start here and now: not a program that is not there.
    primary-agent and an empty name mean BRIDGE_DEFAULT_AGENT.
    """
    for name in ("primary-agent", ""):
        ready = start(phone, bridge.root, agent=name)
        assert ready["payload"]["agent"] == "demo", ready
        end(phone, ready["payload"]["session_id"])
    phone.close()
    phone.connect()
    offered = phone.auth()["payload"]["supported_agents"]
    assert {"demo", "plain"} <= set(offered) and not {"absent", "nobody"} & set(offered)
    assert bridge.get("/api/v1/info", bridge.admin_token).json()["supported_agents"] == offered


def assert_last_words(bridge: Bridge, error: dict[str, Any]) -> None:
    """What the agent wrote on its error output is told and logged, without the keys in it."""
    for text in (error["message"], bridge.log.read_text(errors="replace")):
        assert "waiting for the network with [hidden] and [hidden]" in text
        assert KEY not in text


def test_an_agent_that_wants_a_log_in(bridge: Bridge, phone: Phone, sid: str) -> None:
    """What is to be done is said first, then the ways that the agent names, then its last words."""
    error = assert_refused(start(phone, bridge.root, sid, agent="refuses"), "AGENT_ERROR", True)
    at = [
        error["message"].index(words)
        for words in (
            "log in with `scripted login` first",
            "in a terminal on the bridge's machine",
            "A key (Requires SCRIPTED_API_KEY); A browser.",
            "waiting for the network",
        )
    ]
    assert at == sorted(at)
    assert_last_words(bridge, error)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("exits", ["newer machine"]),
        ("garbage", ["no protocol", "protocol", "messages"]),
        ("nonsense", []),
        ("refuses", ["log in"]),
    ],
)
def test_an_agent_that_does_not_start(
    bridge: Bridge, script: Script, phone: Phone, mode: str, said: list[str]
) -> None:
    """D35: error when the agent cannot start, with the reason; D51: every device is told; it is not
    listed as running, and can be ended.
    """
    sid = new_session()
    with bridge.phones(1) as (other,):
        error = assert_refused(start(phone, bridge.root, sid, agent=mode), "AGENT_ERROR", True, sid)
        readable(error, *said)
        assert f"{START_SECONDS} s" not in error["message"], "it is not waited for"
        assert status(bridge, sid) == "error"
        notice = other.expect("notification", session_id=sid, notification_type="error")["payload"]
        assert notice["body"] and notice["priority"] == "high"
        # whoever asked has it in the answer, and also on its next connection not twice
        for _ in range(2):
            end(phone, begin(bridge, phone))
            assert not notifications(phone, sid, "error")
            phone.ack(*(message for message in phone.messages if message.get("id")))
            phone.close()
            phone.ready()
        eventually(
            lambda: not [line for line in script.processes().values() if f" {mode} " in line]
        )
    alive(phone)
    phone.join(sid)
    refused = assert_refused(
        phone.request("message", {"session_id": sid} | CHAT), "SESS_NOT_ACTIVE", True, sid
    )
    readable(refused, "resume")
    assert_error(http_say(bridge, sid, {"type": "user_message", "content": "hi"}), 409)
    end(phone, sid)
    assert status(bridge, sid) == "closed"


def test_an_agent_that_starts_the_second_time(bridge: Bridge, phone: Phone) -> None:
    """D35: error becomes active by resume, also for an agent that had never run; as long as it
    fails the session stays in error.
    """
    sid = new_session()
    error = assert_refused(start(phone, bridge.root, sid, agent="flaky"), "AGENT_ERROR", True, sid)
    assert "not this time" in error["message"]
    assert start(phone, bridge.root, sid, resume=True)["type"] == "session_ready"
    assert status(bridge, sid) == "active" and "2 characters" in words(ask(phone, sid, "hi"))
    end(phone, sid)


# -- agents that end -------------------------------------------------------------------------------


@pytest.mark.spec("wscode.AGENT_ERROR", "severity.error")
def test_an_agent_that_exits_in_the_middle_of_a_turn(bridge: Bridge, phone: Phone) -> None:
    """D35: a crash is the state error, with the reason; what was said is there, its stream is
    ended; a resume begins a new agent in the same session.
    """
    sid = begin(bridge, phone, agent="plain")
    messages = ask(phone, sid, "/exit 0")
    assert words(messages) == "so far " and messages[-1]["payload"]["finish_reason"] == "error"
    error = phone.expect("error", session_id=sid)["payload"]
    assert error["code"] == "AGENT_ERROR" and error["recoverable"] is True
    readable(error, "it went wrong", "exit", "ended")
    phone.expect("notification", session_id=sid, notification_type="error")
    wait_status(bridge, sid, "error")
    alive(phone)
    assert start(phone, bridge.root, sid, resume=True)["type"] == "session_ready"
    assert status(bridge, sid) == "active" and "4 characters" in words(ask(phone, sid, "back"))
    end(phone, sid)


def test_an_agent_that_dies_while_somebody_thinks(bridge: Bridge, phone: Phone) -> None:
    """D35, D38: nothing is approved for an agent that is gone: the pending approval is rejected,
    and a decision that comes later changes nothing.
    """
    sid = begin(bridge, phone, agent="plain")
    say(phone, sid, "/ask-and-die make test")
    call_id = phone.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
    assert phone.expect("error", session_id=sid)["payload"]["code"] == "AGENT_ERROR"
    wait_status(bridge, sid, "error")
    told = phone.expect("notification", session_id=sid, notification_type="approval_decided")
    assert "because the agent" in told["payload"]["body"] and "told" not in told["payload"]["body"]
    decided = told["payload"]["data"]
    assert (decided["tool_call_id"], decided["decision"]) == (call_id, "rejected")
    assert decided["decided_by"] == "bridge" and decided["reason"]
    assert_stands(decide(phone, sid, call_id, "approved"), "rejected", "bridge")
    assert call_id not in pending(bridge, sid)
    [result] = of(phone, "tool_result", sid)
    assert result["payload"]["tool_call_id"] == call_id
    assert result["payload"]["result"]["success"] is False
    assert stream(phone.messages, sid)[-1]["payload"]["finish_reason"] == "error"
    end(phone, sid)


# -- too much --------------------------------------------------------------------------------------


def test_prompts_of_megabytes(bridge: Bridge, phone: Phone) -> None:
    """Issue, bad input: 9 MB is a prompt that arrives whole, in characters of several bytes too;
    over max_message_size_mb the frame is refused (D9).
    """
    sid = begin(bridge, phone, agent="plain")
    for text in ("0123456789abcdef" * (9 * 2**20 // 16), "dünn\u2028\U0001f600\x00 " * 200_000):
        said, digest = words(ask(phone, sid, text)), hashlib.sha256(text.encode()).hexdigest()
        assert said.startswith(f"{len(text)} characters, {digest}"), said[:200]
    with bridge.phones(1) as (other,):
        other.join(sid)
        before = len(log_of(other, sid))
        say(other, sid, "x" * (11 * 2**20))
        assert other.wait_closed() in (1006, 1009)
        assert len(log_of(phone, sid)) == before, "nothing of it was said to the agent"
    answer = http_say(bridge, sid, {"type": "user_message", "content": "x" * (11 * 2**20)})
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")
    assert "5 characters" in words(ask(phone, sid, "small"))
    end(phone, sid)


# -- what has begun first has ended, and nothing else runs -----------------------------------------


def test_an_agent_that_hangs_at_start(bridge: Bridge, script: Script, hanging: Hanging) -> None:
    """D35: an agent that does not start within its time has failed: AGENT_ERROR in words, the
    session in error, its process gone.
    """
    phone, sid, asked = hanging
    error = assert_refused(answer_to(phone, asked), "AGENT_ERROR", True, sid)
    readable(error, f"{START_SECONDS} s")
    assert_last_words(bridge, error)
    assert status(bridge, sid) == "error"
    eventually(lambda: not [line for line in script.processes().values() if " hangs " in line])


@pytest.mark.spec("limit.max_sessions.enforced")
def test_an_eleventh_session(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D36: ten that are created or active are the limit; what failed, is paused or closed does not
    count; a paused one cannot be resumed over it.
    """
    paused, failed = begin(bridge, phone), new_session()
    restart(bridge, "stop")
    phone.ready()
    assert_refused(start(phone, bridge.root, failed, agent="exits"), "AGENT_ERROR", True, failed)
    bridge.accept(hook("SessionStart", new_session()))
    running = [begin(bridge, phone) for _ in range(LIMIT)]
    assert [status(bridge, sid) for sid in (paused, failed)] == ["paused", "error"]
    for session_id in (None, new_session()):
        refused = start(phone, bridge.root, session_id)
        readable(assert_refused(refused, "SESS_LIMIT_REACHED", True), "10", "end")
        assert session_id is None or not bridge.knows(session_id)
    for sid in (paused, failed):
        assert_refused(start(phone, bridge.root, sid, resume=True), "SESS_LIMIT_REACHED", True)
    assert [status(bridge, sid) for sid in (paused, failed)] == ["paused", "error"]
    assert not script.processes(), "of none of them"
    alive(phone)
    end(phone, running.pop())
    assert start(phone, bridge.root, paused, resume=True)["type"] == "session_ready"
    assert "here again" in words(ask(phone, paused, "here again"))
    for sid in (paused, *running):
        end(phone, sid)


@pytest.mark.spec("wscode.CIRCUIT_OPEN", "limit.circuit_breaker", "severity.critical")
def test_an_agent_that_does_not_start_for_long(bridge: Bridge, phone: Phone, there: Path) -> None:
    """D35, D48: each failure leaves a session in error with the reason; after five, CIRCUIT_OPEN,
    nothing created, and /health says agent_sdk. One probe after a while keeps it open, or closes
    it.
    """
    assert_refused(start(phone, bridge.root, agent="absent"), "AGENT_UNAVAILABLE", True)
    ids = [new_id() for _ in range(5)]
    for sid in ids:
        assert bridge.get("/api/v1/health", bridge.admin_token).status == 200
        answer = start(phone, bridge.root, sid, agent="late")
        assert assert_refused(answer, "AGENT_ERROR", True, sid)["message"]
        assert status(bridge, sid) == "error"

    def comes_to(code: str | None) -> str:
        """Ask until that is the answer; the id that was asked for."""
        wanted: list[str] = []

        def answers() -> bool:
            wanted.append(new_id())
            answer = start(phone, bridge.root, wanted[-1], agent="late")
            return bool(answer["payload"].get("code") == code)

        eventually(answers)
        return wanted[-1]

    assert not bridge.knows(comes_to("CIRCUIT_OPEN"))
    health = bridge.get("/api/v1/health", bridge.admin_token)
    assert health.status == 503 and health.json()["checks"]["agent_sdk"] == "unhealthy"
    phone.join(ids[0])
    assert_refused(
        phone.request("message", {"session_id": ids[0]} | CHAT), "SESS_NOT_ACTIVE", True, ids[0]
    )
    end(phone, begin(bridge, phone))
    for code in ("AGENT_ERROR", "CIRCUIT_OPEN"):
        comes_to(code)
    there.touch()
    end(phone, comes_to(None))
    end(phone, begin(bridge, phone, agent="late"))
