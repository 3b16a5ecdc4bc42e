"""Two devices that decide the same calls at the same instant, in an order of each one's own."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.conformance.approvals import assert_stands, decision_of
from tests.conformance.bridge import Bridge, Pairing, eventually
from tests.conformance.phone import Message
from tests.conformance.raw import RawSocket
from tests.conformance.samples import new_id, now

DECISIONS = ("approved", "rejected")
PATIENT = 240  # seconds for a group
HEARTBEAT = 10.0  # seconds; who is silent for 45 is taken for gone (D25)
Call = tuple[str, str]  # of a session


class Racer(threading.Thread):
    """A device that always sends the same decision, for all calls of a group in one write, when the
    other one does. Like any device it reads all the time, and sends heartbeats.
    """

    def __init__(
        self, bridge: Bridge, pairing: Pairing, decision: str, line: threading.Barrier
    ) -> None:
        super().__init__(daemon=True, name=pairing.name)
        self.decision, self.line = decision, line
        self.socket = RawSocket(bridge.port).ready(pairing.token)
        self.groups: list[list[Call]] = []
        self.asked: set[Call] = set()
        self.answers: dict[Call, Message] = {}
        self.told: dict[Call, list[str]] = {}
        self.faults: list[BaseException] = []
        self.ending = threading.Event()
        self._sent: dict[str, Call] = {}  # request → what it decides
        self._heard_of = time.monotonic()

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                if self.groups and not self._sent:
                    group = self.groups.pop()
                    order = random.Random(f"{group[0]} {self.decision}").sample(group, len(group))
                    self.line.wait(PATIENT)
                    self._decide(order)
                self._receive()
        except BaseException as fault:  # noqa: BLE001 - the test raises it again
            self.faults.append(fault)
            self.line.abort()
        self.socket.close()

    def _decide(self, calls: list[Call]) -> None:
        frames = []
        for session, call in calls:
            payload = decision_of(session, call, self.decision)
            sent = new_id()
            self._sent[sent] = session, call
            # as a client writes it
            head = {"type": "approval_response", "id": sent, "timestamp": now()}
            frames.append(json.dumps(head | {"payload": payload}).encode())
        self.socket.frames(frames)

    def _receive(self) -> None:
        """Read one message, or none within a moment."""
        if time.monotonic() - self._heard_of > HEARTBEAT:
            ping = {"type": "heartbeat_ping", "timestamp": now()}
            self.socket.frame(json.dumps(ping).encode())
            self._heard_of = time.monotonic()
        self.socket.socket.settimeout(0.02)
        try:
            message = self.socket.read()
        except TimeoutError:
            return
        finally:
            self.socket.socket.settimeout(30)
        payload = message.get("payload", {})
        if message.get("id") in self._sent:
            decided = self._sent.pop(message["id"])
            if payload.get("code") == "STORAGE_UNAVAILABLE":  # nothing was stored: once more
                self._decide([decided])
            else:
                self.answers[decided] = message
        elif payload.get("notification_type") == "approval_required":
            self.asked.add((payload["session_id"], payload["data"]["tool_call_id"]))
        elif payload.get("notification_type") == "approval_decided":
            data = payload["data"]
            call = payload["session_id"], data["tool_call_id"]
            self.told.setdefault(call, []).append(data["decision"])


@contextmanager
def racing(one: Bridge, two: Bridge) -> Iterator[tuple[Racer, Racer]]:
    """Two devices, one on each process."""
    line, pairings = threading.Barrier(2), [one.pairing() for _ in DECISIONS]
    racers = []
    try:
        for bridge, pairing, decision in zip((one, two), pairings, DECISIONS, strict=True):
            racers.append(Racer(bridge, pairing, decision, line))
            racers[-1].start()
        yield racers[0], racers[1]
    finally:
        for racer in racers:
            racer.ending.set()
            racer.join(60)


def wait_asked(racers: tuple[Racer, Racer], sessions: list[str], count: int) -> list[Call]:
    """Wait until both are asked about that many calls of these sessions; the calls."""

    def asked(racer: Racer) -> set[Call]:
        return {call for call in racer.asked.copy() if call[0] in sessions}

    _wait(racers, lambda: all(len(asked(racer)) >= count for racer in racers))
    assert asked(racers[0]) == asked(racers[1])
    return sorted(asked(racers[0]))


def race(racers: tuple[Racer, Racer], group: list[Call]) -> dict[Call, str]:
    """Both decide these calls: one decision of each counts, the other device is told which and
    whose, and each is told once. The decisions that count.
    """
    for racer in racers:
        racer.groups.append(group)
    _wait(racers, lambda: all(set(group) <= racer.answers.keys() for racer in racers))
    stands = {}
    for call in group:
        answers = [racer.answers[call] for racer in racers]
        winner = 0 if answers[0]["type"] == "approval_recorded" else 1
        assert answers[winner]["type"] == "approval_recorded", answers
        payload = answers[winner]["payload"]
        assert (payload["session_id"], payload["tool_call_id"]) == call, answers
        assert payload["decision"] == DECISIONS[winner], answers
        assert_stands(answers[1 - winner], DECISIONS[winner], racers[winner].name)
        stands[call] = DECISIONS[winner]
    _wait(racers, lambda: all(set(group) <= racer.told.keys() for racer in racers))
    for racer in racers:
        assert {call: racer.told[call] for call in group} == {
            call: [decision] for call, decision in stands.items()
        }
    return stands


def _wait(racers: tuple[Racer, Racer], condition: Callable[[], bool]) -> None:
    def settled() -> bool:
        assert not any(racer.faults for racer in racers), [racer.faults for racer in racers]
        return condition()

    eventually(settled, PATIENT)
