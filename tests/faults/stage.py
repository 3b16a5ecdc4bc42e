"""What the state machine's rules stand on: a story of steps, events that are posted beside them,
and check points.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_id, new_session, now
from tests.faults.accepted import Message, Violation
from tests.faults.model import Model
from tests.faults.phones import Handset, Posting, Producer

BAD: dict[str, Message] = {
    "stale": {"timestamp": now(-3600)},
    "unknown": {"event": "Boom"},
    "nameless": {"session_id": ""},
    "shapeless": {"payload": []},
}


class Happening(NamedTuple):
    """An event to come. `again` repeats the id of an earlier one."""

    session: int
    kind: str
    again: int | None = None


@dataclass
class World:
    """What goes on from run to run: the processes that are one bridge, how many messages of a feed
    they keep, and what went wrong.
    """

    bridges: list[Bridge]
    kept: int
    failures: list[BaseException] = field(default_factory=list)


class Stage(RuleBasedStateMachine):
    """Up to three devices and three sessions that nobody else uses."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.bridges, self.model = self.world.bridges, Model(self.world.kept)
        for bridge in self.bridges:
            if bridge.process is None or bridge.process.poll() is not None:
                bridge.start()
        self.producers = [Producer(bridge) for bridge in self.bridges]
        self.handsets = [
            Handset(self.bridges, self.model, f"device {number}") for number in range(3)
        ]
        self.sessions = [f"{number}-{new_session()}" for number in range(3)]
        self.fence = f"fence-{new_session()}"
        self.story: list[str] = []
        self.posted: list[Message] = []  # what may be repeated
        self.marks: list[tuple[int, str]] = []  # how many rows there were at a moment
        self.count = self.restarts = 0
        # how many steps did nothing to a connection: events and check points alone find little
        self.idle = 0
        self.failed = False

    @contextmanager
    def step(self, what: str, *, idle: bool = False) -> Iterator[None]:
        """Do something; what goes wrong is told with all that went before it."""
        self.story.append(what)
        self.idle = self.idle + 1 if idle else 0
        try:
            yield
            for handset in self.handsets:
                handset.look()
        except BaseException as error:
            self.failed = True
            self.world.failures.append(error)
            logs = [f"The bridge's log: {bridge.tail()[-600:]}" for bridge in self.bridges]
            error.add_note("\n".join(["What was done:", *self.story, *logs]))
            raise

    @property
    def producer(self) -> Producer:
        """Each time another one, where there are several processes."""
        return self.producers[self.count % len(self.producers)]

    @contextmanager
    def beside(
        self, what: str, happenings: list[Happening], then: Callable[[int], None] = lambda _: None
    ) -> Iterator[Posting | None]:
        """Do something while these events are posted, and `then` what is given the number of rows
        that there surely were before.
        """
        bodies = self.bodies(happenings)
        names = [
            f"{body['event']} of {body['session_id'][:1]} #{body['payload'].get('number')}"
            for body in bodies
        ]
        with self.step(f"{what}{', while ' if names else ''}{', '.join(names)}"):
            committed = len(self.model.log.rows)
            posting = Posting(self.producer, bodies) if bodies else None
            if posting is not None:
                posting.start()
            yield posting
            if posting is not None:
                posting.finish(self.record)
            then(committed)

    def bodies(self, happenings: list[Happening], bad: list[str] | None = None) -> list[Message]:
        """Events to post one after the other; what is wrong with which of them."""
        bodies: list[Message] = []
        good: list[Message] = []
        for one, fault in zip(happenings, bad or [""] * len(happenings), strict=True):
            bodies.append(self.body(one, new_id(), good) | BAD.get(fault, {}))
            good += bodies[-1:] if not fault else []
        return bodies

    def body(self, one: Happening, event_id: str | None, before: Sequence[Message] = ()) -> Message:
        """`before`: events that will have been posted before it."""
        self.count += 1
        earlier = [*self.posted, *before]
        if one.again is not None and earlier:
            event_id = earlier[-1 - one.again % len(earlier)]["event_id"]
        payload = {"number": self.count, "prompt": "p", "working_directory": "/"}
        return hook(
            one.kind,
            self.sessions[one.session],
            payload,
            **({} if event_id is None else {"event_id": event_id}),
        )

    def record(self, body: Message, answer: Message) -> None:
        """An event was accepted: under its own id, if that is one (D31)."""
        event_id, sent = answer["event_id"], str(body.get("event_id"))
        if (
            (_is_uuid(sent) and event_id != sent.lower())
            or not _is_uuid(event_id)
            or (not _is_uuid(sent) and event_id in self.model.log.accepted)
        ):
            raise Violation(f"{body} was answered with {answer}")
        self.model.log.accept(body, event_id)
        if _is_uuid(sent):
            self.posted.append(body)

    def mark(self) -> None:
        self.marks.append((len(self.model.log.rows), now()))

    def online(self, device: int = 0, *, ready: bool = False) -> Handset | None:
        """That device, or another one that is connected."""
        online = (
            handset
            for handset in self.handsets[device:] + self.handsets[:device]
            if handset.online and (handset.ready or not ready)
        )
        return next(online, None)

    def joined(self, device: int = 0, session: int = 0) -> tuple[Handset, str] | None:
        """That device and a session that it has joined, or other ones like that."""
        for handset in self.handsets[device:] + self.handsets[:device]:
            if handset.online and (joined := sorted(handset.connection.joined)):
                return handset, joined[session % len(joined)]
        return None

    def settle(self) -> None:
        """A row for all is posted: when it and all that is owed has come, only what the model
        allows has come with it.
        """
        with self.step("check", idle=True):
            body = hook("SessionStart", self.fence, {"working_directory": "/"}, event_id=new_id())
            self.record(body, self.producer.post("event", body))
            self.mark()
            for handset in self.handsets:
                if handset.online:
                    handset.collect()
                    self.model.settle(handset.connection)

    def teardown(self) -> None:
        """Every device comes once more and gets all that it is owed, and nothing else; the bridge
        has counted as the model has.
        """
        try:
            if not self.failed:
                self.settle()
                for number, handset in enumerate(self.handsets):
                    if handset.device.known:
                        with self.beside(f"{handset.device.name} comes back", [], handset.taken):
                            handset.dial(number)
                self.settle()
                self.settle()
                with self.step("everybody leaves"):
                    for handset in self.handsets:
                        handset.hang_up(orderly=True)
                    self.compare_sessions()
        finally:
            for producer, bridge in zip(self.producers, self.bridges, strict=True):
                producer.hang_up()
                bridge.hang_up()

    def compare_sessions(self) -> None:
        ends = [hook("SessionEnd", self.fence)]
        for session, is_open in self.model.log.sessions.items():
            view = self.bridges[0].session(session)
            if (view["status"], view["hook_count"]) != (
                "active" if is_open else "closed",
                len(self.model.log.feeds[session]),
            ):
                raise Violation(f"GET /sessions/{session}: {view}")
            if is_open:
                ends.append(hook("SessionEnd", session))
        # connection_ack lists open sessions: for the next run there shall be few
        self.producer.post("batch", {"events": ends})


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
