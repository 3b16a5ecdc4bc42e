"""The book of the crash test: what posters were promised, held against what each device is sent,
row by row and as it comes (D26, D27, D31).

Nobody tells us the log; the devices reveal it. The first one to be sent a row fixes the row's place
in its feed, and from then on every device must find it there. A row costs the same whether it is
the first or the millionth, and what all devices have for good is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

ALL = "the feed for all devices"


class Wrong(AssertionError):
    """The bridge broke a promise."""


class Feed:
    """The rows of a session, or of the feed for all, in the order in which devices have revealed
    them. Rows are counted from 0.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.length = 0
        self.settled = 0  # rows before this one were acknowledged for good by every device
        self.last: dict[str, int] = {}  # poster → number of its newest event here
        self.brings: dict[str, str] = {}  # event → the row that must follow its own
        self.due: str | None = None  # that row, of the newest event
        self._place: dict[str, int] = {}  # message id → row
        self._names: dict[int, str] = {}  # row → event
        self._over: set[str] = set()  # ids of settled rows, where they have no numbers

    def place(self, message_id: str) -> int | None:
        return self._place.get(message_id)

    def name_of(self, row: int) -> str:
        return self._names[row]

    def append(self, message_id: str, name: str) -> int:
        """A row that no device has shown before: the next one in the feed. A poster's events in a
        session are numbered, without a hole.
        """
        if name != (self.due or name):
            raise Wrong(f"{self.name}: {self.due} was due, {name} came")
        poster, _, number = name.rpartition("-")
        if self.due:
            self.due = None
        elif self.name != ALL:
            expected = self.last.get(poster, -1) + 1
            if int(number) != expected:
                problem = (
                    "has come twice, under two ids"
                    if int(number) < expected
                    else f"has come before {poster}-{expected}, or that is lost"
                )
                raise Wrong(f"{self.name}: event {name} {problem}")
            self.last[poster] = int(number)
            self.due = self.brings.pop(name, None)
        elif message_id in self._over:
            raise Wrong(
                f"{self.name}: {name} has come again after every device had acknowledged it for good"
            )
        self._place[message_id], self._names[self.length] = self.length, name
        self.length += 1
        return self.length - 1

    def settle(self, before: int) -> None:
        """Every device has acknowledged the rows before this one, and was not sent them again: they
        must never come again, and can be forgotten.
        """
        over = [message_id for message_id, row in self._place.items() if row < before]
        for message_id in over:
            del self._names[self._place.pop(message_id)]
        if self.name == ALL:
            self._over.update(over)
        self.settled = before


class View:
    """What one device was sent, over all its connections."""

    def __init__(self, device: str, feeds: dict[str, Feed]) -> None:
        self.device = device
        self.feeds = feeds
        self.rows = self.again = 0
        self.unacknowledged: dict[str, tuple[str, int]] = {}  # message id → feed, row
        # at any time; whether the bridge knows is another question
        self._acknowledged: dict[str, tuple[str, int]] = {}
        self._seen: dict[str, int] = {}  # feed → rows that this device has been sent
        self._here: dict[str, int] = {}  # feed → the newest row on this connection
        # feed → the oldest row that had never been acknowledged when its rows began to come on this
        # connection
        self._owed: dict[str, int] = {}

    def connected(self) -> None:
        """A new connection: what this device has not acknowledged must come again, and all that
        followed it.
        """
        self._here.clear()
        self._owe()

    def _owe(self) -> None:
        """Reckon anew where feeds may begin of which nothing has come on this connection yet."""
        owed: dict[str, int] = {}
        for message_id, (feed, row) in self.unacknowledged.items():
            if message_id not in self._acknowledged:
                owed[feed] = min(row, owed.get(feed, row))
        self._owed = {feed: row for feed, row in self._owed.items() if feed in self._here} | {
            feed: row for feed, row in owed.items() if feed not in self._here
        }

    def arrived(self, feed_name: str, message_id: str, name: str) -> None:
        """Raises Wrong when the row is not the one that has to come now: in order, without a hole,
        never twice on a connection, one id each.
        """
        feed = self.feeds.get(feed_name)
        if feed is None:
            raise Wrong(f"{self.device}: {name} of the unknown session {feed_name}")
        row, here, seen = (
            feed.place(message_id),
            self._here.get(feed_name),
            self._seen.get(feed_name, 0),
        )
        if row is None:
            if self._due(feed_name) != feed.length:
                raise Wrong(
                    f"{self.device}, {feed_name}: {self._instead(feed)}, {name} came under an id that nobody else was sent"
                )
            row = feed.append(message_id, name)
        elif feed.name_of(row) != name:
            raise Wrong(
                f"{self.device}, {feed_name}: id {message_id} was {feed.name_of(row)} and is now {name}"
            )
        elif here is not None and row != here + 1:
            raise Wrong(
                f"{self.device}, {feed_name}: {self._instead(feed)}, {name} came {'again on this connection' if row <= here else 'before it'}"
            )
        elif here is None and not feed.settled <= row <= self._due(feed_name):
            raise Wrong(
                f"{self.device}, {feed_name}: {self._instead(feed)}, the connection begins with row {row} ({name})"
            )
        self._here[feed_name] = row
        self._seen[feed_name] = max(seen, row + 1)
        self.unacknowledged[message_id] = feed_name, row
        self.rows += 1
        self.again += row < seen

    def _due(self, feed: str) -> int:
        """The row that comes next; at the beginning of a connection the newest one that may be the
        first.
        """
        return (
            self._here[feed] + 1
            if feed in self._here
            else self._owed.get(feed, self._seen.get(feed, 0))
        )

    def _instead(self, feed: Feed) -> str:
        due = self._due(feed.name)
        known = f" ({feed.name_of(due)})" if feed.settled <= due < feed.length else ""
        why = {
            "here": self._here.get(feed.name),
            "seen": self._seen.get(feed.name),
            "owed": self._owed.get(feed.name),
        }
        acknowledged = sorted(
            row
            for name, row in self._acknowledged.values()
            if name == feed.name and abs(row - due) < 5
        )
        return f"{why}, acknowledged near it: {acknowledged}; row {due} was due{known}"

    def acknowledge(self, message_ids: Iterable[str]) -> None:
        """What is acknowledged before it has come again need not come again, and may: the bridge
        may have read it from the log already.
        """
        for message_id in message_ids:
            self._acknowledged[message_id] = self.unacknowledged.pop(message_id)
        self._owe()

    def settle(self, lengths: dict[str, int]) -> None:
        self._acknowledged = {
            id_: (feed, row)
            for id_, (feed, row) in self._acknowledged.items()
            if row >= lengths.get(feed, 0)
        }

    def missing(self) -> dict[str, int]:
        """Feed → how many rows this connection still owes: what only others were sent, and what was
        not acknowledged on the last one.
        """
        return {
            name: feed.length - self._due(name)
            for name, feed in self.feeds.items()
            if feed.length > self._due(name)
        }


