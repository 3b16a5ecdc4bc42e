"""Two phones race for one approval, dozens of times, in `make soak` ten thousand (D38, D46); beside
it, messages that come twice to two processes (D31).
"""

import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.agent_tools import Script, bridges_of, figure, script_of
from tests.conformance.agents import begin, end, say
from tests.conformance.approvals import assert_stands, decision_of, greeted, notifications, of, pre
from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.delivery import send
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, session_in
from tests.conformance.samples import hook, new_id, new_session, prompt

DECISIONS = {"approved": "allow_once", "rejected": "reject_once"}  # what an agent is told of each
GROUP = 10  # decisions on their way at once, at most: who is first often wins a whole group
# among which the calls are shared out: what a decision costs grows with what its session has open
SESSIONS = 4
PIECE = 250  # races in the same sessions
PATIENT = 240  # seconds for a group
TIMES = int(os.environ.get("SOAK_RACES") or 40)
SEED = os.environ.get("RACE_SEED") or "38"
Call = tuple[str, str]  # of a session
pytestmark = pytest.mark.timeout(420 + TIMES)


script = script_of("plain")


pair = bridges_of(2, "script")


class Racer:
    """A device that always decides the same, for all calls of a group when the other one does."""

    def __init__(self, bridge: Bridge, pairing: Pairing, decision: str) -> None:
        self.pairing, self.decision = pairing, decision
        self.phone = Phone(bridge.port, pairing.token).ready()

    def asked(self, sessions: list[str], count: int) -> list[Call]:
        """The calls of these sessions, once it was told of that many."""

        def calls() -> list[Call]:
            return [
                (sid, one["data"]["tool_call_id"])
                for sid in sessions
                for one in notifications(self.phone, sid, "approval_required")
            ]

        self.phone.collect(lambda: len(calls()) >= count, "all questions", PATIENT)
        return sorted(calls())

    def decide(self, calls: list[Call], line: threading.Barrier) -> dict[Call, Message]:
        """Send the decisions in an order of its own; the answers."""
        order = random.Random(f"{calls[0]} {self.decision}").sample(calls, len(calls))
        line.wait(PATIENT)
        sent = {new_id(): call for call in order}
        for id_, call in sent.items():
            self.phone.send("approval_response", decision_of(*call, self.decision), id=id_)
        answers = {}
        while sent:
            answer = self.phone.until(lambda one: one.get("id") in sent, "an answer", PATIENT)
            call = sent.pop(answer["id"])
            if answer["payload"].get("code") == "STORAGE_UNAVAILABLE":  # nothing was stored
                body = decision_of(*call, self.decision)
                sent[self.phone.send("approval_response", body)] = call
            else:
                answers[call] = answer
        return answers

    def told(self, calls: list[Call]) -> dict[Call, str]:
        """What it was told of the decisions, once of each call; what came is forgotten."""

        def data() -> list[tuple[Call, str]]:
            return [
                ((sid, one["data"]["tool_call_id"]), one["data"]["decision"])
                for sid in {sid for sid, _ in calls}
                for one in notifications(self.phone, sid, "approval_decided")
            ]

        self.phone.collect(lambda: {call for call, _ in data()} >= set(calls), "news", PATIENT)
        self.phone.ping()
        assert len(data()) == len(calls), "each once"
        found = dict(data())
        self.phone.messages.clear()
        self.phone.untaken.clear()
        return found


def race(racers: list[Racer], calls: list[Call]) -> dict[Call, str]:
    """Both decide these calls: the decisions that count, one of each, told to both once."""
    line, stands = threading.Barrier(2), {}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda racer: racer.decide(calls, line), racers))
    for call in calls:
        first = 0 if answers[0][call]["type"] == "approval_recorded" else 1
        recorded, winner = answers[first][call], racers[first]
        assert recorded["type"] == "approval_recorded", recorded
        payload = recorded["payload"]
        assert (payload["session_id"], payload["tool_call_id"]) == call, recorded
        assert payload["decision"] == winner.decision, recorded
        assert_stands(answers[1 - first][call], winner.decision, winner.pairing.name)
        stands[call] = winner.decision
    for racer in racers:
        assert racer.told(calls) == stands
    return stands


def race_all(one: Bridge, racers: list[Racer], sessions: list[str], count: int) -> dict[Call, str]:
    """All that these sessions ask about, some at a time, in a random order; then a device that
    comes is asked nothing.
    """
    calls, again = (racer.asked(sessions, count) for racer in racers)
    assert calls == again and len(calls) == count
    stands: dict[Call, str] = {}
    rng = random.Random(f"{SEED} {calls[0][1]}")
    left = rng.sample(calls, count)
    while left:
        size = rng.randint(1, GROUP)
        stands |= race(racers, left[:size])
        left = left[size:]
    with one.phones(1) as (fresh,):
        greeted(one, fresh)
        assert not [found for sid in sessions for found in of(fresh, "approval_required", sid)]
    return stands


