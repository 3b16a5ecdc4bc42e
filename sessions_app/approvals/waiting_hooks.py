"""Take decisions to the hooks that wait for them, and see what comes of it (D66).

A hook is one more taker of a decision, as an agent of the bridge is. The process that holds it
finds the decision in the database, hands it over, and settles who was first: the device or the
person at the desk, as far as the agent's registry or its next event shows it.
"""

import asyncio
import json
import time
from collections.abc import Iterable
from typing import NamedTuple

import structlog
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.process_note import ProcessNote
from bridge_project.kernel.processes import is_comparable, lives
from bridge_project.kernel.threads import answers, readers
from bridge_project.protocol.server_messages import ApprovalRecorded
from sessions_app import away, leases
from sessions_app.agents import inbox
from sessions_app.approvals import decisions, held_hooks
from sessions_app.approvals.held_hooks import HeldHook
from sessions_app.approvals.hook_answer import answer_of
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import Command, Process, ToolCall
from sessions_app.observed import processes

log = structlog.get_logger("bridge.hooks")

UNSTORED_SECONDS = 10.0  # a hook whose event is not stored by then: its transaction failed
ELSEWHERE_SECONDS = 3.0  # in which another process hands a decision over, and says so
DESK_SECONDS = 0.2  # of signs that the desk has answered, before they count
_PENDING = ToolCall.Decision.PENDING


class _Handed(NamedTuple):
    """Hold when a decision was given to a hook (seconds since 1970).

    ``took``: whether the hook has taken it; ``first``: the desk had answered before; ``command``:
    the decision's key, 0 without one.
    """

    at: float
    hook: HeldHook
    took: bool
    first: bool
    command: int


# by the key of the call: until it is stored whether the hook took it, then what came of it
_given: dict[int, _Handed] = {}
_handed: dict[int, _Handed] = {}


async def follow() -> None:
    """Look at the hooks that wait as long as there are any, until it is cancelled."""
    changed, loop = asyncio.Event(), asyncio.get_running_loop()
    held_hooks.on_change = lambda: loop.call_soon_threadsafe(changed.set)
    await answers.retry(_start)
    try:
        while True:
            await changed.wait()
            changed.clear()
            while held_hooks.held() or _given or _handed:
                await asyncio.sleep(limits.HOOK_CHECK_SECONDS)
                await _look_once()
    finally:
        held_hooks.on_change = lambda: None
        for hook in held_hooks.held():
            held_hooks.release(hook.nonce)


async def _look_once() -> None:
    try:
        await answers.run(_look)
    except STORAGE_ERRORS:
        pass  # polling reports it; the hooks wait
    except Exception:
        log.exception("waiting_hooks_failed")
        failure_alerts.report("INTERNAL_ERROR", "waiting_hooks_failed")


def _start() -> None:
    held_hooks.remove_old()
    settle_orphans()


def settle_orphans() -> int:
    """End the waits of processes that have ended; return how many."""
    alive = Process.objects.filter(lease_until__gt=leases.clock()).values("pk")
    left = ToolCall.objects.filter(holder__isnull=False).exclude(holder__in=alive)
    keys = list(left.values_list("pk", flat=True))
    for key in keys:
        with outbox() as box:
            record = _record(key)
            if record.decision == _PENDING or not record.forwarded:
                decisions.end_wait(box, record.session, record)
            else:
                _settle_record(box, record, ToolCall.Outcome.NOT_CONFIRMED)
    return len(keys)


def _record(key: int) -> ToolCall:
    return ToolCall.objects.select_related("session__feed", "device").get(pk=key)


def _look() -> None:
    """Look at each hook that is held here, and at what came of those it answered."""
    held = {hook.nonce: hook for hook in held_hooks.held()}
    known = ToolCall.objects.filter(hook__in=held).select_related("session")
    records = {record.hook: record for record in known}
    is_away = any(not hook.beside for hook in held.values()) and away.is_away()
    if is_away:
        away.mark(True)
    for nonce, hook in held.items():
        record = records.get(nonce)
        if record is None:
            if time.time() - hook.since > UNSTORED_SECONDS:
                held_hooks.release(nonce)
        elif record.decision != _PENDING:  # another process has stored it
            _hand_over(record.pk, nonce)
        elif not (hook.beside or is_away) or _is_gone(hook.process):
            _leave(record, hook, at_desk=False)
        elif _is_answered(record, hook):
            _leave(record, hook, at_desk=_moved_on(record, hook, hook.since))
    _store_given()
    _settle(list(_handed.items()))


def _is_gone(process: ProcessNote) -> bool:
    return is_comparable(process) and not lives(process)


