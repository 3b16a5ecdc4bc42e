"""Agents that are not there, hang, talk nonsense or end, and people who ask for what cannot be
(issue, Bad input; D7, D35, D36, D39, D41, D48).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent_tools import (
    CHAT,
    Script,
    alive,
    http_say,
    restart,
    status,
    stream,
    tidied,
    wait_status,
)
from tests.conformance.agents import ask, begin, end, log_of, say, start, words
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
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_id, new_session
from tests.faults.quick import ImpatientBridge, nursery

MODES = ("plain", "exits", "flaky", "garbage", "nonsense", "refuses", "hangs")
LIMIT = 10
KEY = "the-user's-own-key"
# after which an agent that does not start has failed here; elsewhere it has a minute
START_SECONDS = 20


class Impatient(ImpatientBridge):
    """It serves as any other, but for how long it waits for an agent to start."""

    limit, seconds = "AGENT_START_SECONDS", START_SECONDS


@dataclass
class Waited:
    """What a phone that asked for an agent that hangs has seen."""

    answer: Message
    seconds: float
    slowest_pong: float
    alive: bool


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), *MODES)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    agents = f"{script.setting};broken=/bin/false;absent=no-such-program-{new_id()} --acp"
    bridge = Impatient(
        tmp_path_factory.mktemp("bad-agents"),
        BRIDGE_ACP_AGENTS=agents,
        BRIDGE_DEFAULT_AGENT="demo",
        BRIDGE_MAX_WEBSOCKETS="20",
        SCRIPTED_API_KEY=KEY,
    )
    try:
        bridge.start()
        bridge.pin = bridge.pairing().pin
        yield bridge
        bridge.stop()
        script.assert_gone()
    finally:
        nursery.forget(bridge.environment)


@pytest.fixture(scope="module")
def hanging(bridge: Bridge) -> Iterator[tuple[str, Future[Waited]]]:
    """A session whose agent hangs at start, begun as early as can be, and what becomes of it."""
    sid, stop = new_session(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        yield sid, pool.submit(wait_for_it, bridge, sid, stop)
        stop.set()


@pytest.fixture(autouse=True)
def begins_early(
    request: pytest.FixtureRequest, bridge: Bridge, hanging: tuple[str, Future[Waited]]
) -> Iterator[None]:
    """What hangs does so while the other tests run, of which one that fails leaves nothing to the
    next one.
    """
    with tidied(request, bridge, spared=hanging[:1]):
        yield


def wait_for_it(bridge: Bridge, sid: str, stop: threading.Event) -> Waited:
    """Ask for an agent that hangs, and show meanwhile that somebody is there (D25)."""
    with bridge.phones(1) as (phone,):
        began, slowest = time.monotonic(), 0.0
        id_ = phone.send(
            "session_start",
            {
                "agent": "hangs",
                "session_id": sid,
                "working_directory": str(bridge.root),
                "resume": False,
            },
        )
        while not stop.is_set() and time.monotonic() - began < START_SECONDS + 45:
            asked = time.monotonic()
            phone.ping()
            slowest = max(slowest, time.monotonic() - asked)
            try:
                answer = phone.until(lambda message: message.get("id") == id_, "the answer", 2)
            except AssertionError:
                continue
            seconds = time.monotonic() - began
            alive(phone)
            return Waited(answer, seconds, slowest, phone.connected)
    raise AssertionError(f"no answer within {time.monotonic() - began} s")


def readable(payload: dict[str, Any], *any_of: str) -> None:
    """Words that a person can act on: a sentence, with something of what went wrong, and nothing of
    the inside.
    """
    text = payload["message"]
    assert (
        len(text.split()) >= 3
        and "Traceback" not in text
        and "Error(" not in text
        and "object at 0x" not in text
    ), text
    assert not any_of or any(word.lower() in text.lower() for word in any_of), (
        f"none of {any_of} in {text!r}"
    )


# -- while an agent hangs: first, before it has failed ---------------------------------------------


def test_others_work_while_an_agent_hangs(
    bridge: Bridge, hanging: tuple[str, Future[Waited]], phone: Phone
) -> None:
    """Its session is created, and others start theirs."""
    sid, waited = hanging
    eventually(lambda: bridge.knows(sid))
    sid_of_another = begin(bridge, phone)
    assert words(ask(phone, sid_of_another, "meanwhile")).endswith("meanwhile")
    assert waited.done() or status(bridge, sid) in ("created", "error")
    end(phone, sid_of_another)


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
        fenced = [
            message["payload"]["session_id"]
            for message in other.messages
            if message["type"] == "session_started"
        ]
        assert len(fenced) == 1, "only the fence's own"


@pytest.mark.parametrize("name", ["primary-agent", ""])
def test_names_that_leave_the_choice(bridge: Bridge, phone: Phone, name: str) -> None:
    """D41: primary-agent and an empty name mean BRIDGE_DEFAULT_AGENT."""
    ready = start(phone, bridge.root, agent=name)
    assert ready["payload"]["agent"] == "demo", ready
    end(phone, ready["payload"]["session_id"])


def test_what_is_offered(bridge: Bridge, phone: Phone) -> None:
    """D41: supported_agents lists what can start here and now: not a program that is not there."""
    phone.close()
    phone.connect()
    offered = phone.auth()["payload"]["supported_agents"]
    assert (
        "demo" in offered
        and "plain" in offered
        and "absent" not in offered
        and "nobody" not in offered
    )
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
        began = time.monotonic()
        error = assert_refused(
            start(phone, bridge.root, sid, agent=mode, timeout=180), "AGENT_ERROR", True, sid
        )
        readable(error, *said)
        assert time.monotonic() - began < START_SECONDS, "it is not waited for"
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
    assert (
        "not this time"
        in assert_refused(start(phone, bridge.root, sid, agent="flaky"), "AGENT_ERROR", True, sid)[
            "message"
        ]
    )
    assert start(phone, bridge.root, sid, resume=True)["type"] == "session_ready"
    assert status(bridge, sid) == "active" and "2 characters" in words(ask(phone, sid, "hi"))
    end(phone, sid)


# -- agents that end -------------------------------------------------------------------------------


@pytest.mark.spec("wscode.AGENT_ERROR", "severity.error")
@pytest.mark.parametrize("code", [0, 3])
def test_an_agent_that_exits_in_the_middle_of_a_turn(
    bridge: Bridge, phone: Phone, code: int
) -> None:
    """D35: a crash is the state error, with the reason; what was said is there, its stream is
    ended; a resume begins a new agent in the same session.
    """
    sid = begin(bridge, phone, agent="plain")
    messages = ask(phone, sid, f"/exit {code}")
    assert words(messages) == "so far " and messages[-1]["payload"]["finish_reason"] == "error"
    error = phone.expect("error", session_id=sid)["payload"]
    assert error["code"] == "AGENT_ERROR" and error["recoverable"] is True
    readable(error, "it went wrong", "exit", "ended")
    phone.expect("notification", session_id=sid, notification_type="error")
    wait_status(bridge, sid, "error")
    readable(
        assert_refused(
            phone.request("message", {"session_id": sid} | CHAT), "SESS_NOT_ACTIVE", True, sid
        ),
        "resume",
    )
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
    assert (decided["tool_call_id"], decided["decision"], decided["decided_by"]) == (
        call_id,
        "rejected",
        "bridge",
    ) and decided["reason"]
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
        said = words(ask(phone, sid, text))
        assert said.startswith(
            f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()}"
        ), said[:200]
    with bridge.phones(1) as (other,):
        other.join(sid)
        before = len(log_of(other, sid))
        try:
            say(other, sid, "x" * (11 * 2**20))
            code = other.wait_closed()
        except (OSError, TimeoutError) as error:
            pytest.fail(f"neither a close nor an answer: {error!r}")
        assert code in (1006, 1009), code
        assert len(log_of(phone, sid)) == before, "nothing of it was said to the agent"
    answer = http_say(bridge, sid, {"type": "user_message", "content": "x" * (11 * 2**20)})
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")
    assert "5 characters" in words(ask(phone, sid, "small"))
    end(phone, sid)


# -- what has begun first has ended, and nothing else runs -----------------------------------------


def test_an_agent_that_hangs_at_start(
    bridge: Bridge, script: Script, hanging: tuple[str, Future[Waited]]
) -> None:
    """D35: an agent that does not start within its time has failed: AGENT_ERROR in words, the
    session in error, its process gone, the connection alive.
    """
    sid, waited = hanging
    seen = waited.result(START_SECONDS + 60)
    error = assert_refused(seen.answer, "AGENT_ERROR", True, sid)
    readable(error, str(START_SECONDS), "second", "in time")
    assert seen.seconds >= START_SECONDS - 0.5 and seen.alive
    assert seen.slowest_pong < 10, "the pong wait: its phone would have thought the bridge gone"
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
        readable(
            assert_refused(start(phone, bridge.root, session_id), "SESS_LIMIT_REACHED", True),
            "10",
            "end",
        )
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
def test_an_agent_that_never_starts(bridge: Bridge, phone: Phone) -> None:
    """D35, D48: each failure leaves a session in error with the reason; after five, CIRCUIT_OPEN,
    nothing created, and /health says agent_sdk.
    """
    assert_refused(start(phone, bridge.root, agent="absent"), "AGENT_UNAVAILABLE", True)
    ids = [new_id() for _ in range(6)]
    for sid in ids[:5]:
        assert bridge.get("/api/v1/health", bridge.admin_token).status == 200
        error = assert_refused(
            start(phone, bridge.root, sid, agent="broken"), "AGENT_ERROR", True, sid
        )
        assert status(bridge, sid) == "error" and error["message"]
    assert_refused(start(phone, bridge.root, ids[5], agent="broken"), "CIRCUIT_OPEN", True)
    assert not bridge.knows(ids[5])
    health = bridge.get("/api/v1/health", bridge.admin_token)
    assert health.status == 503 and health.json()["checks"]["agent_sdk"] == "unhealthy"
    phone.join(ids[0])
    assert_refused(
        phone.request("message", {"session_id": ids[0]} | CHAT), "SESS_NOT_ACTIVE", True, ids[0]
    )
    end(phone, begin(bridge, phone))
