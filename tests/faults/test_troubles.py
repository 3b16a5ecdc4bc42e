"""Two processes on PostgreSQL and Redis, each of the four killed, stopped and cut off in random
order, under the mix, under approvals and under attacks (D26, D31, D38, D46, D59, D62).

Nothing is lost, doubled or out of order; an agent runs what was approved, once, and nothing else;
phones agree on what was decided; nobody gets in who may not; the bridges come back by themselves.

SOAK_TROUBLE says for how many seconds, TROUBLE_SEED in which order; `make soak` asks for an hour.
"""

import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attack.moody_lines import ALLOWS_ALL, install
from tests.conformance.agent_tools import Script, figure
from tests.conformance.agents import end, say, start
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id
from tests.faults.load import GOES_WRONG, under_load
from tests.faults.troubles import PATIENCE, World, two_bridges

SECONDS = float(os.environ.get("SOAK_TROUBLE", "0"))
pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="takes an hour: make soak"),
    pytest.mark.timeout(600 + 3 * SECONDS),
]
ROUND = 60.0  # seconds of troubles, after which everything must have arrived
# agents that act unasked whenever they can, and one that asks by itself
ASKS = (
    "careful by-option named strays strays-by-option oc oc-path oc-allow oc-empty oc-npx cx "
    "cx-never plain plain plain plain plain plain"
)
NONSENSE = ["1", "-1", "9223372036854775807", "", "*", "' OR 1=1 --", "x" * 10_000, new_id()]
WAITS = 30.0  # seconds for what may never come, for its bridge or its network is gone
FAULTS = (*GOES_WRONG, AssertionError)  # what a person meets while there is trouble
# what two phones say of a question
YES, NO = "approved", "rejected"
DECISIONS: list[list[tuple[int, str]]] = [
    *([(0, YES)], [(0, NO)]),
    *([(0, YES), (1, YES)], [(0, NO), (1, NO)]),
    *([(0, YES), (0, YES)], [(0, NO), (0, NO)]),
    *([(0, YES), (1, NO)], [(0, NO), (1, YES)]),
    [],
]


@dataclass
class Ledger:
    """What may run, what was decided, and what was tried. Each command has a mark of its own."""

    approved: set[str] = field(default_factory=set)  # marks whose approval was sent, maybe in vain
    rejected: set[str] = field(default_factory=set)
    # (session, call) → mark, and which decisions phones were told to stand
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    stands: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    intruders: Counter[object] = field(default_factory=Counter)  # what they were answered
    faults: list[str] = field(default_factory=list)

    def told(self, phone: Phone) -> None:
        """Keep what the phone was told of decisions."""
        for message in phone.messages:
            payload = message.get("payload") or {}
            data = payload if message["type"] == "approval_recorded" else payload.get("data")
            if data and "decision" in data and "tool_call_id" in data:
                key = str(payload["session_id"]), str(data["tool_call_id"])
                self.stands.setdefault(key, set()).add(str(data["decision"]))


class Person(threading.Thread):
    """Goes on until `ending`, whatever goes wrong."""

    pause = 0.1  # seconds between two things

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.world, self.ledger = world, ledger
        self.rng = random.Random(f"{seed} {self.name}")
        self.pairings = [world.bridges[0].pairing() for _ in range(2)]
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.wait(self.pause):
            try:
                self.one()
            except FAULTS:
                continue  # what became of it is in the file that its command writes
            except Exception as error:
                self.ledger.faults.append(repr(error))
                raise

    def one(self) -> None:
        raise NotImplementedError

    @contextmanager
    def phone(self, token: str, device_id: str | None = None) -> Iterator[Phone]:
        """A phone on any of the bridges, which would keep one of its own, and all it was told."""
        bridge = self.rng.choice(self.world.bridges)
        phone = Phone(bridge.port, token, device_id=device_id, dial=bridge.dial)
        try:
            yield phone
        finally:
            phone.vanish()
            self.ledger.told(phone)


class Decider(Person):
    """Has agents act, says yes, no or both, and acknowledges what it was never sent (D27)."""

    number = 0

    def one(self) -> None:
        """The agent asks, whatever mode it is in or goes to, and does what was decided (D59)."""
        agent, world, self.number = self.rng.choice(ASKS.split()), self.world, self.number + 1
        mark = f"{self.name}-{self.number}-{agent}"
        does = "/stray yolo" if "strays" in agent else "/act"
        prompt = f"/run echo x >> {mark}" if agent == "plain" else f"{does} {mark}"
        with ExitStack() as leaving:
            phones = [leaving.enter_context(self.phone(one.token)) for one in self.pairings]
            first, second = (phone.ready() for phone in phones)
            first.send("notification_ack", {"notification_ids": NONSENSE})
            ready = start(first, world.bridges[0].root, agent=agent, timeout=WAITS)
            assert ready["type"] == "session_ready", ready
            session = str(ready["payload"]["session_id"])
            second.join(session)
            say(first, session, prompt)
            asked = first.expect("approval_required", WAITS, session_id=session)["payload"]
            asks = ready["payload"]["asks"] or agent == "plain"
            if not asks or mark not in asked["params"]["command"]:
                self.ledger.faults.append(f"{agent}: {ready} {asked}")
            self.ledger.calls[session, asked["tool_call_id"]] = mark
            decisions = self.rng.choice(DECISIONS)
            for phone, word in decisions:
                (self.ledger.approved if word == YES else self.ledger.rejected).add(mark)
                body = {"session_id": session, "tool_call_id": asked["tool_call_id"]}
                phones[phone].send("approval_response", body | {"decision": word})
            if decisions:
                first.expect("stream_end", WAITS, session_id=session, finish_reason="stop")
                second.ping()
                end(first, session)