def _is_answered(record: ToolCall, hook: HeldHook) -> bool:
    """Return whether the hook has ended, or its dialog was answered.

    For a while: a No ends the hook before the registry says so, and between two dialogs the
    registry says for a moment that the agent works.
    """
    if not hook.has_ended() and not _moved_on(record, hook, hook.since):
        hook.answered = None
        return False
    hook.answered = hook.answered or time.monotonic()
    return time.monotonic() - hook.answered >= DESK_SECONDS


def _moved_on(record: ToolCall, hook: HeldHook, since: float) -> bool:
    """Return whether the registry says that the agent has gone on after ``since``."""
    found = _registered(record, hook)
    return found is not None and found[0] != processes.WAITING and found[1] > since


def _registered(record: ToolCall, hook: HeldHook) -> tuple[str, float] | None:
    if not hook.beside:
        return None  # it shows no dialog, so it never waited
    return processes.registered_state(record.session.session_id, hook.process)


def _leave(record: ToolCall, hook: HeldHook, *, at_desk: bool) -> None:
    """Send a hook away that has no answer, and tell the devices."""
    with outbox() as box:
        record = _record(record.pk)
        if record.hook != hook.nonce or record.decision != _PENDING:
            return  # it was decided meanwhile
        decisions.end_wait(box, record.session, record)
        if at_desk:
            record.outcome = ToolCall.Outcome.DESK_FIRST
            record.save(update_fields=["outcome"])
    held_hooks.release(hook.nonce)


async def deliver(recorded: ApprovalRecorded, hook: str) -> ApprovalRecorded:
    """Have a decision handed over to the hook that waits for it, wherever it is held."""
    if not hook:
        return recorded
    which = {"session__session_id": recorded.session_id, "tool_call_id": recorded.tool_call_id}
    call = ToolCall.objects.filter(**which)
    until = time.monotonic() + ELSEWHERE_SECONDS
    await answers.run(_deliver, call, hook)
    while True:
        waits, forwarded = await readers.run(lambda: call.values_list("hook", "forwarded").get())
        if not waits or time.monotonic() > until:
            return recorded.model_copy(update={"forwarded": forwarded})
        await asyncio.sleep(limits.REQUEST_POLL_SECONDS)


def _deliver(call: Iterable[ToolCall], nonce: str) -> None:
    for record in call:
        _hand_over(record.pk, nonce)


def _hand_over(key: int, nonce: str) -> None:
    """Give a hook that is held here the decision that is stored, once."""
    record = _record(key)
    command = _command_of(record)
    if (hook := held_hooks.take(nonce)) is None:  # after what may fail: then it is still held
        return
    first, took = _moved_on(record, hook, hook.since), False
    if command is not None and not first:
        took = hook.hand_over(
            answer_of(hook.process.agent, record.tool, json.loads(command.payload))
        )
    at_desk = first or (not took and _moved_on(record, hook, hook.since))
    _given[key] = _Handed(time.time(), hook, took, at_desk, command.pk if command else 0)
    hook.close()
    held_hooks.on_change()
    _store_given()


def _store_given() -> None:
    """Store which decisions hooks have taken; keep what cannot be stored now."""
    for key, given in list(_given.items()):
        with outbox() as box:
            record = _record(key)
            Command.objects.filter(pk=given.command).update(taken_at=timezone.now())
            if record.hook == given.hook.nonce:
                record.forwarded = given.took
                decisions.end_wait(box, record.session, record)
                if not given.took:
                    outcome = ToolCall.Outcome.DESK_FIRST if given.first else ""
                    _settle_record(box, record, outcome)
        del _given[key]
        if given.took:
            _handed[key] = given


def _settle_record(box: Outbox, record: ToolCall, outcome: str) -> None:
    decisions.settle(box, record.session, record, outcome)
    record.session.save(update_fields=["turn", "doing"])


def _command_of(record: ToolCall) -> Command | None:
    """Return the decision among the session's commands; None if it is not there."""
    waiting = Command.objects.filter(
        session=record.session, kind=inbox.Kind.DECIDE, taken_at=None
    ).order_by("pk")
    for command in waiting:
        if json.loads(command.payload)["tool_call_id"] == record.tool_call_id:
            return command
    return None


def _settle(handed: Iterable[tuple[int, _Handed]]) -> None:
    """Find out what came of decisions that hooks have taken."""
    for key, (at, hook, *_) in handed:
        record = ToolCall.objects.filter(pk=key).select_related("session").first()
        if record is None or record.outcome:  # an event has shown it
            del _handed[key]
            continue
        outcome, state = "", _registered(record, hook)
        # also a dialog that is up since then: it is the next one
        if state is not None and state[1] > at - 0.05:
            outcome = ToolCall.Outcome.TAKEN
        elif time.time() - at > limits.HOOK_OUTCOME_SECONDS:
            outcome = ToolCall.Outcome.NOT_CONFIRMED
        if outcome:
            with outbox() as box:
                record = _record(key)
                if not record.outcome:
                    _settle_record(box, record, outcome)
            del _handed[key]
