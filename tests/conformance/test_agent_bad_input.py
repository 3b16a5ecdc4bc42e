"""Agents that hang, talk nonsense or end, and what cannot be asked for (D7, D35, D36, D41, D48)."""

import hashlib
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent_tools import CHAT, Script, http_say, quick_bridge, script_of, status
from tests.conformance.agents import ask, asked, begin, end, resume, send_start, start, words
from tests.conformance.approvals import assert_refused, assert_stands, decide, notifications
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session
from tests.servers import wait_until
from tests.short import SHORT, short

LIMIT = 10
KEY = "the-user's-own-key"
# after which an agent that does not start has failed here; elsewhere it has a minute
START_SECONDS = SHORT["AGENT_START_SECONDS"]
Hanging = tuple[Phone, str, str, str]

script = script_of("plain", "exits", "garbage", "nonsense", "version", "refuses", "hangs")


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    """Its agent `late` does not start before `script.go` is there."""
    absent = "absent='/home/alice/secret place/no-such-agent' --key=1"
    plain = script.setting.split(";")[0].removeprefix("plain=")
    late = f"late=sh -c {shlex.quote(f'test -e {shlex.quote(str(script.go))} && exec {plain}')}"
    with quick_bridge(
        tmp_path_factory.mktemp("bad-agents"),
        script,
        BRIDGE_ACP_AGENTS=f"{script.setting};{late};{absent}",
        BRIDGE_DEFAULT_AGENT="demo",
        SCRIPTED_API_KEY=KEY,
        **short("AGENT_START_SECONDS", "CIRCUIT_BREAKER_PROBE_SECONDS"),
    ) as bridge:
        yield bridge


@pytest.fixture(scope="module", autouse=True)
def hanging(bridge: Bridge) -> Iterator[Hanging]:
    """Who waits for an agent that hangs, its session, the request and a message right behind it:
    meanwhile others work.
    """
    with bridge.phones(1) as (phone,):
        sid = new_session()
        started = send_start(phone, bridge.root, sid, "hangs")
        said = phone.send("message", {"session_id": sid, "content": "x", "role": "user"})
        yield phone, sid, started, said


def readable(payload: dict[str, Any], *said: str) -> None:
    """A sentence in which all this is said, in order, and nothing of the inside."""
    text = payload["message"]
    assert len(text.split()) >= 3, text
    assert not any(inside in text for inside in ("Traceback", "Error(", "object at 0x")), text
    at = [text.find(words_of_it) for words_of_it in said]
    assert -1 not in at and at == sorted(at), text


def test_what_cannot_be_asked_for(bridge: Bridge, phone: Phone) -> None:
    """D41, D7: its code, in words; nothing is created and nobody told."""
    (bridge.root / "a file").write_text("x")
    (bridge.root / "out").symlink_to("/tmp", target_is_directory=True)
    odd = os.fsencode(bridge.root) + b"/dir\xe9"
    os.mkdir(odd)
    os.symlink(odd, os.fsencode(bridge.root) + b"/plain")
    cases: list[tuple[str, Path | str, str, list[str]]] = [
        ("nobody", bridge.root, "AGENT_UNAVAILABLE", ["nobody", "demo"]),
        ("absent", bridge.root, "AGENT_UNAVAILABLE", ["no-such-agent is not installed"]),
        ("demo", "/", "FILE_ACCESS_DENIED", ["outside", str(bridge.root)]),
        ("demo", bridge.data, "FILE_ACCESS_DENIED", []),
        ("demo", f"{bridge.root}/..", "FILE_ACCESS_DENIED", []),
        ("demo", f"{bridge.root}/out", "FILE_ACCESS_DENIED", []),
        ("demo", f"{bridge.root}/a file", "FILE_INVALID_PATH", ["director"]),
        ("demo", f"{bridge.root}/plain", "FILE_INVALID_PATH", ["UTF-8"]),
        ("demo", f"{bridge.root}/missing", "FILE_NOT_FOUND", []),
        ("demo", "", "FILE_INVALID_PATH", []),
    ]
    with bridge.phones(1) as (other,):
        for agent, directory, code, said in cases:
            wanted = new_session()
            answer = start(phone, directory, wanted, agent=agent)
            readable(refused := assert_refused(answer, code, True), *said)
            assert "alice" not in refused["message"] and "key" not in refused["message"]
            assert not bridge.knows(wanted), f"{agent} in {directory}"
        phone.ping()
        bridge.fence(other)
        told = [message for message in other.messages if message["type"] == "session_started"]
        assert len(told) == 1, "only the fence's own"


