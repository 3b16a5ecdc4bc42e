"""D26 to D31 as a model: what each connection must, may and must never be sent.

A test tells it what was done and shows it every message. `Violation` is what may not have come,
`missing` what still has to. Where something is open (whether a kill cost an acknowledgement), the
model keeps every possibility, and what is seen afterwards narrows it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.accepted import ALL, FOR_ALL, Device, Log, Message, Row, Violation

PONG_WAIT = 10.0  # seconds (D27)


@dataclass
class Stream:
    """A feed on one connection; `at`: the rows that may come next, as far as that is known."""

    at: set[int]
    backlog: int = 0  # the rows before this one were waiting when it connected
    # while it is not joined, this row and later ones may not come; None: not known yet
    until: int | None = None
    live_from: int | None = None  # this row and later ones come live
    got: list[Message] = field(default_factory=list)


class Connection:
    """A socket of a device from its connection_ack on, held by one of the bridge's processes."""

    def __init__(self, device: Device, process: object) -> None:
        self.device, self.process = device, process
        self.streams: dict[str, Stream] = {}
        self.joined: set[str] = set()
        self.settled = False  # the backlog of the connect is over
        self.newest_live = -1
        self.requests: dict[str, str] = {}  # id → type of what the client asked
        self.answers: dict[str, Message] = {}
        self.unsettled: list[tuple[str, int]] = []  # acknowledged, but not known to have been read
        self.pings: list[float] = []  # when each was sent
        self.pongs: list[tuple[float, dict[str, set[int]]]] = []  # the rows received by the answer

    def follows(self, feed: str) -> bool:
        return feed == ALL or feed in self.joined


