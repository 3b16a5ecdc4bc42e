"""The crash test itself, which test_kill_one.py and test_kill_two.py run: two files, so that two
workers can run them side by side.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

from tests.faults.ledger import Wrong
from tests.faults.quick import QuickBridge
from tests.faults.swarm import Swarm

log = logging.getLogger("tests.faults")
MANY = 40  # instants, among which a device is surely cut off between a row and its acknowledgement


def survive(bridges: list[QuickBridge], instants: int, seed: str) -> None:
    began = time.monotonic()
    bridges[0].start()  # and with it the tables
    swarm = Swarm(bridges, seed)
    try:
        asyncio.run(swarm.kill(instants))
    except* Wrong as wrong:
        text = "\n".join(str(one) for one in single(wrong))
        logs = "\n".join(bridge.tail() for bridge in bridges)
        kills = "\n".join(swarm.kills)
        raise AssertionError(
            f"seed {seed}, after {swarm.summary()}: {text}\n{kills}\n{logs}\n{newest_rows(bridges[0])}"
        ) from wrong
    found = swarm.summary() | {"seconds": round(time.monotonic() - began)}
    log.info("%s", found)
    assert found["instants"] >= instants
    # the others' work went on
    assert found["events acknowledged"] > instants and found["requests sent again"], found
    assert found["rows sent again"] or instants < MANY, found


def newest_rows(bridge: QuickBridge) -> str:
    """What the log itself has to say, where it is a file: (row, feed, id, number of the event) of
    its newest rows.
    """
    file = bridge.data / "bridge.sqlite3"
    if not file.exists():
        return ""
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT seq, feed_id, message_id, frame FROM sessions_app_logrow ORDER BY seq DESC LIMIT 1000"
        ).fetchall()
    return "\n".join(
        f"{seq} {feed} {id_} {json.loads(frame)['payload'].get('payload', {}).get('number', '')}"
        for seq, feed, id_, frame in reversed(rows)
    )


def single(group: BaseExceptionGroup[Wrong]) -> Iterator[BaseException]:
    """What is in the group, and in groups in it."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from single(one)
        else:
            yield one
