"""Load with a book kept: posters note what was acknowledged, phones what came.

Each event was acknowledged once, and must be in every device's view once and in one order.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle, takewhile
from typing import Any, NamedTuple

from websockets.exceptions import WebSocketException

from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.https import Response
from tests.conformance.phone import Closed, Message, Phone
from tests.conformance.samples import PAYLOADS, hook, new_id, new_session, now, prompt
from tests.servers import PATIENCE, wait_until

# seconds between two events of a poster: load, but a session's 10,000 messages (D30) last
PACE = 0.02
HEARTBEAT = 2.0  # a phone in a hurry: with the specification's 15 seconds tests would take long
GOES_WRONG = (OSError, http.client.HTTPException, EOFError, WebSocketException, Closed)
END = "end"
BRINGS = {"PreToolUse": "tool_call", "PostToolUse": "tool_result"}  # a row of the session each


class Refusal(NamedTuple):
    at: float  # monotonic, when it was asked for
    seconds: float
    answer: Response


class Poster(threading.Thread):
    """Posts events until each is acknowledged, by one bridge or the next; one of ten is a batch."""

    def __init__(
        self,
        bridges: Sequence[Bridge],
        session_id: str,
        name: str,
        *,
        timeout: float = 10,
        pace: float = PACE,
        most: int = 1,
    ) -> None:
        super().__init__(daemon=True, name=f"poster {name}")
        self.session_id, self.prefix, self.pace, self.most = session_id, name, pace, most
        self.ways = cycle([(one.https(timeout=timeout), one.hook_token) for one in bridges])
        self.https, self.token = next(self.ways)
        self.acknowledged: list[str] = []
        self.rows: dict[str, list[str]] = {}  # event → what it brings beside itself
        # event → monotonic, when it was asked for and when it was acknowledged
        self.times: dict[str, tuple[float, float]] = {}
        self.refusals: list[Refusal] = []
        self.unanswered = 0
        self.slowest = 0.0  # of the acknowledged, in seconds
        self.ending = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        for turn in takewhile(lambda _: not self.ending.is_set(), count()):
            first = len(self.acknowledged)
            many = self.most if turn % 10 == 5 else 1
            events = [self.event(number) for number in range(first, first + many)]
            while not self._post(events):
                time.sleep(0.1)
            self.ending.wait(self.pace)
        self._hang_up()

    def _post(self, events: list[dict[str, Any]]) -> bool:
        bodies = [event | {"timestamp": now()} for event in events]
        what, body = ("event", bodies[0]) if len(bodies) == 1 else ("batch", {"events": bodies})
        asked = time.monotonic()
        try:
            connection = self._connection = self._connection or self.https.open()
            more = {"token": self.token, "json_body": body, "connection": connection}
            answer = self.https.post(f"/api/v1/hooks/{what}", **more)
        except GOES_WRONG:
            self._hang_up()
            self.unanswered += 1
            self.https, self.token = next(self.ways)
            return False
        seconds, given = time.monotonic() - asked, answer.json()
        if answer.status != 200:
            self.refusals.append(Refusal(asked, seconds, answer))
            return False
        assert given.get("event_ids", [given.get("event_id")]) == [e["event_id"] for e in events]
        for event in events:
            name, row = event["payload"]["number"], BRINGS.get(event["event"])
            self.acknowledged.append(name)
            self.rows[name] = [f"{row} {event['payload']['tool_use_id']}"] if row else []
            self.times[name] = asked, asked + seconds
        self.slowest = max(self.slowest, seconds)
        return True

    def event(self, number: int) -> dict[str, Any]:
        """What an agent's hooks say: nine of ten are a call that begins or ends."""
        name, event_id = f"{self.prefix}-{number}", new_id()
        if number % 10 == 0:
            return prompt(self.session_id, name, event_id=event_id)
        kind, call = ("PreToolUse", number) if number % 2 else ("PostToolUse", number - 1)
        more = {"number": name, "tool_use_id": f"{self.prefix}-{call}"}
        return hook(kind, self.session_id, PAYLOADS[kind] | more, event_id=event_id)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass
class View:
    """What one connection of a phone brought; ``owed``: the oldest row never acknowledged."""

    owed: str = ""
    rows: list[tuple[str, str]] = field(default_factory=list)
    code: int | None = None


