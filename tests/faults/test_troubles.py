"""Two processes and their stores, each killed, stopped and cut off in random order (D46).

Nothing is lost, doubled or out of order (D26, D31); an agent runs what was approved, once, and
nothing else (D59); phones agree on what was decided (D38); the bridges come back by themselves.
"""

import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attack.moody_lines import ALLOWS_ALL, install
from tests.conformance.agent_tools import Script, figure
from tests.conformance.agents import end, say, start
from tests.conformance.phone import Phone
from tests.faults.load import GOES_WRONG, under_load
from tests.faults.troubles import PATIENCE, World, two_bridges

SECONDS = float(os.environ.get("SOAK_TROUBLE", "0"))  # TROUBLE_SEED: in which order
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
WAITS = 30.0  # seconds for what may never come, for its bridge or its network is gone
FAULTS = (*GOES_WRONG, AssertionError)  # what a person meets while there is trouble
# what two phones say of a question
YES, NO = "approved", "rejected"
DECISIONS: list[list[tuple[int, str]]] = [[]]
for one, other in ((YES, NO), (NO, YES)):
    DECISIONS += [[(0, one), *more] for more in ([], [(0, one)], [(1, one)], [(1, other)])]


@dataclass
class Ledger:
    """What may run, what was decided, and what was tried. Each command has a mark of its own."""

    approved: set[str] = field(default_factory=set)  # marks whose approval was sent, maybe in vain
    rejected: set[str] = field(default_factory=set)
    # (session, call) → mark, and which decisions phones were told to stand
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    stands: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def told(self, phone: Phone) -> None:
        for message in phone.messages:
            payload = message.get("payload") or {}
            data = payload if message["type"] == "approval_recorded" else payload.get("data")
            if data and "decision" in data and "tool_call_id" in data:
                key = str(payload["session_id"]), str(data["tool_call_id"])
                self.stands.setdefault(key, set()).add(str(data["decision"]))


class Decider(threading.Thread):
    """Has agents act, and says yes, no or both, until `ending`, whatever goes wrong."""

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.world, self.ledger, self.number = world, ledger, 0
        self.rng = random.Random(f"{seed} {self.name}")
        self.pairings = [world.bridges[0].pairing() for _ in range(2)]
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.wait(0.1):
            try:
                self.one()
            except FAULTS:
                continue  # what became of it is in the file that its command writes
            except Exception as error:
                self.ledger.faults.append(repr(error))
                raise

    @contextmanager
    def phone(self, token: str) -> Iterator[Phone]:
        """A phone on any of the bridges, and all it was told."""
        bridge = self.rng.choice(self.world.bridges)
        phone = Phone(bridge.port, token, dial=bridge.dial)
        try:
            yield phone
        finally:
            phone.vanish()
            self.ledger.told(phone)

    def one(self) -> None:
        """The agent asks, whatever mode it is in or goes to, and does what was decided (D59)."""
        agent, world, self.number = self.rng.choice(ASKS.split()), self.world, self.number + 1
        mark = f"{self.name}-{self.number}-{agent}"
        does = "/stray yolo" if "strays" in agent else "/act"
        prompt = f"/run echo x >> {mark}" if agent == "plain" else f"{does} {mark}"
        with ExitStack() as leaving:
            phones = [leaving.enter_context(self.phone(one.token)) for one in self.pairings]
            first, second = (phone.ready() for phone in phones)
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


@contextmanager
def at_work(people: list[Decider]) -> Iterator[None]:
    for person in people:
        person.start()
    try:
        yield
    finally:
        for person in people:
            person.ending.set()
        for person in people:
            person.join(2 * PATIENCE)


def test_troubles(tmp_path: Path) -> None:
    script, agents = Script(tmp_path, "plain"), install(tmp_path / "bin")
    agents["BRIDGE_ACP_AGENTS"] += f";{script.setting}"
    with two_bridges(tmp_path, **agents) as world:
        (world.bridges[0].root / "opencode.json").write_text(ALLOWS_ALL)
        under_troubles(world, script)


def under_troubles(world: World, script: Script) -> None:
    seed = os.environ.get("TROUBLE_SEED") or secrets.token_hex(4)
    figure(f"TROUBLE_SEED={seed}")
    rng, ledger, events = random.Random(seed), Ledger(), 0
    people = [Decider(world, ledger, seed, f"decider-{number}") for number in range(3)]
    began = time.monotonic()
    with at_work(people):
        while time.monotonic() - began < SECONDS:
            with under_load(world.bridges, posters=2, watchers=2, timeout=20, pace=0.1) as load:
                seconds = min(ROUND, SECONDS)
                world.trouble(rng, seconds, lambda: check_commands(world, ledger, script))
                world.recover()
                load.more(3, PATIENCE)
                others = [one.answer for one in load.refusals() if one.answer.status != 503]
                assert not others, others
                events += len(load.finish())
            assert all(person.is_alive() for person in people), people
            figure(
                f"{time.monotonic() - began:.0f} s: {events} events; {len(ledger.calls)} decisions"
                f" asked for, {len(ledger.approved)} commands approved, {len(ledger.rejected)}"
                f" rejected; slowest to be well again: {sorted(world.took)[-3:]}\n"
                f"{dict(world.seen)}"
            )
    for bridge in world.bridges:
        bridge.hang_up()
        bridge.terminate()
        bridge.ended(PATIENCE)
    script.assert_gone()
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
    told = Counter((line["run"], line["number"]) for line in script.lines("answered"))
    assert not [one for one, times in told.items() if times > 1], f"told twice: {told}"
    return ran
