"""Two processes on PostgreSQL and Redis, each of the four killed, stopped and cut off in random
order, under the mix, under approvals and under attacks (D26, D31, D38, D46, D59, D62).

Nothing is lost, doubled or out of order; an agent runs what was approved, once, and nothing else;
phones agree on what was decided; nobody gets in who may not; the bridges come back by themselves.

SOAK_TROUBLE says for how many seconds, TROUBLE_SEED in which order; `make soak` asks for an hour.
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.attack.moody_lines import ALLOWS_ALL, install
from tests.conformance.agent_tools import Script, figure
from tests.faults.attackers import Attacker, Decider, Intruder, Ledger, Person
from tests.faults.load import Load, under_load
from tests.faults.troubles import PATIENCE, World, two_bridges

SECONDS = float(os.environ.get("SOAK_TROUBLE", "0"))
pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="takes an hour: make soak"),
    pytest.mark.timeout(600 + 3 * SECONDS),
]
ROUND = 60.0  # seconds of troubles, after which everything must have arrived


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
        under_troubles(world, script, tmp_path / "done")


def under_troubles(world: World, script: Script, done: Path) -> None:
    seed = os.environ.get("TROUBLE_SEED") or secrets.token_hex(4)
    figure(f"TROUBLE_SEED={seed}")
    rng, ledger, events = random.Random(seed), Ledger(), 0
    done.touch()
    people = (
        Decider(world, ledger, seed, "decider", done),
        Attacker(world, ledger, seed, "attacker-1"),
        Attacker(world, ledger, seed, "attacker-2"),
        Intruder(world, ledger, seed, "intruder"),
    )
    began = time.monotonic()
    with at_work(*people):
        while time.monotonic() - began < SECONDS:
            with under_load(world.bridges, posters=2, watchers=2, timeout=20, pace=0.1) as load:

                def check_all(load: Load = load) -> None:
                    check_commands(world, ledger, script, done)
                    check_so_far(load)

                world.trouble(rng, min(ROUND, SECONDS), check_all)
                world.recover(["a round"])
                load.more(3, PATIENCE)
                others = [one.answer for one in load.refusals() if one.answer.status != 503]
                assert not others, others
                events += len(load.finish(PATIENCE))
            check_commands(world, ledger, script, done)
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
    check_commands(world, ledger, script, done)
    assert ledger.approved and ledger.rejected and done.read_text()


def check_commands(world: World, ledger: Ledger, script: Script, done: Path) -> None:
    """What ran was approved, and ran once; each decision is one, and an agent is told it once."""
    ran = Counter(done.read_text().split())
    for path in world.bridges[0].root.iterdir():
        if path.name != "opencode.json":
            ran[path.name] += len(path.read_text().split())
    assert not [mark for mark, times in ran.items() if times > 1], f"executed twice: {ran}"
    assert not set(ran) - ledger.approved, f"executed unasked: {set(ran) - ledger.approved}"
    assert not ledger.faults, ledger.faults
    for key, stands in list(ledger.stands.items()):
        assert len(stands) == 1, f"phones were told different decisions: {key} {stands}"
        assert stands == {"approved"} or ledger.calls.get(key) not in ran, f"{key}: {stands}"
    told = Counter((line["pid"], line["number"]) for line in script.lines("answered"))
    assert not [one for one, times in told.items() if times > 1], f"told twice: {told}"


def check_so_far(load: Load) -> None:
    """On each connection of a watcher, what each poster said comes whole, once and in order."""
    for watcher in load.watchers:
        assert watcher.fault is None, watcher.fault
        for view in watcher.views:
            names = [name for _, name in list(view.rows)]
            for poster in load.posters:
                own = [name for name in names if name.startswith(f"{poster.prefix}-")]
                numbers = [int(name.partition("-")[2]) for name in own]
                assert all(b == a + 1 for a, b in pairwise(numbers)), (poster, numbers)
