"""What the state machine stands on: steps, events posted beside them, and check points."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_id, new_session
from tests.faults.model import Message, Model, Violation
from tests.faults.phones import Handset, post, post_all


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
        # a second life would have rows that say the same
        second = one.kind == "SessionStart" and one.session in self.begun
        self.begun.add(one.session)
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
