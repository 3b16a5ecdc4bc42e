"""The bridge's clock is set forth and back by a year, by an hour in test_clock.py (D15, D19, D30, D31, D38): what
was accepted arrives, nobody is kept out, and no code becomes good again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from tests.conformance import phone as phones
from tests.conformance.approvals import decide, pre
from tests.conformance.https import parse_time
from tests.conformance.raw import RawSocket
from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.clock import FakedBridge
from tests.faults.load import within
from tests.servers import wait_until

pytestmark = pytest.mark.timeout(300)

HOUR, YEAR = 3600.0, 365 * 86400.0
SOON = 60.0  # seconds


@pytest.fixture(autouse=True)
def other_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness holds every pong against our clock; here it only has to be a time."""
    monkeypatch.setattr(phones, "assert_now", parse_time)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakedBridge]:
    bridge = FakedBridge(tmp_path_factory.mktemp("faked"))
    bridge.start()
    bridge.pin = bridge.pairing().pin
    yield bridge
    bridge.hang_up()
    bridge.kill()


@pytest.fixture(params=[YEAR, -YEAR], ids=["year", "-year"])
def jump(request: pytest.FixtureRequest, bridge: FakedBridge) -> Iterator[Callable[[], None]]:
    """Call it, and the clock jumps; afterwards it is right again."""
    bridge.set(0)
    bridge.minted.clear()  # codes that nobody used are void after an hour
    yield lambda: bridge.set(request.param)
    bridge.set(0)


def test_what_was_accepted_arrives(bridge: FakedBridge, jump: Callable[[], None]) -> None:
    """D30, D31, D38: the jump makes nothing old: rows that wait, an approval that is open, and the
    memory of an event that is posted again.
    """
    sid, asked, repeated = new_session(), new_session(), new_id()
    away = bridge.phone().ready()
    bridge.accept(prompt(sid, 0), pre(asked, approval=True, tool_call_id="call"))
    away.join(sid)
    away.close()
    bridge.accept(
        *[prompt(sid, number) for number in range(1, 5)], prompt(sid, 5, event_id=repeated)
    )
    jump()
    bridge.do_chores()
    bridge.accept(
        prompt(sid, 5, event_id=repeated, timestamp=now(bridge.ahead)),
        prompt(sid, 6, timestamp=now(bridge.ahead)),
    )
    away.ready()
    away.wait_numbers(sid, range(7))
    away.join(asked)
    assert decide(away, asked, "call", "approved")["type"] == "approval_recorded"
    away.close()


def test_who_was_in_stays_in(bridge: FakedBridge, jump: Callable[[], None]) -> None:
    """D15, D33: a socket lives on and is counted, its device comes back. One that was revoked does
    not, and a code is good neither after its time nor before it.
    """
    sid = new_session()
    bridge.accept(prompt(sid, 0))
    name = new_id()
    here, gone = bridge.phone().ready(), bridge.phone(bridge.mint("--name", name)).ready()
    bridge.manage("revoke_device", name)
    here.join(sid)
    jump()
    bridge.do_chores(here)

    def counted() -> bool:
        here.ping()
        body = prompt(sid, new_id(), timestamp=now(bridge.ahead))
        return bool(bridge.accept(body)[0]["broadcast_count"] == 1)

    within(SOON, counted, "the phone that is there is counted")
    here.ping()
    here.close()
    here.ready().close()
    assert gone.connect().auth()["type"] == "connection_error"


@pytest.mark.parametrize("ahead", [-HOUR, YEAR])
def test_a_code_that_was_minted_by_another_clock(bridge: FakedBridge, ahead: float) -> None:
    """D15: it is good neither after its time nor long before it, also when the clock comes back; a
    new one is.
    """
    bridge.set(ahead)
    old = bridge.phone(bridge.mint("--name", new_id()))
    bridge.set(0)
    bridge.do_chores()
    assert old.connect().auth()["type"] == "connection_error"
    bridge.phone(bridge.mint("--name", new_id())).ready().close()


def test_certificates_follow_the_clock(bridge: FakedBridge, jump: Callable[[], None]) -> None:
    """D19, D55: what is served is good by the clock that is right, within a minute, with the key
    that phones know; so is the authority.
    """

    def good() -> bool:
        moment = datetime.now(UTC) + timedelta(seconds=bridge.ahead)
        socket = RawSocket(bridge.port)
        leaf = x509.load_der_x509_certificate(socket.socket.getpeercert(binary_form=True))  # type: ignore[attr-defined]
        socket.close()
        authority = x509.load_pem_x509_certificate(bridge.get("/ca.crt").body)
        return all(
            one.not_valid_before_utc <= moment <= one.not_valid_after_utc
            for one in (leaf, authority)
        )

    for move in (jump, lambda: bridge.set(0)):
        move()
        within(2 * SOON, good, "the certificates are good by the bridge's clock")
    bridge.phone().ready().close()


def test_a_bridge_that_was_born_in_the_future(bridge: FakedBridge) -> None:
    """D16, D19, D55: its authority is good now; whoever is told to wait is told a minute at most,
    wherever the clock goes, and who has a token never is.
    """
    bridge.stop()
    bridge.process, bridge.pin = None, None
    shutil.rmtree(bridge.data / "tls")
    bridge.settings["BRIDGE_RATE_LIMITS"] = "on"
    for ahead in (YEAR, 0):
        bridge.set(ahead)
        bridge.start()
        if ahead:
            bridge.stop()
            bridge.process = None
    authority = x509.load_pem_x509_certificate(bridge.get("/ca.crt").body)
    assert authority.not_valid_before_utc < datetime.now(UTC) < authority.not_valid_after_utc
    for ahead in (YEAR, -YEAR):
        bridge.set(ahead)
        wait_until(lambda: told_to_wait(bridge), "who has no token is limited")
        bridge.accept(prompt(new_session(), 0, timestamp=now(ahead)))


def told_to_wait(bridge: FakedBridge) -> bool:
    answer = bridge.get("/api/v1/sessions", "wrong")
    assert answer.status in (401, 429), answer
    assert answer.status == 401 or int(answer.headers["retry-after"]) <= 61
    return answer.status == 429