def test_what_is_offered(bridge: Bridge, phone: Phone) -> None:
    """D41: what can start here; primary-agent and an empty name mean BRIDGE_DEFAULT_AGENT."""
    for name in ("primary-agent", ""):
        ready = start(phone, bridge.root, agent=name)
        assert ready["payload"]["agent"] == "demo", ready
        end(phone, ready["payload"]["session_id"])
    phone.close()
    offered = phone.connect().auth()["payload"]["supported_agents"]
    assert {"demo", "plain"} <= set(offered) and not {"absent", "nobody"} & set(offered)
    assert bridge.get("/api/v1/info", bridge.admin_token).json()["supported_agents"] == offered


def assert_last_words(bridge: Bridge, error: dict[str, Any]) -> None:
    """What the agent wrote on its error output is told and logged, without the keys in it."""
    for text in (error["message"], bridge.log.read_text(errors="replace")):
        assert "waiting for the network with [hidden] and [hidden]" in text
        assert KEY not in text


# what is to be done, then the ways that the agent names, then its last words
LOG_IN = ["log in with `scripted login` first", "in a terminal on the bridge's machine"]
LOG_IN += ["A key (Requires SCRIPTED_API_KEY); A browser.", "waiting for the network"]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("exits", ["newer machine"]),
        ("garbage", ["its output is not the Agent Client Protocol"]),
        ("nonsense", []),
        ("version", ["version 99"]),
        ("refuses", LOG_IN),
    ],
)
def test_an_agent_that_does_not_start(
    bridge: Bridge, script: Script, phone: Phone, sid: str, mode: str, said: list[str]
) -> None:
    """D35, D51: in error, every device is told once why, no process is left; it can be ended."""
    with bridge.phones(1) as (other,):
        error = assert_refused(start(phone, bridge.root, sid, agent=mode), "AGENT_ERROR", True, sid)
        readable(error, *said)
        assert f"{START_SECONDS} s" not in error["message"], "it is not waited for"
        if mode == "refuses":
            assert_last_words(bridge, error)
        assert status(bridge, sid) == "error"
        notice = other.expect("notification", session_id=sid, notification_type="error")["payload"]
        assert notice["body"] and notice["priority"] == "high"
    for _ in range(2):
        bridge.fence(phone)
        assert not notifications(phone, sid, "error"), "whoever asked has it in the answer"
        phone.ack(*(message for message in phone.messages if message.get("id")))
        phone.again()
    wait_until(lambda: not [line for line in script.processes().values() if f" {mode} " in line])
    phone.join(sid)
    refused = phone.request("message", {"session_id": sid} | CHAT)
    readable(assert_refused(refused, "SESS_NOT_ACTIVE", True, sid), "Resume")
    assert_error(http_say(bridge, sid), 409)
    end(phone, sid)
    assert status(bridge, sid) == "closed"


