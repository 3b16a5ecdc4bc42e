"""A week of use in minutes, and what is left of it in the bridge's memory."""

import json
import os
import random
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.conformance.agent_tools import Script, figure, quick_bridge
from tests.conformance.agents import ask, asked, begin, end, question, say
from tests.conformance.approvals import decide, pre
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session
from tests.conformance.terminal import Terminal
from tests.conformance.test_agent_news import until_state
from tests.conformance.test_attachments import png, sent
from tests.conformance.test_send_later import QUICK, in_seconds
from tests.performance.load import MIX, hook_event
from tests.servers import Postgres, Redis, wait_until

EVENTS = int(os.environ.get("SOAK_EVENTS", "0"))  # a week has 100,000
pytestmark = [
    pytest.mark.skipif(not EVENTS, reason="a week's use: make soak"),
    pytest.mark.timeout(600 + EVENTS // 20),
]

EACH = 100  # events of a session; with each come ten connections and one session of an agent
CONNECTIONS = 10
POSTERS, PHONES, RUNNERS = 2, 4, 4
PARTS = 10  # of the week
SESSIONS = max(POSTERS, EVENTS // EACH // PARTS)  # of hooks, in each part
FIRST = 40  # sessions of hooks before it, so that the rows kept at hand are as many as they get
# Objects of a type, and bytes, that each part may leave: in a whole week an object for two
# sessions. What is kept at hand is now more and now less, so the part counts that left the least.
LEFT_OBJECTS = SESSIONS // 2
LEFT_RESIDENT = 2**20
# of so many sessions of an agent one is that of a process, with a rule, a picture, a message that
# waits for its time, and beside it one in a terminal, which is answered from the phone
PROCESSES = 10
DEMO_DOES = '/tool Bash {"command": "true"}'
Look = dict[str, Counter[str]]


STORES = ("SQLite", "PostgreSQL and Redis")


@pytest.fixture(params=STORES)
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bridge]:
    settings = {"BRIDGE_MAX_WEBSOCKETS": "40", "LOOKS": str(tmp_path / "look")}
    if request.param != STORES[0]:
        postgres: Postgres = request.getfixturevalue("postgres_server")
        channels: Redis = request.getfixturevalue("redis_server")
        settings |= {"database_url": postgres.create_database()}
        settings |= {"redis_url": channels.create_database()}
    watch = f"from tests.faults import memory\nmemory.watch()\n{QUICK}"
    script = Script(tmp_path, "sees")
    with quick_bridge(tmp_path / "week", script, first=watch, **settings) as bridge:
        yield bridge


def look_at(bridge: Bridge) -> Look:
    """What it holds once nobody is connected and no session runs."""

    def quiet() -> bool:
        health = bridge.health()
        return bool(health["active_websockets"] == health["active_sessions"] == 0)

    wait_until(quiet)
    out = Path(bridge.settings["LOOKS"])
    out.unlink(missing_ok=True)
    bridge.running.send_signal(signal.SIGUSR1)
    wait_until(out.exists)
    look = {name: Counter(counts) for name, counts in json.loads(out.read_text()).items()}
    if url := bridge.settings.get("REDIS_URL"):
        with closing(redis.Redis.from_url(url)) as store:
            look["keys"] = Counter(keys=store.dbsize())
    return look


def story(session: str) -> list[dict[str, Any]]:
    events = [
        hook_event(MIX[number % len(MIX)], session, f"toolu-{(number + 1) // 2}", {})
        for number in range(EACH - 2)
    ]
    return [*events, pre(session, approval=True, tool_use_id="asks"), hook("SessionEnd", session)]


def post(bridge: Bridge, count: int, recent: list[str], rng: random.Random) -> None:
    """Sessions one after the other, in batches and event by event."""
    with closing(bridge.https().open()) as connection:
        for _ in range(count):
            left = story(session := new_session())
            while left:
                several = rng.choice((1, 1, 5, 30))
                batch, left = left[:several], left[several:]
                if several == 1:
                    answer = bridge.post_hook(batch[0], connection=connection)
                else:
                    answer = bridge.post_batch(batch, connection=connection)
                assert answer.status == 200, answer
            recent.append(session)


def connect(bridge: Bridge, token: str, count: int, recent: list[str], rng: random.Random) -> None:
    """A phone that comes, and leaves or vanishes: one time of five before it has said who it is."""
    for _ in range(count):
        way = rng.random()
        if way < 0.05:  # speaks no TLS, or goes in the middle of it
            with socket.create_connection(("127.0.0.1", bridge.port)) as raw, suppress(OSError):
                raw.sendall(rng.choice((b"", b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n")))
            continue
        phone = Phone(bridge.port, token if way > 0.12 else "x" * 43)
        phone.compress = rng.random() < 0.3
        phone.connect()
        if way < 0.12:
            phone.auth()
        elif way > 0.2:
            told = phone.auth()
            if told["type"] == "connection_error":
                assert told["payload"]["code"] == "CONN_TIMEOUT", told  # the machine was busy
                continue
            phone.health_check()
            if recent and rng.random() < 0.3:
                phone.join(recent[-1])
            for _ in range(rng.choice((1, 50))):
                phone.ping()
                if not acknowledge(phone):
                    break  # all that waited has come
        (phone.vanish if rng.random() < 0.6 else phone.close)()


def acknowledge(phone: Phone) -> int:
    """Acknowledge the rows that came, and forget them; how many it was."""
    ids = [one["id"] for one in phone.messages if "id" in one]
    for start in range(0, len(ids), 500):
        phone.send("notification_ack", {"notification_ids": ids[start : start + 500]})
    phone.forget()
    phone.updates.clear()
    return len(ids)


def run_agents(bridge: Bridge, token: str, count: int) -> None:
    """Sessions of an agent: a prompt, a tool that is allowed, the end."""
    phone = Phone(bridge.port, token).ready()
    phone.ping()
    while acknowledge(phone):  # what waits goes in pages, and before what is new
        phone.ping()
    for number in range(count):
        if number % PROCESSES == 0:
            run_process(bridge, phone)
            sit_at_the_desk(bridge, phone)
        else:
            session = begin(bridge, phone)
            ask(phone, session, "hello")
            decide(phone, session, asked(phone, session, DEMO_DOES), "approved")
            phone.expect("stream_end", session_id=session, finish_reason="stop")
            end(phone, session)
        phone.ping()
        acknowledge(phone)
    phone.close()


def run_process(bridge: Bridge, phone: Phone) -> None:
    """A rule approves the second call; a picture comes at its time (D68, D70, D71)."""
    session = begin(bridge, phone, agent="sees")
    say(phone, session, "/ask make test")
    rule = {"remember": "exact"}
    decide(phone, session, question(phone, session)["tool_call_id"], "approved", **rule)
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    ask(phone, session, "/ask make test")
    picture = sent(bridge, session, png(100_000))["attachment_id"]
    about = {"session_id": session, "content": "look", "role": "user", "attachments": [picture]}
    later = phone.send("message", about | {"not_before": in_seconds(1)})
    until_state(phone, session, later, "given")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    end(phone, session)


def sit_at_the_desk(bridge: Bridge, phone: Phone) -> None:
    """A dialog in a terminal is answered from the phone (D66)."""
    home = Path(bridge.settings["LOOKS"]).with_name("home")
    with Terminal(bridge.data, new_session(), str(bridge.root), home) as desk:
        session = desk.session_id
        desk.hook("SessionStart", source="startup")
        phone.expect("session_started", session_id=session)
        phone.join(session)
        dialog = desk.asks("Bash", {"command": "make"})
        decide(phone, session, question(phone, session)["tool_call_id"], "approved")
        assert dialog.answer() == {"behavior": "allow"}
        desk.tool("PostToolUse", "make")
        desk.hook("SessionEnd", reason="exit")
        phone.expect("session_end", session_id=session)
        dialog.printed.unlink()


def part(bridge: Bridge, tokens: list[str], rng: random.Random) -> None:
    recent = list[str]()
    jobs: list[tuple[Any, ...]] = [(post, bridge, SESSIONS // POSTERS, recent, rng)] * POSTERS
    each = SESSIONS * CONNECTIONS // PHONES
    jobs += [(connect, bridge, token, each, recent, rng) for token in tokens[RUNNERS:]]
    jobs += [(run_agents, bridge, token, SESSIONS // RUNNERS) for token in tokens[:RUNNERS]]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(*job) for job in jobs]:
            job.result()


def test_a_week(watched: Bridge) -> None:
    """Nothing grows with the events, sessions and connections that have been."""
    rng = random.Random(17)
    tokens = [watched.device_token() for _ in range(RUNNERS + PHONES)]
    post(watched, FIRST, [], rng)
    looks: list[Look] = []
    for number in range(PARTS):
        try:
            part(watched, tokens, rng)
        except BaseException as error:
            error.add_note(watched.tail())
            raise
        looks.append(look_at(watched))
        held = {name: counts.total() for name, counts in looks[-1].items()}
        figure(f"part {number + 1}: {held}")
    figure("\n".join(f"more {name}: {looks[-1][name] - looks[0][name]}" for name in looks[0]))

    def left(kind: str, name: str) -> int:
        """What the part left that left the least."""
        return min(after[kind][name] - before[kind][name] for before, after in pairwise(looks))

    assert left("memory", "resident") < LEFT_RESIDENT
    grown = {name: left("types", name) for name in looks[-1]["types"]}
    assert {name: count for name, count in grown.items() if count > LEFT_OBJECTS} == {}
    assert not looks[-1]["tasks"] - looks[0]["tasks"]
    # pools of threads have their bounds, and open what they use
    for what in looks[0].keys() & {"files", "threads", "keys"}:
        counts = [look[what].total() for look in looks]
        assert min(after - before for before, after in pairwise(counts)) <= 0, (what, counts)
