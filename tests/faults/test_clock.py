"""The bridge's clock is off by an hour, or jumps (D19, D25 to D27, D31, D33, D46, D47)."""

from pathlib import Path

import pytest

from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.clock import ClockBridge
from tests.faults.load import under_load
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, wait_until

pytestmark = pytest.mark.usefixtures("other_clock")

HOUR = 3600.0
# seconds after a jump, until the bridge's own leases are right again: sooner than it would have
# renewed them
COUNTED_WITHIN = 4.5


def listening(bridge: ClockBridge, session_id: str) -> int:
    [answer] = bridge.accept(prompt(session_id, new_id(), timestamp=now(bridge.ahead)))
    return int(answer["broadcast_count"])


@pytest.mark.slow
def test_the_clock_jumps_under_load(tmp_path: Path) -> None:
    """D25 to D27, D31, D33: nothing lost or doubled, no socket closed, no lease at an end."""
    sid = new_session()
    with ClockBridge(tmp_path) as bridge, under_load([bridge], watchers=2) as load:
        phone = bridge.phone().ready()
        bridge.accept(prompt(sid, 0))
        phone.join(sid)
        for ahead in (HOUR, -HOUR, 0.0):
            bridge.set(ahead)
            wait_until(lambda: listening(bridge, sid) == 1, "counted", seconds=COUNTED_WITHIN)
            load.more(10)
        phone.ping()
        phone.close()
        load.finish()
        assert [len(watcher.views) for watcher in load.watchers] == [1, 1], "a socket was closed"
        assert not load.unanswered()
        codes = [refusal.answer.json()["code"] for refusal in load.refusals()]
        assert set(codes) <= {"HOOK_STALE_TIMESTAMP"}
        assert len(codes) <= 3 * len(load.posters), (
            "refused once for each jump, then with the server's time"
        )


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
