"""Large request bodies take turns: what of them is in the bridge at once has a bound, and what does not fit waits unread in its connection.

A place is asked for when a large body begins, and given back when its request has been dealt with. Places go to those addresses first
that hold least, so that one client with many connections waits for itself. While somebody waits, a body that is too slow to be whole
in time is cut early: who sends a byte now and then cannot keep the others out.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bridge_project import limits

log = logging.getLogger("bridge.server")


@dataclass(eq=False, slots=True)
class Place:
    """One body. ``size`` is its length, or the most it can have; ``enter`` is called when it had to wait and may now be read, ``cut`` ends its connection."""

    address: str
    size: int
    enter: Callable[[], None]
    cut: Callable[[], None]
    received: int = 0
    whole: bool = False
    since: float = field(default=0.0, init=False)

    def is_late(self, now: float) -> bool:
        """Whether it has had its patience and at this pace will not be whole within REQUEST_SECONDS."""
        taken = now - self.since
        return not self.whole and taken >= limits.BODY_PATIENCE_SECONDS and self.received < self.size * taken / limits.REQUEST_SECONDS


class Bodies:
    """Who has a place and who waits for one. ``most``: bytes; a single body that is larger is alone."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.clock = clock
        self.inside: set[Place] = set()
        self.waiting: list[Place] = []

    def ask(self, place: Place) -> bool:
        """True: the body may be read. False: it waits; ``place.enter`` will be called."""
        self.waiting.append(place)
        self._admit(asking=place)
        self.hurry()
        return place in self.inside

    def leave(self, place: Place) -> None:
        """The body's request is over, or its client gone; also for a place that still waits or was left before."""
        if place in self.waiting:
            self.waiting.remove(place)
        self.inside.discard(place)
        self._admit()

    def arrived(self, place: Place) -> None:
        """The body is whole: now its length is known, and it keeps nobody waiting by its pace."""
        place.whole, place.size = True, place.received
        self._admit()

    def hurry(self) -> None:
        """Cut what is late, if somebody waits. Called once a second."""
        now = self.clock()
        for place in [one for one in self.inside if self.waiting and one.is_late(now)]:
            log.warning("A large body from %s came too slowly while others waited and was cut.", place.address)
            place.cut()
            self.leave(place)

    def _admit(self, asking: Place | None = None) -> None:
        while self.waiting:
            held = Counter(one.address for one in self.inside)
            place = min(self.waiting, key=lambda one: held[one.address])  # of several the one that has waited longest
            if self.inside and sum(one.size for one in self.inside) + place.size > self.most:
                return  # also nobody behind it: or a stream of smaller ones would keep it out
            self.waiting.remove(place)
            self.inside.add(place)
            place.since = self.clock()
            if place is not asking:
                place.enter()