class Intruder(Person):
    """Strangers with tokens that are none, somebody else's, copied or revoked (D62)."""

    pause = 1.0  # each time they try a dozen ways

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str) -> None:
        super().__init__(world, ledger, seed, name)
        bridge, (owner, lost) = world.bridges[0], self.pairings
        own = bridge.phone(owner, device_id="owner").connect()
        fresh = own.auth()["payload"]["device_token"]
        own.vanish()
        assert bridge.get("/api/v1/sessions", fresh).status == 200  # from now on the copy is void
        bridge.manage("revoke_device", lost.name)
        alike = fresh[:-1] + ("A" if fresh[-1] != "A" else "B")
        self.void = [owner.token, lost.token, secrets.token_urlsafe(32), alike]
        self.others = [fresh, bridge.hook_token, bridge.admin_token]

    def one(self) -> None:
        for token in self.void:
            https = self.rng.choice(self.world.bridges).https()
            for method, path in (
                ("GET", "info"),
                ("GET", "sessions"),
                ("POST", "sessions/x/events"),
            ):
                with suppress(*FAULTS):
                    status = https.request(method, f"/api/v1/{path}", token=token).status
                    self.told(status, status in (401, 403, 503), token)
        for token in [*self.void, *self.others]:
            with suppress(*FAULTS), self.phone(token, self.rng.choice(("thief", None))) as phone:
                answered = phone.connect().auth()["type"]
                self.told(answered, answered == "connection_error", token)

    def told(self, answer: object, refused: bool, token: str) -> None:
        self.ledger.intruders[answer] += 1
        if not refused:
            self.ledger.faults.append(f"{(self.void + self.others).index(token)}: {answer}")


@contextmanager
def at_work(*people: Person) -> Iterator[None]:
    for person in people:
        person.start()
    try:
        yield
    finally:
        for person in people:
            person.ending.set()
        for person in people:
            person.join(2 * PATIENCE)


def test_troubles_and_attacks(tmp_path: Path) -> None:
    script, agents = Script(tmp_path, "plain"), install(tmp_path / "bin")
    agents["BRIDGE_ACP_AGENTS"] += f";{script.setting}"
    with two_bridges(tmp_path, **agents) as world:
        (world.bridges[0].root / "opencode.json").write_text(ALLOWS_ALL)
        under_troubles(world, script)


def under_troubles(world: World, script: Script) -> None:
    seed = os.environ.get("TROUBLE_SEED") or secrets.token_hex(4)
    figure(f"TROUBLE_SEED={seed}")
    rng, ledger, events = random.Random(seed), Ledger(), 0
    deciders = [Decider(world, ledger, seed, f"decider-{number}") for number in range(3)]
    people: list[Person] = [*deciders, Intruder(world, ledger, seed, "intruder")]
    began = time.monotonic()
    with at_work(*people):
        while time.monotonic() - began < SECONDS:
            with under_load(world.bridges, posters=2, watchers=2, timeout=20, pace=0.1) as load:
                seconds = min(ROUND, SECONDS)
                world.trouble(rng, seconds, lambda: check_commands(world, ledger, script))
                world.recover()
                load.more(3, PATIENCE)
                others = [one.answer for one in load.refusals() if one.answer.status != 503]
                assert not others, others
                events += len(load.finish(PATIENCE))
            assert all(person.is_alive() for person in people), people
            figure(
                f"{time.monotonic() - began:.0f} s: {events} events; {len(ledger.calls)} decisions"
                f" asked for, {len(ledger.approved)} commands approved, {len(ledger.rejected)}"
                f" rejected; slowest to be well again: {sorted(world.took)[-3:]}\n"
                f"{dict(world.seen)}\n{dict(ledger.intruders)}"
            )
    for bridge in world.bridges:
        bridge.hang_up()
        bridge.terminate()
        bridge.ended(PATIENCE)
    script.assert_gone(PATIENCE)
    assert check_commands(world, ledger, script) and ledger.approved and ledger.rejected


def check_commands(world: World, ledger: Ledger, script: Script) -> Counter[str]:
    """What ran was approved, and ran once; each decision is one, and an agent is told it once."""
    files = [path for path in world.bridges[0].root.iterdir() if path.name != "opencode.json"]
    ran = Counter({path.name: len(path.read_text().split()) for path in files})
    assert not [mark for mark, times in ran.items() if times > 1], f"executed twice: {ran}"
    assert not set(ran) - ledger.approved, f"executed unasked: {set(ran) - ledger.approved}"
    assert not ledger.faults, ledger.faults
    for key, stands in list(ledger.stands.items()):
        assert len(stands) == 1, f"phones were told different decisions: {key} {stands}"
        assert stands == {"approved"} or ledger.calls.get(key) not in ran, f"{key}: {stands}"
    told = Counter((line["pid"], line["number"]) for line in script.lines("answered"))
    assert not [one for one, times in told.items() if times > 1], f"told twice: {told}"
    return ran
