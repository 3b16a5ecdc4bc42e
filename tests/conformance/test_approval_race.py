"""Two phones race for an agent's questions (D38, D46); messages that come twice (D31)."""

import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.agent_tools import Script, bridges_of, figure, script_of
from tests.conformance.agents import begin, end, say
from tests.conformance.approvals import (
    assert_stands,
    decided,
    decision_of,
    notifications,
    pending,
    pre,
)
from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.delivery import send
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_id, new_session, prompt

DECISIONS = {"approved": "allow_once", "rejected": "reject_once"}  # what an agent is told of each
GROUP = 10  # decisions on their way at once, at most: who is first often wins a whole group
PATIENT = 240  # seconds for a group
TIMES = int(os.environ.get("SOAK_RACES") or 40)
SEED = os.environ.get("RACE_SEED") or "38"
pytestmark = pytest.mark.timeout(420 + TIMES)

script = script_of("plain")
pair = bridges_of(2, "script")


class Racer:
    def __init__(self, bridge: Bridge, pairing: Pairing, decision: str) -> None:
        self.pairing, self.decision = pairing, decision
        self.phone = Phone(bridge.port, pairing.token).ready()

    def asked(self, sid: str, count: int) -> list[str]:
        """The session's calls, once it was told of that many."""

        def calls() -> list[str]:
            told = notifications(self.phone, sid, "approval_required")
            return sorted(one["data"]["tool_call_id"] for one in told)

        self.phone.collect(lambda: len(calls()) >= count, "all questions", PATIENT)
        return calls()

    def decide(self, sid: str, calls: list[str], line: threading.Barrier) -> dict[str, Message]:
        """Send the decisions in an order of its own; the answers."""
        rng = random.Random(f"{calls[0]} {self.decision}")
        sent = {new_id(): call for call in rng.sample(calls, len(calls))}
        line.wait(PATIENT)
        for id_, call in sent.items():
            self.phone.send("approval_response", decision_of(sid, call, self.decision), id=id_)
        answers = {}
        while sent:
            answer = self.phone.until(lambda one: one.get("id") in sent, "an answer", PATIENT)
            call = sent.pop(answer["id"])
            if answer["payload"].get("code") == "STORAGE_UNAVAILABLE":  # nothing was stored
                body = decision_of(sid, call, self.decision)
                sent[self.phone.send("approval_response", body)] = call
            else:
                answers[call] = answer
        return answers

    def told(self, sid: str, calls: list[str]) -> dict[str, str]:
        """What it was told of the decisions, once of each call; what came is forgotten."""
        self.phone.collect(lambda: decided(self.phone, sid).keys() >= set(calls), "news", PATIENT)
        self.phone.ping()
        found = decided(self.phone, sid)
        self.phone.forget()
        return found


def race(racers: list[Racer], sid: str, count: int) -> dict[str, str]:
    """Both decide these calls: the decisions that count, one of each, told to both once."""
    calls, again = (racer.asked(sid, count) for racer in racers)
    assert calls == again and len(calls) == count
    line, stands = threading.Barrier(2), {}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda racer: racer.decide(sid, calls, line), racers))
    for call in calls:
        first = 0 if answers[0][call]["type"] == "approval_recorded" else 1
        recorded, winner = answers[first][call], racers[first]
        assert recorded["type"] == "approval_recorded", recorded
        decision = {"session_id": sid, "tool_call_id": call, "decision": winner.decision}
        assert recorded["payload"] == recorded["payload"] | decision
        assert_stands(answers[1 - first][call], winner.decision, winner.pairing.name)
        stands[call] = winner.decision
    for racer in racers:
        assert racer.told(sid, calls) == stands
    return stands


@pytest.mark.spec("wscode.TOOL_ALREADY_DECIDED", "processes")
def test_an_agent_is_told_once(pair: list[Bridge], script: Script) -> None:
    """D38, D46: on two processes one decision wins; the agent is told what each phone is told."""
    one, won, rng = pair[0], Counter[str](), random.Random(SEED)
    each = zip(pair, DECISIONS, strict=True)
    racers = [Racer(bridge, one.pairing(), decision) for bridge, decision in each]
    with one.phones(1) as (person,):
        sid = begin(one, person, agent="plain")
        while won.total() < TIMES:
            count, before = rng.randint(1, GROUP), len(script.lines("decided"))
            say(person, sid, f"/ask-many {count} {won.total()}")
            stands = race(racers, sid, count)
            assert pending(one, sid) == []
            person.expect("stream_end", PATIENT, session_id=sid, finish_reason="stop")
            heard = [(line["call"], line["outcome"]) for line in script.lines("decided")[before:]]
            assert {call: outcome["optionId"] for call, outcome in heard} == {
                call: DECISIONS[decision] for call, decision in stands.items()
            }
            won.update(stands.values())
        told = Counter((line["run"], line["number"]) for line in script.lines("answered"))
        assert len(told) == won.total() and set(told.values()) == {1}, "each answer once"
        for racer in racers:
            racer.phone.close()
        figure(f"{won.total()} races, won by {dict(won)}")
        if TIMES >= 1000:  # of fewer, one phone may win all
            assert min(won[decision] for decision in DECISIONS) >= TIMES // 100, f"no race: {won}"
        end(person, sid)


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
