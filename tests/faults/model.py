"""D26 to D31 as a model: what each connection must, may and must never be sent.

A test tells it what was done and shows it every message. `Violation` is what may not have come,
`missing` what still has to. Where something is open (whether a kill cost an acknowledgement), the
model keeps the least and the most, and what is seen afterwards narrows it. What a heartbeat proves
is left out: test_heartbeat_liveness.py.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

Message = dict[str, Any]

ALL = "the feed for all"  # every other feed has the name of its session (D26)


class Violation(AssertionError):
    """The bridge did what D26 to D31 rule out."""


@dataclass(eq=False)
class Row:
    """A message of exactly one feed; `message` is how it was first received."""

    feed: str
    index: int  # its place in its feed
    seq: int  # its place in the log, which is the order of commits
    key: str  # its event's id; or type and session, or type and device: each is there once
    says: Message  # what its payload says, whatever else it has
    message: Message | None = None


class Log:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.feeds: defaultdict[str, list[Row]] = defaultdict(list)
        self.by_key: dict[str, Row] = {}
        self.by_id: dict[str, Row] = {}
        self.sessions: dict[str, bool] = {}  # open or closed

    def accept(self, body: Message) -> None:
        """An event was answered with 200: it is in the log, once for each event_id (D26, D31)."""
        event, session = body["event"], body["session_id"]
        if body["event_id"] in self.by_key:
            return
        # the first event creates a session; what opens it again, which tests leave out, too (D34)
        if session not in self.sessions:
            self.append(ALL, f"session_started {session}")
            self.sessions[session] = True
        names = ("session_id", "event", "event_id", "payload")
        says = {name: body[name] for name in names} | {"event_type": event}
        self.append(session, body["event_id"], says)
        if event == "SessionEnd" and self.sessions[session]:
            self.append(ALL, f"session_end {session}")
            says = {"notification_type": "task_complete"}  # D13
            self.append(ALL, f"notification {session}", says)
            self.sessions[session] = False

    def append(self, feed: str, key: str, says: Message | None = None) -> None:
        rows = self.feeds[feed]
        row = self.by_key[key] = Row(feed, len(rows), len(self.rows), key, says or {})
        self.rows.append(row)
        rows.append(row)

    def find(self, message: Message) -> Row:
        """The row that came as this message: it does so on every connection (D27)."""
        type_, payload = message["type"], message["payload"]
        about = payload.get("data", {}).get("device") or payload.get("session_id")
        key = payload["event_id"] if type_ == "agent_event" else f"{type_} {about}"
        row = self.by_key.get(key)
        if row is None or any(payload.get(name) != row.says[name] for name in row.says):
            raise Violation(f"nothing asks for this message: {message}")
        if row.message is None:
            row.message = message
            if UUID(message["id"]).version != 4 or self.by_id.setdefault(message["id"], row) != row:
                raise Violation(f"{row} has no UUID v4 of its own (D4): {message['id']}")
        if any(row.message[name] != message[name] for name in ("id", "type", "payload")):
            raise Violation(f"{row} came as {row.message}, and then as {message}")
        return row

    def before(self, feed: str, seq: int) -> int:
        """How many rows of a feed the log had when it had `seq` rows."""
        return sum(row.seq < seq for row in self.feeds[feed])


class Device:
    """Its position in each feed: `base` rows at least and at most, and what it acknowledged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.base: dict[str, tuple[int, int]] = {}
        self.received: dict[str, set[int]] = defaultdict(set)  # feed → rows that it was ever sent
        self.acked: dict[str, set[int]] = defaultdict(set)
        # acknowledgements that may have been lost, or need not count
        self.perhaps: dict[str, set[int]] = defaultdict(set)

    def cursor(self, feed: str) -> tuple[int, int]:
        """So many rows it is known to have, from the first on: at least and at most."""
        least, most = self.base.get(feed, (0, 0))
        while least in self.acked[feed]:
            least += 1
        while most in self.acked[feed] | self.perhaps[feed]:
            most += 1
        return least, max(least, most)

    def doubt(self) -> None:
        """A kill may have cost what was acknowledged and not yet stored."""
        for feed, acked in self.acked.items():
            self.perhaps[feed] |= acked
        self.acked.clear()


@dataclass
class Stream:
    least: int  # the first row that comes is this or a later one
    next: int | None = None  # the row that comes next, once one has come
    backlog: int = 0  # the rows before this one were waiting when it connected
    # while it is not joined, this row and later ones may not come; None: not known yet
    until: int | None = None
    live_from: int | None = None  # this row and later ones come live


class Connection:
    """A socket of a device from its connection_ack on."""

    def __init__(self, device: Device, requests: set[str]) -> None:
        self.device = device
        self.streams: dict[str, Stream] = {}
        self.joined: set[str] = set()
        self.settled = False  # the backlog of the connect is over
        self.newest_live = -1
        self.requests = requests  # ids of what the client asked and was not answered
        self.unsettled: list[tuple[str, int]] = []  # acknowledged, but not known to have been read

    def stream(self, feed: str) -> Stream:
        """The feed on this connection; a new one begins at its first row."""
        return self.streams.setdefault(feed, Stream(0, until=0 if self.settled else None))