class Watcher(threading.Thread):
    """A phone that joins, acknowledges now and then, and reconnects, to the next one of `ports`."""

    def __init__(
        self, session_id: str, phone: Phone, *, patience: float, ports: Sequence[int]
    ) -> None:
        super().__init__(daemon=True, name="watcher")
        self.session_id, self.phone, self.patience = session_id, phone, patience
        self.ports = cycle(ports)
        self.unacknowledged: dict[str, str] = {}  # id → row
        # ids; when the phone goes to another process, such an acknowledgement may be stored after
        # that one has sent its rows again
        self.ever_acknowledged: set[str] = set()
        self.views: list[View] = []
        self.arrived: dict[str, float] = {}  # event → monotonic, when it was first seen
        self.fault: BaseException | None = None  # a message that is not what the specification says
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            self.phone.port = next(self.ports)
            never = (
                row for id_, row in self.unacknowledged.items() if id_ not in self.ever_acknowledged
            )
            view = View(next(never, ""))
            try:
                self.phone.ready()
                self.phone.join(self.session_id)
            except (*GOES_WRONG, AssertionError):  # no bridge, or one that cannot take a phone now
                self.phone.vanish()
            else:
                self.views.append(view)
                self._listen(view)
            self.ending.wait(0.1)
        self.phone.close()

    def _listen(self, view: View) -> None:
        self._take(self.phone.messages, view)
        heard = pinged = time.monotonic()
        try:
            while not self.ending.is_set():
                try:
                    self._take([self.phone.receive(0.2)], view)
                    heard = time.monotonic()
                except TimeoutError:
                    pass
                if time.monotonic() - heard > self.patience:
                    return self.phone.vanish()
                due = time.monotonic() - pinged > HEARTBEAT
                if len(self.unacknowledged) >= 50 or (self.unacknowledged and due):
                    ids = list(self.unacknowledged)
                    self.ever_acknowledged.update(ids)
                    self.phone.send("notification_ack", {"notification_ids": ids})
                    self.unacknowledged.clear()
                if due:
                    self.phone.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
                    pinged = time.monotonic()
        except Closed as closed:
            view.code = closed.code
        except GOES_WRONG:
            self.phone.vanish()
        except AssertionError as fault:
            self.fault = fault
            self.ending.set()
        return None

    def _take(self, messages: Sequence[Message], view: View) -> None:
        for id_, name in rows_of(messages, self.session_id):
            view.rows.append((id_, name))
            self.unacknowledged[id_] = name
            self.arrived.setdefault(name, time.monotonic())


