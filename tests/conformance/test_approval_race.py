"""Two phones race for one approval, hundreds of times, in `make soak` a thousand (D38, D46): one
winner each time, the other is told who won.

Beside it, on the same two processes: messages that come twice (D31).
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.approvals import assert_recorded, assert_stands, greeted, notifications, pre
from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.delivery import send
from tests.conformance.phone import Message, Phone
from tests.conformance.raw import PONG, RawSocket
from tests.conformance.repositories import Repository, session_in
from tests.conformance.samples import hook, new_id, new_session, now, prompt
from tests.servers import Postgres, Redis

DECISIONS = ("approved", "rejected")
GROUP = 20  # decisions on their way at once
GROUPS = 25  # at least: whoever is first in a group often wins all of it
# among which the calls are shared out: what a decision costs grows with what its session has open
SESSIONS = 4
TIMES = 1000 if os.environ.get("SOAK_EXAMPLES") else 250
PATIENT = 240  # seconds for all of them


@pytest.fixture(scope="module")
def pair(
    make_bridge: Callable[..., Bridge], postgres_server: Postgres, redis_server: Redis
) -> Iterator[tuple[Bridge, Bridge]]:
    """Two processes that are one bridge, with one allowed root."""
    more = {"database_url": postgres_server.create_database(), "redis_url": redis_server.url}
    first = make_bridge("race-first", **more)
    more |= {
        "BRIDGE_HOOK_TOKEN": first.hook_token,
        "BRIDGE_ADMIN_TOKEN": first.admin_token,
        "BRIDGE_ALLOWED_ROOTS": str(first.root),
    }
    second = make_bridge("race-second", **more)
    yield first, second
    for bridge in (first, second):
        bridge.stop()


class Racer(threading.Thread):
    """A device that sends one decision for each call, group by group, when the other one does;
    `answers` by call.
    """

    def __init__(
        self,
        bridge: Bridge,
        pairing: Pairing,
        decision: str,
        sessions: list[str],
        calls: list[str],
        line: threading.Barrier,
    ) -> None:
        super().__init__(daemon=True)
        self.pairing, self.decision, self.sessions, self.calls, self.line = (
            pairing,
            decision,
            sessions,
            calls,
            line,
        )
        self.socket = RawSocket(bridge.port).ready(pairing.token)
        self.answers: dict[str, Message] = {}
        self.told: dict[str, list[str]] = {}
        self.faults: list[BaseException] = []

    def run(self) -> None:
        try:
            group = max(1, min(GROUP, len(self.calls) // GROUPS))
            for start in range(0, len(self.calls), group):
                self.line.wait(PATIENT)
                self.one_group(self.calls[start : start + group])
        except BaseException as fault:  # noqa: BLE001 - the test raises it again
            self.faults.append(fault)
            self.line.abort()

    def one_group(self, calls: list[str]) -> None:
        """All decisions of a group in one write, in an order of this phone's own; then their
        answers, in whatever order, among whatever else comes.
        """
        order = random.Random(f"{calls[0]} {self.decision}").sample(calls, len(calls))
        asked = {new_id(): call_id for call_id in order}
        frames = [
            # as a client writes it
            {
                "type": "approval_response",
                "id": sent,
                "timestamp": now(),
                "payload": self.body(call_id),
            }
            for sent, call_id in asked.items()
        ]
        self.socket.frames(json.dumps(frame).encode() for frame in frames)
        while asked:
            message = self.receive()
            if message.get("id") in asked:
                self.answers[asked.pop(message["id"])] = message

    def body(self, call_id: str) -> dict[str, object]:
        return {
            "session_id": session_of(self.sessions, call_id),
            "tool_call_id": call_id,
            "decision": self.decision,
            "modifications": None,
        }

    def receive(self) -> Message:
        message = self.socket.read()
        payload = message.get("payload", {})
        if (
            message["type"] == "notification"
            and payload["notification_type"] == "approval_decided"
            and payload["session_id"] in self.sessions
        ):
            assert payload["session_id"] == session_of(
                self.sessions, payload["data"]["tool_call_id"]
            )
            self.told.setdefault(payload["data"]["tool_call_id"], []).append(
                payload["data"]["decision"]
            )
        return message


def session_of(sessions: list[str], call_id: str) -> str:
    return sessions[int(call_id.rpartition("-")[2]) % len(sessions)]


def post_calls(bridge: Bridge, sessions: list[str], count: int, racers: list[Racer]) -> list[str]:
    """That many pending approvals, posted in batches; the racers' connections are kept alive."""
    calls = [f"call-{number}" for number in range(count)]
    for start in range(0, count, 100):
        for racer in racers:
            racer.socket.frame(b"", PONG)
        events = [
            pre(
                session_of(sessions, call_id),
                {"command": f"ls {call_id}"},
                approval=True,
                tool_call_id=call_id,
            )
            for call_id in calls[start : start + 100]
        ]
        answer = bridge.post_batch(events)
        assert answer.status == 200 and answer.json()["accepted"] == len(events), answer
    return calls