def racing(one: Bridge, two: Bridge) -> list[Racer]:
    each = zip((one, two), DECISIONS, strict=True)
    return [Racer(bridge, one.pairing(), decision) for bridge, decision in each]


def assert_over(racers: list[Racer], won: Counter[str]) -> None:
    for racer in racers:
        racer.phone.close()
    figure(f"{won.total()} races, won by {dict(won)}")
    assert min(won[decision] for decision in DECISIONS) >= won.total() // 100, f"no race: {won}"


def race_observed(one: Bridge, two: Bridge, times: int) -> None:
    racers, won = racing(one, two), Counter[str]()
    for piece in range(0, times, PIECE):
        sessions, count = [new_session() for _ in range(SESSIONS)], min(PIECE, times - piece)
        one.accept(*[prompt(sid, 0) for sid in sessions])
        for start in range(0, count, 50):
            events = []
            for number in range(start, min(start + 50, count)):
                sid, params = sessions[number % SESSIONS], {"command": f"ls {number}"}
                events.append(pre(sid, params, approval=True, tool_call_id=f"call-{number}"))
            assert one.post_batch(events).json()["accepted"] == len(events)
        won.update(race_all(one, racers, sessions, count).values())
        one.accept(*[hook("SessionEnd", sid) for sid in sessions])
    assert_over(racers, won)


@pytest.mark.spec("decision.logged", "wscode.TOOL_ALREADY_DECIDED", "processes")
def test_on_two_processes(pair: list[Bridge]) -> None:
    """D38, D46: on PostgreSQL and Redis, one phone on each process."""
    race_observed(pair[0], pair[1], TIMES)


def test_an_agent_is_told_once(pair: list[Bridge], script: Script) -> None:
    """D38, D46: questions of an agent that the bridge runs: it is told what each phone is told."""
    one, times = pair[0], TIMES // 5
    racers, won = racing(*pair), Counter[str]()
    with one.phones(1) as (person,):
        sid = begin(one, person, agent="plain")
        for turn in range(0, times, GROUP):
            count, before = min(GROUP, times - turn), len(script.lines("decided"))
            say(person, sid, f"/ask-many {count} {turn}")
            stands = race_all(one, racers, [sid], count)
            person.expect("stream_end", PATIENT, session_id=sid, finish_reason="stop")
            heard = [(line["call"], line["outcome"]) for line in script.lines("decided")[before:]]
            assert {call: outcome["optionId"] for call, outcome in heard} == {
                call: DECISIONS[decision] for (_, call), decision in stands.items()
            }
            won.update(stands.values())
        told = Counter((line["pid"], line["number"]) for line in script.lines("answered"))
        assert len(told) == times and set(told.values()) == {1}, "each answer once"
        assert_over(racers, won)
        end(person, sid)


@pytest.mark.spec("client.repeat", "processes")
def test_a_repetition_after_a_kill(pair: list[Bridge]) -> None:
    """D31, D46: the process dies before its answer is read; the other answers: one commit."""
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
def test_a_repetition_at_the_same_time(pair: list[Bridge]) -> None:
    """D23, D31: while the other process still works on it: one decision, each answer names it."""
    first, second = pair
    sid, pairing = new_session(), first.pairing()
    calls = [f"call-{number}" for number in range(20)]
    asks = [pre(sid, {"call": call}, approval=True, tool_call_id=call) for call in calls]
    first.accept(prompt(sid, 0), *asks)
    one, two = Phone(first.port, pairing.token, device_id="phone").ready(), first.phone().ready()
    bodies = {new_id(): decision_of(sid, call, "approved") for call in calls}
    for id_, body in bodies.items():
        one.send("approval_response", body, id=id_)
    other = Phone(second.port, pairing.token, device_id="phone")
    other.ready()
    answers = [send(other, "approval_response", id_, body) for id_, body in bodies.items()]
    assert {answer["type"] for answer in answers} == {"approval_recorded"}, answers
    assert [answer["payload"]["tool_call_id"] for answer in answers] == calls
    first.fence(two)
    told = [payload["data"] for payload in notifications(two, sid, "approval_decided")]
    assert sorted(data["tool_call_id"] for data in told) == sorted(calls)
    for phone in (one, two, other):
        phone.close()
    first.accept(hook("SessionEnd", sid))