class Model:
    """The bridge as D26 to D31 describe it."""

    def __init__(self) -> None:
        self.log = Log()
        self.current: dict[Device, Connection] = {}  # the newest of each device

    def paired(self, device: Device, named: str) -> None:
        """It was connected for the first time: the others are told (D15), it starts here (D28)."""
        says = {"notification_type": "agent_notification"}
        self.log.append(ALL, f"notification {named}", says)
        here = len(self.log.feeds[ALL])
        device.base[ALL] = here, here

    def connected(self, device: Device, committed: int, requests: set[str]) -> None:
        """connection_ack came; the log surely had ``committed`` rows when the device asked."""
        connection = self.current[device] = Connection(device, requests)
        for feed in list(self.log.feeds):
            waiting = self.log.before(feed, committed)
            connection.streams[feed] = Stream(device.cursor(feed)[0], backlog=waiting)

    def ended(self, connection: Connection) -> None:
        """The connection is over; what the bridge may not have read may not count."""
        for feed, index in connection.unsettled:
            connection.device.perhaps[feed].add(index)

    def killed(self) -> None:
        """The bridge died and came back: acknowledgements may be lost, no row is (D26, D35)."""
        for device in self.current:
            device.doubt()

    # acknowledgements, D27

    def acknowledged(self, connection: Connection, ids: Iterable[str]) -> None:
        """notification_ack was sent; unknown ids are ignored. It counts when `read` says so."""
        rows = (self.log.by_id[id] for id in ids if id in self.log.by_id)
        connection.unsettled += [(row.feed, row.index) for row in rows]

    def read(self, connection: Connection) -> None:
        """Something sent after the acknowledgements was answered: the bridge has read them."""
        device = connection.device
        for feed, index in connection.unsettled:
            # of what it was never sent, an acknowledgement need not count
            sent = index in device.received[feed]
            (device.acked if sent else device.perhaps)[feed].add(index)
        connection.unsettled.clear()

    def received(self, connection: Connection, message: Message) -> None:
        """A message came. Raises Violation when it may not have."""
        if message["id"] in connection.requests:
            connection.requests.remove(message["id"])
            self._answered(connection, message)
        else:
            self._row(connection, self.log.find(message))

    def _answered(self, connection: Connection, message: Message) -> None:
        self.read(connection)
        feed = message["payload"].get("session_id")
        if message["type"] == "session_ready":  # before the backlog (D22)
            connection.joined.add(feed)
            stream = connection.stream(feed)
            stream.live_from = len(self.log.feeds[feed]) if connection.settled else None
        elif message["type"] == "session_end":
            connection.joined.discard(feed)
            stream = connection.stream(feed)
            stream.until = len(self.log.feeds[feed]) if connection.settled else None
            stream.live_from = None

    def _bounds(self, connection: Connection, feed: str) -> tuple[int, int]:
        """(the rows before this one must come, this one and later ones may not)."""
        end, stream = len(self.log.feeds[feed]), connection.stream(feed)
        if feed == ALL or feed in connection.joined:
            return end, end
        return stream.backlog, end if stream.until is None else stream.until

    def _row(self, connection: Connection, row: Row) -> None:
        """Each feed comes without a hole, from where the device is known to be."""
        device, feed, stream = connection.device, row.feed, connection.stream(row.feed)
        least = most = stream.next
        if least is None or most is None:
            least, most = stream.least, device.cursor(feed)[1]
        until = self._bounds(connection, feed)[1]
        if not least <= row.index <= min(most, until - 1):
            raise Violation(
                f"{device.name} was sent {row}, where {least} to {most} below {until} may come"
            )
        if stream.next is None and connection is self.current[device]:
            device.base[feed] = row.index, row.index
        stream.next = row.index + 1
        device.received[feed].add(row.index)
        # the backlog first, then live rows in the order of the log across all feeds (D26, D28)
        if stream.live_from is not None and row.index >= stream.live_from:
            if row.seq < connection.newest_live:
                raise Violation(f"{row} came after {self.log.rows[connection.newest_live]}")
            connection.newest_live = row.seq
        elif row.index < stream.backlog and connection.newest_live >= 0:
            newest = self.log.rows[connection.newest_live]
            raise Violation(f"{row} waited when it connected, and came after the live {newest}")

    # check points

    def missing(self, connection: Connection) -> list[str]:
        """What the connection must have been sent and was not."""
        lacking: list[str] = []
        for feed, rows in self.log.feeds.items():
            come = connection.stream(feed).next
            come = connection.device.cursor(feed)[1] if come is None else come
            lacking += [row.key for row in rows[come : self._bounds(connection, feed)[0]]]
        return lacking

    def settle(self, connection: Connection) -> None:
        """All that is owed has come, and a later row: the backlog of the connect is over."""
        device = connection.device
        for feed, rows in self.log.feeds.items():
            stream, owed = connection.stream(feed), self._bounds(connection, feed)[0]
            if stream.next is None:
                stream.least = max(stream.least, owed)
                if connection is self.current[device]:
                    device.base[feed] = stream.least, max(stream.least, device.cursor(feed)[1])
            if not connection.settled:
                stream.until = len(rows)
                stream.live_from = len(rows) if feed == ALL or feed in connection.joined else None
        connection.settled = True