class Model:
    """The bridge as D26 to D31 describe it."""

    def __init__(self) -> None:
        self.log = Log()
        self.current: dict[Device, Connection] = {}  # the newest of each device

    # connections

    def connected(self, device: Device, committed: int, process: object) -> Connection:
        """connection_ack came; the log surely had ``committed`` rows when the device asked."""
        before = self.current.get(device)
        if before is not None and before.process is not process:
            # what one process has read and not yet stored, another does not know: at least once
            device.doubt()
        if not device.known:
            device.known = True
            beside = len(self.log.rows) > committed
            # to the others (D15)
            self.log.append(
                ALL, "notification", notification_type="agent_notification", unordered=beside
            )
            for feed, rows in self.log.feeds.items():  # a new device starts at the present (D28)
                device.base[feed] = (
                    self.log.before(feed, committed) if feed != ALL else len(rows),
                    len(rows),
                )
        connection = self.current[device] = Connection(device, process)
        for feed in list(self.log.feeds):
            waiting = self.log.before(feed, committed)
            connection.streams[feed] = Stream(set(device.cursor(feed)), waiting)
        return connection

    def ended(self, connection: Connection) -> None:
        """The connection is over; what the bridge may not have read may not count."""
        for feed, index in connection.unsettled:
            connection.device.perhaps[feed].add(index)

    def killed(self) -> None:
        """A process took another's place: acknowledgements may be lost, no row is (D26, D35)."""
        for device in self.current:
            device.doubt()

    # acknowledgements, D27

    def acknowledged(self, connection: Connection, ids: Iterable[str]) -> None:
        """notification_ack was sent; unknown ids are ignored. It counts when `read` says so."""
        for id in ids:
            if row := self.log.by_id.get(id):
                connection.unsettled.append((row.feed, row.index))

    def read(self, connection: Connection) -> None:
        """Something sent after the acknowledgements was answered: the bridge has read them."""
        device = connection.device
        for feed, index in connection.unsettled:
            # of what it was never sent, an acknowledgement need not count
            sent = index in device.received[feed]
            (device.acked if sent else device.perhaps)[feed].add(index)
        connection.unsettled.clear()
        for feed, stream in connection.streams.items():
            if not stream.got:  # a join continues from here
                stream.at |= set(device.cursor(feed))

    def pong(self, connection: Connection, now: float) -> None:
        """It may prove what was sent before the pong of a ping at least ten seconds older."""
        self.read(connection)
        for asked, received in connection.pongs:
            if now - asked >= PONG_WAIT:
                for feed, rows in received.items():
                    connection.device.perhaps[feed] |= rows
        received = {feed: set(rows) for feed, rows in connection.device.received.items()}
        connection.pongs.append((connection.pings.pop(0), received))

    # receiving

    def received(self, connection: Connection, message: Message, now: float) -> None:
        """A message came. Raises Violation when it may not have."""
        request = connection.requests.get(message.get("id", ""))
        if message["type"] == "heartbeat_pong":
            self.pong(connection, now)
        elif request is not None:
            self._answered(connection, request, message)
        elif message["type"] == "agent_event" or message["type"] in FOR_ALL:
            feed = ALL if message["type"] in FOR_ALL else message["payload"]["session_id"]
            self._row(connection, feed, self.stream(connection, feed), message)
        else:
            raise Violation(f"nothing asks for this message: {message}")

    def stream(self, connection: Connection, feed: str) -> Stream:
        """The feed on this connection; a new one begins at its first row."""
        return connection.streams.setdefault(
            feed, Stream({0}, until=0 if connection.settled else None)
        )

    def _answered(self, connection: Connection, request: str, message: Message) -> None:
        if message["id"] in connection.answers:
            raise Violation(f"a second answer to one {request}: {message}")
        connection.answers[message["id"]] = message
        self.read(connection)
        feed = message["payload"].get("session_id")
        if message["type"] == "session_ready":  # before the backlog (D22)
            connection.joined.add(feed)
            stream = self.stream(connection, feed)
            stream.live_from = len(self.log.feeds[feed]) if connection.settled else None
        elif message["type"] == "session_end":
            connection.joined.discard(feed)
            stream = self.stream(connection, feed)
            stream.until = len(self.log.feeds[feed]) if connection.settled else None
            stream.live_from = None

    def _bounds(self, connection: Connection, feed: str, stream: Stream) -> tuple[int, int]:
        """(the rows before this one must come, this one and later ones may not)."""
        end = len(self.log.feeds[feed])
        if connection.follows(feed):
            return end, end
        return stream.backlog, end if stream.until is None else stream.until

    def _row(self, connection: Connection, feed: str, stream: Stream, message: Message) -> None:
        rows, (_, until) = self.log.feeds[feed], self._bounds(connection, feed, stream)
        at = {index for index in stream.at if index < until and rows[index].fits(message)}
        if not at:
            raise Violation(
                f"{connection.device.name} was sent {self.log.by_id.get(message['id'])} of {feed},"
                f" where {sorted(stream.at)} below {until} may come, after {len(stream.got)} of it:"
                f" {message}"
            )
        stream.got.append(message)
        stream.at = {index + 1 for index in at}
        if len(at) == 1:
            self._known(connection, feed, stream, at.pop())

    def _known(self, connection: Connection, feed: str, stream: Stream, newest: int) -> None:
        """What came last on this stream was this row, and so what came before it is known too."""
        rows = self.log.feeds[feed]
        begun = newest + 1 - len(stream.got)
        for row, message in zip(rows[begun : newest + 1], stream.got, strict=True):
            self.log.recognise(row, message)
            connection.device.received[feed].add(row.index)
        if connection is self.current[connection.device]:
            connection.device.base[feed] = (begun, begun)
        self._in_order(connection, stream, rows[newest])

    def _in_order(self, connection: Connection, stream: Stream, row: Row) -> None:
        """The backlog first, then live rows in the order of the log across all feeds (D26, D28)."""
        if stream.live_from is not None and row.index >= stream.live_from:
            if row.seq < connection.newest_live and not row.unordered:
                raise Violation(f"{row} came live after {self.log.rows[connection.newest_live]}")
            if not row.unordered:
                connection.newest_live = row.seq
        elif row.index < stream.backlog and connection.newest_live >= 0:
            newest = self.log.rows[connection.newest_live]
            raise Violation(f"{row} waited when it connected, and came after the live {newest}")

    # check points

    def missing(self, connection: Connection) -> list[str]:
        """What the connection must have been sent and was not."""
        lacking = []
        for feed, rows in self.log.feeds.items():
            stream = self.stream(connection, feed)
            owed, _ = self._bounds(connection, feed, stream)
            if max(stream.at) < owed:
                lacking += [str(row) for row in rows[max(stream.at) : owed]]
        return lacking

    def settle(self, connection: Connection) -> None:
        """All that is owed has come, and a later row: the backlog of the connect is over."""
        for feed, rows in self.log.feeds.items():
            stream = self.stream(connection, feed)
            owed, _ = self._bounds(connection, feed, stream)
            stream.at = {index for index in stream.at if index >= owed}
            if not connection.settled:
                stream.until = len(rows)
                stream.live_from = len(rows) if connection.follows(feed) else None
            if not stream.got and connection is self.current[connection.device]:
                connection.device.base[feed] = (min(stream.at), max(stream.at))
        connection.settled = True
