"""One phone vanishes without a close, another stops reading (D25, D27, D30): the others notice
nothing, and the two miss nothing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.https import LOOPBACK, Dial
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session
from tests.faults.hosts import missing
from tests.faults.land import land
from tests.faults.load import Load, View, check_views, is_end, under_load, within

pytestmark = pytest.mark.timeout(180)

SLOW_SOCKET, LIVENESS = 30, 45  # seconds (D30, D25)
SMALL = 65536  # bytes that a phone's system takes for it
LATER = 10  # seconds that a busy machine may be late
ON_TIME = 5.0  # seconds from the acknowledgement of an event to a phone that reads
MEGABYTES = 32  # of events for the phone that does not read
# bytes by which the bridge may grow meanwhile: a socket's share is one megabyte, and one message
HELD = 16 * 2**20


@dataclass
class Place:
    """A bridge, a way to it that can be cut without a word to either side, and one for a phone that
    has little room for what it does not read.
    """

    bridge: Bridge
    far: Dial
    narrow: Dial
    cut: Callable[[], None] = lambda: None
    mend: Callable[[], None] = lambda: None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Hosts of their own; where there can be none, a phone that is cut off just says nothing any
    more, and its system takes what comes.
    """
    directory = tmp_path_factory.mktemp("phones")
    if not missing():
        with land(directory) as made:
            near, far = made.over(made.wifi, receive_buffer=SMALL), made.over(made.mobile)
            yield Place(
                made.bridge, far, near, lambda: made.mobile.cut(made.clients), made.mobile.mend
            )
        return
    bridge = Bridge(directory).start()
    try:
        yield Place(
            bridge,
            lambda timeout: dial(bridge, timeout),
            lambda timeout: dial(bridge, timeout, SMALL),
        )
    finally:
        bridge.hang_up()
        bridge.kill()


def dial(bridge: Bridge, timeout: float, receive_buffer: int | None = None) -> socket.socket:
    made = socket.socket()
    made.settimeout(timeout)
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.connect((LOOPBACK, bridge.port))
    return made


@dataclass
class Lost:
    """A phone that the others shall not notice the loss of."""

    pairing: Pairing
    phone: Phone
    session_id: str


def vanishing(place: Place, session_id: str) -> Lost:
    """In the middle of the load's events, half of what it has got acknowledged; it is on a network
    of its own.
    """
    pairing = place.bridge.pairing()
    phone = place.bridge.phone(pairing, dial=place.far).ready()
    phone.join(session_id)
    phone.collect(lambda: len(phone.events(session_id)) >= 20, "some events")
    phone.ack(*phone.events(session_id)[:10])
    return Lost(pairing, phone, session_id)


def not_reading(place: Place) -> Lost:
    """Joined to a session of its own, and not read from any more."""
    pairing, session_id = place.bridge.pairing(), new_session()
    phone = place.bridge.phone(pairing, dial=place.narrow).ready()
    place.bridge.accept(hook("SessionStart", session_id))
    phone.join(session_id)
    phone.ping()
    return Lost(pairing, phone, session_id)


def post_megabytes(bridge: Bridge, session_id: str) -> None:
    """Far more than may wait in memory for a socket; whoever posts it does not wait for the socket
    either.
    """
    other, slowest = new_session(), 0.0

    def post(to: str, number: int) -> None:
        nonlocal slowest
        asked = time.monotonic()
        bridge.accept(hook("UserPromptSubmit", to, {"prompt": "x" * 1_000_000, "number": number}))
        slowest = max(slowest, time.monotonic() - asked)

    for number in range(8):
        post(other, number)  # what reading such events takes by itself
    before = bridge.memory()
    for number in range(MEGABYTES):
        post(session_id, number)
    grown = bridge.memory() - before
    assert slowest < ON_TIME and grown < HELD, f"{slowest:.1f} s, {grown / 2**20:.0f} MB"


def assert_unnoticed(load: Load) -> None:
    for watcher in load.watchers:
        assert len(watcher.views) == 1, "the others' connections held"
        late = sorted(
            watcher.arrived[name] - at
            for poster in load.posters
            for name, at in poster.times.items()
        )
        assert late[-1] < ON_TIME, f"the latest: {late[-5:]}"
    assert max(poster.slowest for poster in load.posters) < ON_TIME
    assert not load.refusals()


def view_of(lost: Lost) -> View:
    return View(
        [
            (event["id"], str(event["payload"]["payload"]["number"]))
            for event in lost.phone.events(lost.session_id)
        ]
    )


@pytest.mark.slow
def test_one_vanishes_and_one_stops_reading(place: Place) -> None:
    """D25, D30: their places are free after 30 seconds in which a socket takes no byte, or 45 of
    silence, whichever is over first.

    Meanwhile memory stays bounded, nobody who posts waits, and the others get everything on time.
    Afterwards each has each event once, in order.
    """
    bridge, sid = place.bridge, new_session()

    def connected() -> int:
        return int(bridge.get("/api/v1/health", bridge.hook_token).json()["active_websockets"])

    with under_load([bridge], sid, posters=3, watchers=2, pace=0.2) as load:
        gone, stuck = vanishing(place, sid), not_reading(place)
        assert connected() == 4
        began = time.monotonic()
        place.cut()
        post_megabytes(bridge, stuck.session_id)
        within(LIVENESS + LATER, lambda: connected() == 2, "both are gone")
        assert time.monotonic() - began > SLOW_SOCKET - 1
        truth = load.finish()
        assert_unnoticed(load)
    place.mend()
    # back on the network, it hears no pong and connects anew: nobody has told it of the end
    gone.phone.vanish()
    views = [view_of(gone)]
    gone.phone.ready()
    gone.phone.until(lambda message: is_end(message, sid), "what it has missed", 30)
    check_views([*views, view_of(gone)], truth[truth.index(views[0].events[0][1]) :])
    gone.phone.close()
    assert stuck.phone.wait_closed(30) in (4413, 1006)
    received = [number for number in stuck.phone.numbers(stuck.session_id) if number is not None]
    assert received == list(range(len(received))) and len(received) < MEGABYTES, (
        "it has got what fitted, and nothing out of order"
    )
    stuck.phone.ready()
    stuck.phone.collect(
        lambda: MEGABYTES - 1 in stuck.phone.numbers(stuck.session_id), "what it has missed", 60
    )
    assert stuck.phone.numbers(stuck.session_id)[-MEGABYTES:] == list(range(MEGABYTES))
    stuck.phone.close()