class Load:
    """Posters, phones that watch, and one device that comes back at the end for the whole log."""

    def __init__(
        self,
        bridges: Sequence[Bridge],
        *,
        posters: int = 4,
        watchers: int = 1,
        patience: float = 6,
        roam: bool = False,
        **posting: Any,
    ) -> None:
        """Share posters and watchers out; with `roam` they go to the next bridge when cut off."""
        self.bridges, self.session_id, self.roam = list(bridges), new_session(), roam
        first = self.bridges[0]
        first.accept(prompt(self.session_id, "start"))
        self.posters = [
            Poster(self._way(number), self.session_id, str(number), **posting)
            for number in range(posters)
        ]
        pairings = [first.pairing() for _ in range(watchers + 1)]
        self.watchers = [
            Watcher(
                self.session_id,
                self._phone(number, pairing),
                patience=patience,
                ports=[bridge.port for bridge in self._way(number)],
            )
            for number, pairing in enumerate(pairings[1:])
        ]
        self.away = self._phone(0, pairings[0])
        self.away.ready().close()

    def _way(self, number: int) -> list[Bridge]:
        """The bridges that this one of the posters, or of the phones, goes to, and again."""
        first = number % len(self.bridges)
        return self.bridges[first:] + self.bridges[:first] if self.roam else [self.bridges[first]]

    def _phone(self, number: int, pairing: Pairing) -> Phone:
        phone = self._way(number)[0].phone(pairing)
        # each process has its own certificate
        phone.pin = phone.pin if len(self.bridges) == 1 else None
        return phone

    def count(self) -> int:
        return sum(len(poster.acknowledged) for poster in self.posters)

    def unanswered(self) -> int:
        return sum(poster.unanswered for poster in self.posters)

    def refusals(self) -> list[Refusal]:
        return [refusal for poster in self.posters for refusal in poster.refusals]

    def acknowledged(self, since: float, until: float) -> dict[str, float]:
        """The events that were asked for and acknowledged in between, and when the latter."""
        times = (item for poster in self.posters for item in poster.times.items())
        return {name: at for name, (asked, at) in times if since < asked and at < until}

    def more(
        self, each: int, within: float = PATIENCE, posters: Sequence[Poster] | None = None
    ) -> None:
        """Wait until each poster has had that many more events acknowledged."""
        wanted = [(poster, len(poster.acknowledged) + each) for poster in posters or self.posters]
        wait_until(lambda: all(len(one.acknowledged) >= n for one, n in wanted), within=within)

    def finish(self) -> list[str]:
        """End the load: every event is in each device's view once, in one order; these events."""
        for poster in self.posters:
            poster.ending.set()
        for poster in self.posters:
            poster.join(PATIENCE)
            waits = f"{poster.name} waits for {len(poster.acknowledged)}: {poster.refusals[-1:]}"
            assert not poster.is_alive(), waits
        self.bridges[0].accept(prompt(self.session_id, END))
        for watcher in self.watchers:
            wait_until(lambda watcher=watcher: END in watcher.arrived or watcher.fault)
            watcher.ending.set()
            watcher.join(PATIENCE)
            assert not watcher.is_alive() and watcher.fault is None, watcher.fault
        events, rows = self._whole_log()
        for watcher in self.watchers:
            check_views(watcher.views, rows)
        hooks = self.bridges[0].session(self.session_id)["hook_count"]
        assert hooks == len(events) + 2, "with `start` and END"
        return events

    def _whole_log(self) -> tuple[list[str], list[str]]:
        """The events and rows that the device gets that was away: what was acknowledged."""
        self.away.ready()
        sid = self.session_id
        self.away.collect(lambda: END in self.away.numbers(sid), "the whole log")
        rows = [name for _, name in rows_of(self.away.messages, sid)]
        ids = [event["payload"]["event_id"] for event in self.away.events(sid)]
        self.away.close()
        assert len(set(ids)) == len(ids) and len(set(rows)) == len(rows), "stored twice"
        assert rows.pop() == END
        events = [name for name in rows if " " not in name]
        for poster in self.posters:
            own = [name for name in events if name.startswith(f"{poster.prefix}-")]
            assert own == poster.acknowledged, differences(own, poster.acknowledged)
        besides = {name: more for poster in self.posters for name, more in poster.rows.items()}
        brought = [row for name in events for row in (name, *besides[name])]
        assert rows == brought, differences(rows, brought)
        return events, [*rows, END]


def rows_of(messages: Sequence[Message], session_id: str) -> Iterator[tuple[str, str]]:
    """The session's rows among them: id, and the event's number or the type and call."""
    for message in messages:
        payload = message.get("payload", {})
        if payload.get("session_id") == session_id:
            if message["type"] == "agent_event":
                yield message["id"], str(payload["payload"]["number"])
            elif message["type"] in BRINGS.values():
                yield message["id"], f"{message['type']} {payload['tool_call_id']}"


def differences(found: list[str], wanted: list[str]) -> str:
    missing = [name for name in wanted if name not in set(found)]
    more = [name for name in found if name not in set(wanted)]
    return f"missing {missing}, not wanted {more}, {len(found)} of {len(wanted)}"


def check_views(views: Sequence[View], truth: list[str]) -> None:
    """A device's view over all its connections: each row once, in order, owed ones again (D27)."""
    names: dict[str, str] = {}
    place = {name: number for number, name in enumerate(truth)}
    for view in views:
        assert len(set(view.rows)) == len(view.rows), "twice on one connection"
        numbers = [place[name] for _, name in view.rows if name in place]
        if numbers:
            whole = list(range(numbers[0], numbers[0] + len(numbers)))
            assert numbers == whole, "a hole, or out of order, on one connection"
            owed = place.get(view.owed, numbers[0])
            assert numbers[0] <= owed, f"{view.owed} was not acknowledged, and did not come again"
        for id_, name in view.rows:
            assert names.setdefault(id_, name) == name
    assert len(set(names.values())) == len(names), "one row came under two ids"
    seen = list(dict.fromkeys(name for view in views for _, name in view.rows if name != "start"))
    assert seen == truth, differences(seen, truth)


@contextmanager
def under_load(bridges: Sequence[Bridge], **more: Any) -> Iterator[Load]:
    """A load while the block runs, which calls `finish`; its threads end in any case."""
    load = Load(bridges, **more)
    try:
        for watcher in load.watchers:
            watcher.start()
        wait_until(lambda: all(watcher.views for watcher in load.watchers))
        for poster in load.posters:
            poster.start()
        load.more(5)
        yield load
    finally:
        for ending in [one.ending for one in load.posters] + [one.ending for one in load.watchers]:
            ending.set()