def race(one: Bridge, two: Bridge, times: int, seed: int = 38) -> None:
    sessions, line = [new_session() for _ in range(SESSIONS)], threading.Barrier(2)
    one.accept(*[prompt(session_id, 0) for session_id in sessions])
    pairings = (one.pairing(), one.pairing())
    calls: list[str] = []
    racers = [
        Racer(bridge, pairing, decision, sessions, calls, line)
        for bridge, pairing, decision in zip((one, two), pairings, DECISIONS, strict=True)
    ]
    calls += post_calls(one, sessions, times, racers)
    random.Random(38).shuffle(calls)
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(PATIENT)
        assert not racer.faults and not racer.is_alive(), racer.faults
    won = [0, 0]
    for call_id in calls:
        winner = 0 if racers[0].answers[call_id]["type"] == "approval_recorded" else 1
        won[winner] += 1
        assert_recorded(
            racers[winner].answers[call_id],
            session_of(sessions, call_id),
            call_id,
            DECISIONS[winner],
        )
        assert_stands(racers[1 - winner].answers[call_id], DECISIONS[winner], pairings[winner].name)
    assert min(won) >= times // 100, f"no race: {won}"
    check_told(
        one,
        sessions,
        racers,
        {
            call_id: DECISIONS[racers[0].answers[call_id]["type"] != "approval_recorded"]
            for call_id in calls
        },
    )
    one.accept(*[hook("SessionEnd", session_id) for session_id in sessions])


def check_told(
    bridge: Bridge, sessions: list[str], racers: list[Racer], stands: dict[str, str]
) -> None:
    """D38: each ready device has one approval_decided for each call, with the decision that stands;
    and a device that comes now is asked nothing.
    """
    for racer in racers:
        while len(racer.told) < len(stands):
            racer.receive()
        assert racer.told == {call_id: [decision] for call_id, decision in stands.items()}
        racer.socket.close()
    with bridge.phones(1) as (fresh,):
        greeted(bridge, fresh)
        assert not [
            message
            for message in fresh.messages
            if message["type"] == "approval_required"
            and message["payload"]["session_id"] in sessions
        ]


@pytest.mark.timeout(2 * PATIENT + 60)
@pytest.mark.spec("decision.logged", "wscode.TOOL_ALREADY_DECIDED", "processes")
def test_on_two_processes(pair: tuple[Bridge, Bridge]) -> None:
    """D38, D46: atomically, across processes: the races on PostgreSQL and Redis, one phone
    on each process.
    """
    race(*pair, TIMES)


def test_on_one_process(shared: Bridge) -> None:
    """D38: the same on SQLite and one process."""
    race(shared, shared, 100)


def test_a_decision_on_the_other_process_is_told_at_once(pair: tuple[Bridge, Bridge]) -> None:
    """D38, D46: a phone on the one process sees what was decided on the other, and what is pending
    greets it there.
    """
    first, second = pair
    session_id = new_session()
    pairings = first.pairing(), first.pairing()
    first.accept(pre(session_id, approval=True, tool_call_id="x"))
    here, there = (
        RawSocket(first.port).ready(pairings[0].token),
        RawSocket(second.port).ready(pairings[1].token),
    )
    body = {
        "session_id": session_id,
        "tool_call_id": "x",
        "decision": "approved",
        "modifications": None,
    }
    assert_recorded(
        there.read_until(there.send("approval_response", body)), session_id, "x", "approved"
    )
    seen: list[str] = []
    while "approval_decided" not in seen:
        message = here.read()
        if message["type"] == "notification" and message["payload"]["session_id"] == session_id:
            seen.append(message["payload"]["notification_type"])
    assert_stands(
        here.read_until(here.send("approval_response", body | {"decision": "rejected"})),
        "approved",
        pairings[1].name,
    )
    here.close()
    there.close()


@pytest.mark.spec("client.repeat", "processes")
def test_a_repetition_after_a_kill(pair: tuple[Bridge, Bridge]) -> None:
    """D31, D46: the process that made the commit is killed before its answer is read; the client
    repeats it on the other one: one commit.
    """
    first, second = pair
    repository = Repository(first.root / "repository")
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    pairing = first.pairing()
    phone = Phone(first.port, pairing.token).ready()
    sid, id_ = session_in(first, phone, repository.path), new_id()
    body = {"session_id": sid, "message": "Once", "files": ["a"]}
    answer = send(phone, "git_commit", id_, body)
    first.kill()
    there = Phone(second.port, pairing.token).ready()
    there.join(sid)
    repository.write("a", "3\n")
    assert send(there, "git_commit", id_, body)["payload"]["commit"] == answer["payload"]["commit"]
    assert repository.git("rev-list", "--count", "HEAD").strip() == "2"
    there.close()
    first.start()


@pytest.mark.spec("client.repeat", "processes")
def test_a_repetition_at_the_same_time(pair: tuple[Bridge, Bridge]) -> None:
    """D23, D31: a phone that reconnects while its message is still at work on the other process:
    one decision, each answer names it.
    """
    first, second = pair
    sid, pairing = new_session(), first.pairing()
    first.accept(
        prompt(sid, 0),
        *[
            pre(sid, {"n": number}, approval=True, tool_call_id=f"call-{number}")
            for number in range(20)
        ],
    )
    one, two = Phone(first.port, pairing.token, device_id="phone").ready(), first.phone().ready()
    bodies = {
        new_id(): {
            "session_id": sid,
            "tool_call_id": f"call-{number}",
            "decision": "approved",
            "modifications": None,
        }
        for number in range(20)
    }
    for id_, body in bodies.items():
        one.send("approval_response", body, id=id_)
    other = Phone(second.port, pairing.token, device_id="phone")
    other.ready()
    answers = [send(other, "approval_response", id_, body) for id_, body in bodies.items()]
    assert [(answer["type"], answer["payload"].get("tool_call_id")) for answer in answers] == [
        ("approval_recorded", f"call-{number}") for number in range(20)
    ], answers
    first.fence(two)
    decided = [
        json.dumps(payload["data"]) for payload in notifications(two, sid, "approval_decided")
    ]
    assert len(decided) == 20 == len(set(decided))
    for phone in (one, two, other):
        phone.close()
    first.accept(hook("SessionEnd", sid))
