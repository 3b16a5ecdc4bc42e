"""SIGTERM while another program keeps the database for itself (D46)."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge

ENDS_WITHIN = 45.0  # seconds, after which docs/deploy/bridge.service kills it


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Bridge]:
    """A bridge with four phones, whose records can be neither written nor deleted."""
    bridge = Bridge(tmp_path).start()
    for _ in range(4):
        bridge.phone().ready()
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield bridge
    bridge.hang_up()
    if bridge.running.poll() is None:
        bridge.kill()


def test_it_ends_all_the_same(locked: Bridge) -> None:
    """It does not wait for what each phone has left to be stored, for 20 seconds each."""
    locked.terminate()
    assert locked.ended(ENDS_WITHIN) == 0, locked.tail()
