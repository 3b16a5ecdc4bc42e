"""The clocks of two hosts differ by an hour (D33, D46)."""

from pathlib import Path

import pytest

from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.clock import ClockBridge
from tests.faults.quick import QuickBridge
from tests.servers import Postgres

pytestmark = pytest.mark.usefixtures("other_clock")

HOUR = 3600.0


def listening(bridge: ClockBridge, session_id: str) -> int:
    [answer] = bridge.accept(prompt(session_id, new_id(), timestamp=now(bridge.ahead)))
    return int(answer["broadcast_count"])


def test_two_hosts_whose_clocks_differ(postgres_server: Postgres, tmp_path: Path) -> None:
    """D33, D46: they are one bridge, and neither takes the other's leases for over."""
    sid, url = new_session(), postgres_server.create_database()
    with QuickBridge(tmp_path / "right", database_url=url) as right:
        right.accept(prompt(sid, 0))
        here = right.phone().ready()
        here.join(sid)
        ahead = ClockBridge(tmp_path, **right.shared)
        ahead.set(HOUR)
        with ahead:
            for count in (
                right.accept(prompt(sid, 0))[0]["broadcast_count"],
                listening(ahead, sid),
            ):
                assert count == 1, "the newcomer has taken the other's leases for over"
            there = ahead.phone().ready()
            there.join(sid)
            for number in range(1, 4):
                assert right.accept(prompt(sid, number))[0]["broadcast_count"] == 2
                assert listening(ahead, sid) == 2
            there.close()
        here.close()