@pytest.mark.spec("wscode.AGENT_ERROR", "severity.error")
def test_an_agent_that_dies(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D35: in a turn, between two, while it asks: the state error, with the reason; a resume begins
    a new one in its directory, with the first one's own id. D38: what it asked is rejected.
    """

    def agent() -> int:
        (pid,) = [pid for pid, line in script.processes().items() if " plain " in line]
        return pid

    def assert_failed(*words_of_it: str) -> None:
        error = assert_refused(phone.expect("error", session_id=sid), "AGENT_ERROR", True, sid)
        readable(error, *words_of_it)
        phone.expect("notification", session_id=sid, notification_type="error")
        wait_until(lambda: status(bridge, sid) == "error")
        assert resume(bridge, phone, sid)["type"] == "session_ready"
        assert script.lines("load")[-1]["session"] == f"scripted-{first}"
        assert status(bridge, sid) == "active" and "4 characters" in words(ask(phone, sid, "back"))

    (bridge.root / "work").mkdir()
    sid = start(phone, bridge.root / "work", agent="plain")["payload"]["session_id"]
    first = agent()
    assert os.readlink(f"/proc/{first}/cwd") == str(bridge.root / "work")
    messages = ask(phone, sid, "/exit 0")
    assert words(messages) == "so far " and messages[-1]["payload"]["finish_reason"] == "error"
    assert_failed("it went wrong")
    os.kill(agent(), signal.SIGKILL)
    assert_failed("9")
    dies = "/do ask('c', kind='execute', rawInput={'command': 'make'}); agent.exit('3')"
    call_id = asked(phone, sid, dies)
    phone.expect("stream_end", session_id=sid, finish_reason="error")
    assert_failed("it went wrong")
    told = phone.expect("notification", session_id=sid, notification_type="approval_decided")
    assert "because the agent" in told["payload"]["body"] and "told" not in told["payload"]["body"]
    rejected = {"tool_call_id": call_id, "decision": "rejected", "decided_by": "bridge"}
    data = told["payload"]["data"]
    assert data == data | rejected and data["reason"]
    assert_stands(decide(phone, sid, call_id, "approved"), "rejected", "bridge")
    result = phone.expect("tool_result", session_id=sid, tool_call_id=call_id)
    assert result["payload"]["result"]["success"] is False
    end(phone, sid)


def test_prompts_of_megabytes(bridge: Bridge, phone: Phone) -> None:
    """Issue, bad input: 9 MB arrive whole. What is larger: test_bad_frames.py."""
    sid = begin(bridge, phone, agent="plain")
    for text in ("0123456789abcdef" * (9 * 2**20 // 16), "dünn\u2028\U0001f600\x00 " * 200_000):
        said, digest = words(ask(phone, sid, text)), hashlib.sha256(text.encode()).hexdigest()
        assert said.startswith(f"{len(text)} characters, {digest}"), said[:200]
    end(phone, sid)


# what has begun first has ended: from here on nothing else runs
@pytest.mark.slow
def test_an_agent_that_hangs_at_start(bridge: Bridge, script: Script, hanging: Hanging) -> None:
    """D35: in error when its time is over, its process gone. D7: until then it is not unknown."""
    phone, sid, id_, said = hanging
    assert_refused(phone.answer_to(said), "PROTO_SEQUENCE_ERROR", True, sid)
    error = assert_refused(phone.answer_to(id_), "AGENT_ERROR", True, sid)
    readable(error, f"{START_SECONDS} s")
    assert_last_words(bridge, error)
    assert status(bridge, sid) == "error"
    wait_until(lambda: not [line for line in script.processes().values() if " hangs " in line])


@pytest.mark.spec("limit.max_sessions.enforced")
def test_an_eleventh_session(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D36: ten that are created or active; what is paused, failed (D35: also after a restart) or
    observed does not count.
    """
    paused, failed = begin(bridge, phone), new_session()
    assert_refused(start(phone, bridge.root, failed, agent="exits"), "AGENT_ERROR", True, failed)
    bridge.restart("kill")
    phone.ready()
    bridge.accept(hook("SessionStart", new_session()))
    running = [begin(bridge, phone) for _ in range(LIMIT)]
    for session_id in (None, new_session()):
        refused = start(phone, bridge.root, session_id)
        readable(assert_refused(refused, "SESS_LIMIT_REACHED", True), "10", "end")
        assert session_id is None or not bridge.knows(session_id)
    for sid in (paused, failed):
        assert_refused(resume(bridge, phone, sid), "SESS_LIMIT_REACHED", True)
    assert [status(bridge, sid) for sid in (paused, failed)] == ["paused", "error"]
    assert not script.processes(), "of none of them"
    end(phone, running.pop())
    assert resume(bridge, phone, paused)["type"] == "session_ready"
    assert "here again" in words(ask(phone, paused, "here again"))
    for sid in (paused, *running):
        end(phone, sid)


@pytest.mark.slow
@pytest.mark.spec("wscode.CIRCUIT_OPEN", "limit.circuit_breaker", "severity.critical")
def test_an_agent_that_fails_for_long(bridge: Bridge, phone: Phone, script: Script) -> None:
    """D48: after five failures CIRCUIT_OPEN, told by /health; then a probe."""
    assert_refused(start(phone, bridge.root, agent="absent"), "AGENT_UNAVAILABLE", True)
    ids = [new_id() for _ in range(5)]
    for sid in ids:
        assert bridge.get("/api/v1/health", bridge.admin_token).status == 200
        assert_refused(start(phone, bridge.root, sid, agent="late"), "AGENT_ERROR", True, sid)
        assert status(bridge, sid) == "error"

    def comes_to(code: str | None) -> str:
        """Ask until that is the answer; the id that was asked for."""

        def answered() -> str | None:
            answer = start(phone, bridge.root, wanted := new_id(), agent="late")
            return wanted if answer["payload"].get("code") == code else None

        return str(wait_until(answered))

    def told() -> bool:
        """Until it may probe, which is soon."""
        assert not bridge.knows(comes_to("CIRCUIT_OPEN"))
        health = bridge.get("/api/v1/health", bridge.admin_token)
        return health.status == 503 and health.json()["checks"]["agent_sdk"] == "unhealthy"

    wait_until(told)
    running = [begin(bridge, phone) for _ in range(LIMIT)]
    comes_to("SESS_LIMIT_REACHED")  # a start that never begins is no probe
    for sid in running:
        end(phone, sid)
    assert_refused(start(phone, bridge.root, agent="late"), "AGENT_ERROR", True)
    comes_to("CIRCUIT_OPEN")
    script.go.touch()
    end(phone, comes_to(None))
    for _ in range(5):  # it starts, and dies
        ask(phone, begin(bridge, phone, agent="late"), "/exit 0")
    comes_to("CIRCUIT_OPEN")
    ask(phone, probe := comes_to(None), "still there?")
    ask(phone, probe, "/exit 0")
    end(phone, begin(bridge, phone, agent="late"))
