"""Every check in the order in which it is told, run at once, each with its time: one that hangs is
itself a finding (D43).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

from bridge_project.kernel.config import Conf
from bridge_project.operations.doctor import agents, bridge, machine, round_trip, storage
from bridge_project.operations.doctor.findings import Finding, broken, cleaned
from bridge_project.operations.doctor.snapshot import Look, look

T = TypeVar("T")
Check = Callable[[Look], list[Finding]]

ALL_SECONDS: Final = 14.0  # all together; Python's own start comes on top
LOOK_SECONDS: Final = 7.0
CHECK_SECONDS: Final = 5.0

CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("bridge", bridge.running),
    ("tokens", bridge.tokens_taken),
    ("certificate", bridge.certificate),
    ("clock", bridge.clock),
    ("address", bridge.reach),
    ("proxy", bridge.proxy),
    ("database", storage.database),
    ("redis", storage.redis_server),
    ("disk", machine.disk),
    ("files", machine.files),
    ("settings", machine.settings),
    ("file limit", machine.file_limit),
    ("spool", machine.spool),
    ("hooks", machine.hooks),
    (agents.NAME, agents.agents),
)
EVENT: Final = ("event", round_trip.event)


class Late(Exception):
    """The time was over."""


def examine(conf: Conf, agent: str = "") -> list[Finding]:
    """Everything, in at most ALL_SECONDS. The event is sent last, so that nothing of it is found in
    the spool.

    ``agent``: then start this one too, which has a time of its own. It is started on the thread
    that calls, which must be the main one.
    """
    return cleaned(conf, _examine(conf, agent))


def _examine(conf: Conf, agent: str) -> Iterator[Finding]:
    until = time.monotonic() + ALL_SECONDS
    try:
        seen = _start(lambda: look(conf))(LOOK_SECONDS)
    except Late:
        seen = Look(conf, trouble="no answer in time")
    running = [(name, _start(lambda check=check: check(seen))) for name, check in CHECKS]  # type: ignore[misc]
    together = time.monotonic() + CHECK_SECONDS
    for name, result in running:
        yield from _result(name, result, min(together, until), conf)
    name, check = EVENT
    yield from _result(name, _start(lambda: check(seen)), until, conf)
    if agent:
        yield from _result(agents.NAME, lambda _: [agents.trial(conf, agent)], until, conf)


def _result(
    name: str, result: Callable[[float], list[Finding]], until: float, conf: Conf
) -> list[Finding]:
    try:
        return result(max(0.1, until - time.monotonic()))
    except Late:
        return [
            broken(
                name,
                "This could not be found out in time.",
                bridge.log_tail(conf),
                f"{bridge.run(conf)}   # after the running one was stopped",
            )
        ]
    except Exception as error:  # noqa: BLE001 - whatever a check ran into is what it found, and the others are told as well
        return [
            broken(
                name,
                f"This could not be found out: {error.__class__.__name__}: {error}",
                bridge.log_tail(conf),
            )
        ]


def _start(work: Callable[[], T]) -> Callable[[float], T]:
    """Run it in a thread that the end of the process does not wait for; what is returned waits for
    its result, or raises its error, or Late.
    """
    done: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()

    def body() -> None:
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
        done.put(future)

    threading.Thread(target=body, daemon=True, name="doctor").start()

    def wait(seconds: float) -> T:
        try:
            return done.get(timeout=seconds).result()
        except queue.Empty:
            raise Late from None

    return wait
