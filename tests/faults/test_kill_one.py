"""kill -9 of one process: what was acknowledged is there once, in order (D26, D27, D31)."""

import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.load import Load, under_load
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

pytestmark = pytest.mark.slow
log = logging.getLogger("tests.faults")

POSTERS, PHONES, PACE, BATCH = 64, 5, 0.5, 5
EPOCH = 25  # instants, after which everything must have arrived, and is forgotten
# What has happened when a process dies, some moments later: nothing, perhaps since its start; it
# listens; so many events were acknowledged.
PHASES = ("starting", "handshakes", "under load")
MOMENTS, MOST_ANSWERS = 0.3, 50
ALL_AT_ONCE = 0.15  # the share of instants that take every process


def survive(bridges: Sequence[QuickBridge], instants: int, seed: str) -> None:
    """Kill processes; what was acknowledged is in every device's view once and in order."""
    rng, found = random.Random(seed), Counter[str]()
    try:
        while found["instants"] < instants:
            _epoch(bridges, min(EPOCH, instants - found["instants"]), rng, found)
            log.info("%s", dict(found))
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}, {found}", *(bridge.tail() for bridge in bridges)]))
        raise
    # the others' work went on
    assert found["events"] > instants and found["unanswered"] and found["connections"] > PHONES


def _epoch(
    bridges: Sequence[QuickBridge], instants: int, rng: random.Random, found: Counter[str]
) -> None:
    with under_load(
        bridges, posters=POSTERS, watchers=PHONES, pace=PACE, most=BATCH, roam=True
    ) as load:
        for _ in range(instants):
            phase = PHASES[found["instants"] % len(PHASES)]
            victims = bridges if rng.random() < ALL_AT_ONCE else [rng.choice(bridges)]
            _wait(load, victims[0], phase, rng)
            for victim in victims:
                assert victim.process is not None and victim.process.poll() is None, victim.tail()
                victim.process.kill()
            for victim in victims:
                victim.kill()
                victim.spawn()
            found.update({"instants": 1, phase: 1})
        for bridge in bridges:
            bridge.wait_ready()
        found["events"] += len(load.finish())
        assert not load.refusals(), load.refusals()[0]
        found["unanswered"] += load.unanswered()
        for watcher in load.watchers:
            assert {view.code for view in watcher.views} <= {None, 1000, 1006}, watcher.views
            found["connections"] += len(watcher.views)


def _wait(load: Load, victim: QuickBridge, phase: str, rng: random.Random) -> None:
    def listens() -> bool:
        with suppress(OSError):
            victim.https().open().close()
            return True
        return False

    if phase != PHASES[0]:
        wait_until(listens, "it listens")
    if phase == PHASES[2]:
        wanted = load.count() + rng.randint(1, MOST_ANSWERS)
        wait_until(lambda: load.count() >= wanted, "events are acknowledged")
    time.sleep(rng.uniform(0, MOMENTS))


@pytest.mark.spec("delivery.crash")
def test_one_process(tmp_path: Path, instants: int, seed: str) -> None:
    """SQLite; the five phones fill all five places (D23), and get them back at once (D35)."""
    with QuickBridge(tmp_path) as bridge:
        survive([bridge], instants, seed)
