"""Two phones race for one approval, dozens of times, in `make soak` ten thousand (D38, D46): one
winner each time, the other is told who won, and an agent is told once.

Beside it, on the same two processes: messages that come twice (D31).
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.agent_tools import Script, figure
from tests.conformance.agents import begin, end, say
from tests.conformance.approvals import decision_of, greeted, notifications, pre
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.racers import DECISIONS, PATIENT, Call, race, racing, wait_asked
from tests.conformance.repositories import Repository, session_in
from tests.conformance.samples import hook, new_id, new_session, prompt
from tests.servers import Postgres, Redis

GROUP = 10  # decisions on their way at once, at most: who is first often wins a whole group
# among which the calls are shared out: what a decision costs grows with what its session has open
SESSIONS = 4
PIECE = 250  # races in the same sessions
TIMES = int(os.environ.get("SOAK_RACES") or 40)
SEED = os.environ.get("RACE_SEED") or "38"
pytestmark = pytest.mark.timeout(420 + TIMES)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("agents"), "plain")


@pytest.fixture(scope="module")
def pair(
    make_bridge: Callable[..., Bridge],
    postgres_server: Postgres,
    redis_server: Redis,
    script: Script,
) -> Iterator[tuple[Bridge, Bridge]]:
    """Two processes that are one bridge, with one allowed root."""
    more = {
        "database_url": postgres_server.create_database(),
        "redis_url": redis_server.url,
        "BRIDGE_ACP_AGENTS": script.setting,
    }
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


def post_calls(bridge: Bridge, sessions: list[str], count: int) -> None:
    """That many pending approvals, shared out among the sessions, posted in batches."""
    for start in range(0, count, 50):
        events = [
            pre(
                sessions[number % len(sessions)],
                {"command": f"ls {number}"},
                approval=True,
                tool_call_id=f"call-{number}",
            )
            for number in range(start, min(start + 50, count))
        ]
        answer = bridge.post_batch(events)
        assert answer.status == 200 and answer.json()["accepted"] == len(events), answer


def groups_of(calls: list[Call], number: int) -> list[list[Call]]:
    """The calls in a random order, some at a time."""
    rng, groups = random.Random(f"{SEED} {number}"), []
    left = rng.sample(calls, len(calls))
    while left:
        size = rng.randint(1, GROUP)
        groups.append(left[:size])
        left = left[size:]
    return groups


def race_observed(one: Bridge, two: Bridge, times: int) -> None:
    """Of sessions that are known by their hooks only."""
    won: Counter[str] = Counter()
    with racing(one, two) as racers:
        for piece in range(0, times, PIECE):
            sessions, count = [new_session() for _ in range(SESSIONS)], min(PIECE, times - piece)
            one.accept(*[prompt(session_id, 0) for session_id in sessions])
            post_calls(one, sessions, count)
            calls = wait_asked(racers, sessions, count)
            assert len(calls) == count
            for group in groups_of(calls, piece):
                won.update(race(racers, group).values())
            nothing_is_asked(one, sessions)
            one.accept(*[hook("SessionEnd", session_id) for session_id in sessions])
            figure(f"{sum(won.values())} races, won by {dict(won)}")
    assert min(won[decision] for decision in DECISIONS) >= times // 100, f"no race: {won}"


def nothing_is_asked(bridge: Bridge, sessions: list[str]) -> None:
    """A device that comes now is asked nothing."""
    with bridge.phones(1) as (fresh,):
        greeted(bridge, fresh)
        assert not [
            message
            for message in fresh.messages
            if message["type"] == "approval_required"
            and message["payload"]["session_id"] in sessions
        ]


def race_asked_by_agent(one: Bridge, two: Bridge, script: Script, times: int) -> None:
    """An agent of the first bridge asks: it is told once what each phone is told."""
    won: Counter[str] = Counter()
    with racing(one, two) as racers, one.phones(1) as (person,):
        session = begin(one, person, agent="plain")
        for turn in range(0, times, GROUP):
            count = min(GROUP, times - turn)
            before = len(script.lines("decided"))
            say(person, session, f"/ask-many {count} {turn}")
            calls = wait_asked(racers, [session], turn + count)
            stands: dict[Call, str] = {}
            for group in groups_of([call for call in calls if call not in racers[0].answers], turn):
                stands |= race(racers, group)
            person.expect("stream_end", PATIENT, session_id=session, finish_reason="stop")
            heard = [
                (line["call"], line["outcome"]["optionId"])
                for line in script.lines("decided")[before:]
            ]
            words = {"approved": "allow_once", "rejected": "reject_once"}
            assert sorted(heard) == sorted(
                (call, words[decision]) for (_, call), decision in stands.items()
            )
            won.update(stands.values())
        told = Counter((line["pid"], line["number"]) for line in script.lines("answered"))
        assert len(told) == times and set(told.values()) == {1}, "each answer once"
        figure(f"{sum(won.values())} races of an agent's questions, won by {dict(won)}")
        nothing_is_asked(one, [session])
        end(person, session)
    assert min(won[decision] for decision in DECISIONS) >= times // 100, f"no race: {won}"


@pytest.mark.spec("decision.logged", "wscode.TOOL_ALREADY_DECIDED", "processes")
def test_on_two_processes(pair: tuple[Bridge, Bridge]) -> None:
    """D38, D46: atomically, across processes: the races on PostgreSQL and Redis, one phone
    on each process.
    """
    race_observed(*pair, TIMES)


def test_an_agent_is_told_once(pair: tuple[Bridge, Bridge], script: Script) -> None:
    """D38, D46: the same of questions of an agent that the bridge runs."""
    race_asked_by_agent(*pair, script, TIMES // 5)


def test_on_one_process(shared: Bridge) -> None:
    """D38: the same on SQLite and one process."""
    race_observed(shared, shared, 30)


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
    bodies = {new_id(): decision_of(sid, f"call-{number}", "approved") for number in range(20)}
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
