"""What the state machine stands on: devices and a producer that do as they are told and show the
model all that comes of it; steps, events posted beside them, and check points.
"""

import http.client
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine

from tests.conformance.bridge import Bridge
from tests.conformance.phone import PATIENCE, Closed, Phone
from tests.conformance.samples import hook, new_id, new_session, now
from tests.faults.model import Connection, Device, Message, Model, Violation


class Handset:
    """A device: at most one connection at a time, which the model knows as `connection`."""

    def __init__(self, bridge: Bridge, model: Model, name: str) -> None:
        self.bridge, self.model, self.device = bridge, model, Device(name)
        self.pairing = bridge.pairing()
        self.phone: Phone | None = None
        self.gone = False
        self.asked = set[str]()  # ids that wait for an answer
        self.seen = 0

    @property
    def connection(self) -> Connection:
        return self.model.current[self.device]

    @property
    def online(self) -> bool:
        return self.phone is not None

    def send(self, type_: str, payload: Any) -> str:
        """A message; the id by which its answer is known."""
        assert self.phone is not None
        self.asked.add(id := self.phone.send(type_, payload))
        return id

    def ask(self, type_: str, payload: Any) -> Message:
        """A message and its answer; what else came with it is still to be looked at."""
        assert self.phone is not None
        id = self.send(type_, payload)
        return self.phone.until(lambda message: message.get("id") == id, f"the answer to {type_}")

    def dial(self) -> None:
        """Open a socket, up to ready; an older one stays where it is until `taken`."""
        self.older, self.older_seen = self.phone, self.seen
        self.phone, self.asked, self.seen = self.bridge.phone(self.pairing), set(), 1
        self.phone.connect()
        answer = self.phone.auth()
        if answer["type"] != "connection_ack" or self.phone.messages[0] is not answer:
            raise Violation(f"connection_ack comes first (D28): {self.phone.messages}")
        status = self.check()
        if status["type"] != "health_status" or status["payload"]["ready"] is not True:
            raise Violation(f"{self.device.name}: not ready: {status}")

    def pair(self) -> None:
        self.dial()
        assert self.phone is not None
        self.phone.close()
        self.phone = None
        self.model.paired(self.device, self.pairing.name)

    def taken(self, committed: int) -> None:
        """Tell the model of the new connection; an older one was replaced (D23)."""
        replaced = self.connection if self.older is not None else None
        if replaced is not None:
            self.model.ended(replaced)
        self.model.connected(self.device, committed, self.asked)
        if replaced is not None and self.older is not None:
            code = self.older.wait_closed()
            error = self.older.messages.pop()
            if (code, error["payload"].get("code")) != (4409, "CONN_REPLACED"):
                raise Violation(f"replaced, but told {error} and closed with {code}")
            self._show(self.older, self.older_seen, replaced)
        self.older = None

    def join(self, session: str) -> None:
        where = {"session_id": session, "working_directory": "/", "resume": True}
        answer = self.ask("session_start", {"agent": "a"} | where)
        if answer["type"] != "session_ready":
            raise Violation(f"joining a known session: {answer}")

    def check(self) -> Message:
        """A health check; its answer says that what was sent before has been read."""
        about = {"client_nonce": new_id(), "client_capabilities": ["health_v1"]}
        return self.ask("health_check", about | {"timestamp": now()})

    def look(self) -> None:
        if self.phone is None:
            return
        if self.gone:
            self._show_new()
            self.phone, self.gone = None, False
            self.model.ended(self.connection)
            return
        try:
            while True:
                self.phone.receive(0)
        except TimeoutError:
            self._show_new()
        except Closed as closed:
            self._show_new()
            raise Violation(f"{self.device.name}: {closed}") from closed

    def collect(self) -> None:
        """Receive until nothing that is owed is missing."""
        assert self.phone is not None
        deadline = time.monotonic() + PATIENCE
        self.look()
        while missing := self.model.missing(self.connection):
            try:
                self.phone.receive(max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                raise Violation(f"{self.device.name} was not sent: {missing}") from None
            self.look()

    def _show_new(self) -> None:
        if self.phone is not None:
            self.seen = self._show(self.phone, self.seen, self.connection)

    def _show(self, phone: Phone, seen: int, connection: Connection) -> int:
        for message in phone.messages[seen:]:
            self.model.received(connection, message)
        return len(phone.messages)

    def hang_up(self, *, orderly: bool) -> None:
        """Leave without reading on; what had been received before is looked at next."""
        if self.phone is not None:
            (self.phone.close if orderly else self.phone.vanish)()
            self.gone = True

    def close_code(self) -> int:
        """Read all that the bridge still sends, up to the end."""
        assert self.phone is not None
        return self.phone.wait_closed()

    def cut(self, code: int, *, orderly: bool) -> None:
        """The bridge has ended; when it stopped in order, it said so with a close frame."""
        if orderly == (code in (1006, 1011)):
            raise Violation(f"{self.device.name} was closed with {code}, {orderly=}")
        self._show_new()
        self.phone = None
        self.model.ended(self.connection)


def post(bridge: Bridge, body: Any) -> Message:
    """The answer to an event, or a batch, a 200. Raises OSError or HTTPException without one."""
    answer = (bridge.post_batch if isinstance(body, list) else bridge.post_hook)(body)
    if answer.status == 503:
        raise http.client.HTTPException(str(answer))
    if answer.status != 200:
        raise Violation(f"{body} was answered with {answer}")
    return dict(answer.json())


def post_all(bridge: Bridge, bodies: list[Message], answers: list[Message]) -> None:
    """Post each event until it is answered: by its event_id it is one (D31)."""
    deadline = time.monotonic() + 60
    while len(answers) < len(bodies):
        try:
            answers.append(post(bridge, bodies[len(answers)]))
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise Violation(f"only {len(answers)} events were answered") from error
            time.sleep(0.02)


class Happening(NamedTuple):
    """An event to come. `again` repeats the id of an earlier one."""

    session: int
    kind: str
    again: int | None = None


class Stage(RuleBasedStateMachine):
    """Up to three devices and three sessions that nobody else uses."""

    bridge: ClassVar[Bridge]
    failures: ClassVar[list[BaseException]]  # of all runs

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        if self.bridge.process is None or self.bridge.process.poll() is not None:
            self.bridge.start()
        self.handsets = [Handset(self.bridge, self.model, f"device {n}") for n in range(3)]
        for handset in self.handsets:
            handset.pair()
        self.sessions = [f"{number}-{new_session()}" for number in range(3)]
        self.begun: set[int] = set()  # which of them have events
        self.ended: set[int] = set()
        self.story: list[str] = []
        self.posted: list[str] = []  # ids that may be repeated
        self.count = self.restarts = 0
        self.failed = False

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Do something; what goes wrong is told with all that went before it."""
        self.story.append(what)
        try:
            yield
            for handset in self.handsets:
                handset.look()
        except BaseException as error:
            self.failed = True
            self.failures.append(error)
            log = f"The bridge's log: {self.bridge.tail()[-600:]}"
            error.add_note("\n".join(["What was done:", *self.story, log]))
            raise

    @contextmanager
    def beside(
        self, what: str, happenings: list[Happening], then: Callable[[int], None] = lambda _: None
    ) -> Iterator[tuple[Future[None], list[Message]]]:
        """Do something while events are posted, and `then`, given how many rows were before."""
        bodies, answers = [self.body(one) for one in happenings], list[Message]()
        names = [f"{body['event']} of {body['session_id'][:1]}" for body in bodies]
        with self.step(f"{what}, while {names}"), ThreadPoolExecutor(1) as pool:
            committed = len(self.model.log.rows)
            posting = pool.submit(post_all, self.bridge, bodies, answers)
            yield posting, answers
            posting.result(120)
            for body, answer in zip(bodies, answers, strict=True):
                self.record(body, answer)
            then(committed)

    def body(self, one: Happening) -> Message:
        self.count += 1
        event_id = new_id()
        if one.again is not None and self.posted:
            event_id = self.posted[-1 - one.again % len(self.posted)]
        self.posted.append(event_id)
        payload = {"number": self.count, "prompt": "p", "working_directory": "/"}
        # a second life, which a later prompt begins too (D65), would have rows that say the same
        second = one.kind == "SessionStart" and one.session in self.begun
        second |= one.kind == "UserPromptSubmit" and one.session in self.ended
        self.begun.add(one.session)
        if one.kind == "SessionEnd":
            self.ended.add(one.session)
        kind = "PreCompact" if second else one.kind
        return hook(kind, self.sessions[one.session], payload, event_id=event_id)

    def record(self, body: Message, answer: Message) -> None:
        """An event was accepted, under its own id (D31)."""
        if answer["event_id"] != body["event_id"]:
            raise Violation(f"{body} was answered with {answer}")
        self.model.log.accept(body)

    def online(self, device: int) -> Handset | None:
        order = self.handsets[device:] + self.handsets[:device]
        return next((handset for handset in order if handset.online), None)

    def joined(self, device: int, session: int) -> tuple[Handset, str] | None:
        """That device and a session that it has joined, or other ones like that."""
        for handset in self.handsets[device:] + self.handsets[:device]:
            if handset.online and (joined := sorted(handset.connection.joined)):
                return handset, joined[session % len(joined)]
        return None

    def settle(self) -> None:
        """Post a row for all: when all that is owed has come, nothing else has come with it."""
        with self.step("check"):
            body = hook("SessionStart", f"fence-{new_session()}", event_id=new_id())
            self.record(body, post(self.bridge, body))
            for handset in self.handsets:
                if handset.online:
                    handset.collect()
                    self.model.settle(handset.connection)

    def teardown(self) -> None:
        """Every device comes once more and gets what it is owed; the bridge has counted right."""
        try:
            if not self.failed:
                self.settle()
                for handset in self.handsets:
                    with self.beside(f"{handset.device.name} comes back", [], handset.taken):
                        handset.dial()
                self.settle()
                self.settle()
                with self.step("everybody leaves"):
                    for handset in self.handsets:
                        handset.hang_up(orderly=True)
                    self.compare_sessions()
        finally:
            self.bridge.hang_up()

    def compare_sessions(self) -> None:
        ends = []
        for session, is_open in self.model.log.sessions.items():
            view = self.bridge.session(session)
            status, count = "active" if is_open else "closed", len(self.model.log.feeds[session])
            if (view["status"], view["hook_count"]) != (status, count):
                raise Violation(f"GET /sessions/{session}: {view}")
            if is_open:
                ends.append(hook("SessionEnd", session))
        # connection_ack lists open sessions: for the next run there shall be few
        post(self.bridge, ends)