class Ledger:
    """Promises and views. `feeds` are the sessions of now and the feed for all."""

    def __init__(self, devices: Iterable[str]) -> None:
        self.feeds: dict[str, Feed] = {ALL: Feed(ALL)}
        self.views = [View(device, self.feeds) for device in devices]
        # (session, poster) → number of its newest acknowledged event
        self.acknowledged: dict[tuple[str, str], int] = {}
        # (session, event) → the id that its poster gave it
        self.event_ids: dict[tuple[str, str], str] = {}
        self.promised = 0
        # rows of the feed for all that the acknowledged events must have brought
        self.announcements = 0

    def open(self, session_id: str) -> None:
        self.feeds[session_id] = Feed(session_id)

    def sending(self, session_id: str, name: str, event_id: str, brings: str = "") -> None:
        """An event is posted. ``brings``: the row of the session that must follow its own."""
        self.event_ids[session_id, name] = event_id
        if brings:
            self.feeds[session_id].brings[name] = brings

    def promise(self, session_id: str, name: str, *, announced: int = 0) -> None:
        """The event was answered with 200. `announced`: how many rows tell all devices of it."""
        poster, _, number = name.rpartition("-")
        self.acknowledged[session_id, poster] = int(number)
        self.promised += 1
        self.announcements += announced

    def sent(self, view: View, session_id: str, message_id: str, name: str, event_id: str) -> None:
        """An agent_event has come to a device."""
        if self.event_ids.get((session_id, name)) != event_id:
            raise Wrong(
                f"{view.device}, {session_id}: {name} has the event_id {event_id}, not {self.event_ids.get((session_id, name))}"
            )
        view.arrived(session_id, message_id, name)

    def outstanding(self) -> dict[str, str]:
        """What is still due: events that were acknowledged and no device has, rows that a device
        lacks. Empty: every promise was kept.
        """
        due = {}
        for (session_id, poster), number in self.acknowledged.items():
            if (last := self.feeds[session_id].last.get(poster, -1)) < number:
                due[f"{session_id}, {poster}"] = f"acknowledged up to {number}, devices have {last}"
        if self.feeds[ALL].length != self.announcements:
            due[ALL] = (
                f"{self.announcements} announcements were due, {self.feeds[ALL].length} have come"
            )
        due |= {name: f"{feed.due} was due" for name, feed in self.feeds.items() if feed.due}
        for view in self.views:
            for feed, count in view.missing().items():
                due[f"{view.device}, {feed}"] = f"{count} rows"
        return due

    def lengths(self) -> dict[str, int]:
        return {name: feed.length for name, feed in self.feeds.items()}

    def settle(self, lengths: dict[str, int]) -> None:
        """See Feed.settle."""
        for name, length in lengths.items():
            self.feeds[name].settle(length)
        for view in self.views:
            view.settle(lengths)

    def close(self, session_id: str) -> None:
        """The session is over, and all of it is settled: whatever comes of it now is wrong."""
        feed = self.feeds.pop(session_id)
        if feed.settled != feed.length:
            raise ValueError(f"{session_id} is not settled")
        for book in (self.acknowledged, self.event_ids):
            for key in [key for key in book if key[0] == session_id]:
                del book[key]
