"""What was accepted and what each device has of it (D26, D27, D31, D34): model.py's ground."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

Message = dict[str, Any]

ALL = "the feed for all"  # every other feed has the name of its session
FOR_ALL = {"session_started", "session_end", "notification"}  # D26


class Violation(AssertionError):
    """The bridge did what D26 to D31 rule out."""


@dataclass(eq=False)
class Row:
    """A message of exactly one feed; `message` is how it was first received."""

    feed: str
    index: int  # its place in its feed
    seq: int  # its place in the log, which is the order of commits
    type: str
    says: Message  # what its payload says, whatever else it has
    unordered: bool  # committed beside other rows: where among those of other feeds is not known
    message: Message | None = None

    def fits(self, message: Message) -> bool:
        if self.message is not None:
            return bool(self.message["id"] == message["id"])
        return bool(message["type"] == self.type) and all(
            message["payload"].get(name) == value for name, value in self.says.items()
        )

    def __str__(self) -> str:
        return f"row {self.seq} ({self.type} {self.says})"


class Log:
    """All rows in one sequence, and feed by feed."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.feeds: defaultdict[str, list[Row]] = defaultdict(list)
        self.by_id: dict[str, Row] = {}
        self.sessions: dict[str, bool] = {}  # open or closed
        self.accepted: set[str] = set()

    def accept(self, body: Message, event_id: str) -> None:
        """An event was answered with 200: it is in the log, once for each event_id (D26, D31)."""
        if event_id in self.accepted:
            return
        self.accepted.add(event_id)
        event, session = body["event"], body["session_id"]
        # its first event creates a session, SessionStart reopens it (D34)
        if event == "SessionStart" or session not in self.sessions:
            self.append(ALL, "session_started", session_id=session)
            self.sessions[session] = True
        about = {"session_id": session, "event": event, "event_type": event}
        self.append(session, "agent_event", **about, event_id=event_id, payload=body["payload"])
        if event == "SessionEnd" and self.sessions[session]:
            self.append(ALL, "session_end", session_id=session)
            # D13
            self.append(ALL, "notification", session_id=session, notification_type="task_complete")
            self.sessions[session] = False

    def append(self, feed: str, type_: str, *, unordered: bool = False, **says: Any) -> None:
        row = Row(feed, len(self.feeds[feed]), len(self.rows), type_, says, unordered)
        self.rows.append(row)
        self.feeds[feed].append(row)

    def recognise(self, row: Row, message: Message) -> None:
        """The row came as this message: it does so on every connection (D27)."""
        owner = self.by_id.setdefault(message["id"], row)
        if row.message is None and owner is row:
            if UUID(message["id"]).version != 4:
                raise Violation(f"{row} has no UUID v4 of its own (D4): {message['id']}")
            row.message = message
        if row.message is None or any(
            row.message[name] != message[name] for name in ("id", "type", "payload")
        ):
            raise Violation(
                f"{row} came with the id of {owner}, or not as before ({row.message}): {message}"
            )

    def before(self, feed: str, seq: int) -> int:
        """How many rows of a feed the log had when it had `seq` rows."""
        return sum(row.seq < seq for row in self.feeds[feed])


class Device:
    """Its position in each feed: `base` rows at least and at most, and what it acknowledged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = False
        self.base: dict[str, tuple[int, int]] = {}
        self.received: dict[str, set[int]] = defaultdict(set)  # feed → rows that it was ever sent
        self.acked: dict[str, set[int]] = defaultdict(set)
        # acknowledgements that may have been lost, or need not count
        self.perhaps: dict[str, set[int]] = defaultdict(set)

    def cursor(self, feed: str) -> range:
        """The possible numbers of rows that it is known to have, from the first on."""
        least, most = self.base.get(feed, (0, 0))
        while least in self.acked[feed]:
            least += 1
        while most in self.acked[feed] | self.perhaps[feed]:
            most += 1
        return range(least, max(least, most) + 1)

    def doubt(self) -> None:
        """A kill may have cost what was acknowledged and not yet stored."""
        for feed, acked in self.acked.items():
            self.perhaps[feed] |= acked
        self.acked.clear()
