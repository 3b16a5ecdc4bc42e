"""What is past its time is forgotten, in steps, and nothing else (D15, D31, D34, D37, D60)."""

import asyncio
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection
from django.utils import timezone

from bridge_project.kernel import database, limits
from bridge_project.protocol.types import now_text
from devices_app import pairing
from devices_app.models import Device, Token
from hooks_app.intake import store as intake
from hooks_app.models import HookEvent as StoredEvent
from sessions_app.approvals import service as approvals
from sessions_app.log import cursors
from sessions_app.log import outbox as log_outbox
from sessions_app.log.tail import tail
from sessions_app.models import ClientRequest, Cursor, Feed, LogRow, Process, Session, ToolCall
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import acknowledgements as acks
from sessions_app.socket import idempotency
from tests.devices.conftest import mint
from tests.servers import PATIENCE
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = timedelta(days=30)
STEP = 3


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "DELETE_ROWS", STEP)
    monkeypatch.setattr(log_outbox, "PRUNE_ROWS", STEP)


def call(session: Session, **more: object) -> ToolCall:
    known = {"tool_call_id": f"call-{ToolCall.objects.count()}", "tool": "Bash", "source": "hooks"}
    known |= {"description": "x", "params": "{}", "same": "0" * 64, "risk_level": "low"}
    long_ago = timezone.now() - LONG_AGO
    return ToolCall.objects.create(session=session, created_at=long_ago, **known | more)


def test_what_is_old_goes_step_by_step() -> None:
    """Devices that never paired, calls about which nobody was asked, ids of events and requests."""
    session, long_ago = helpers.post("one", 10), timezone.now() - LONG_AGO
    StoredEvent.objects.update(received_at=long_ago)
    helpers.post("one")
    process = Process.objects.create(instance="i", lease_until=timezone.now())
    kept = mint()[0]
    request = {"device": kept, "process_id": process.pk, "created_at": long_ago}
    for number in range(10):
        Cursor.objects.create(device=mint()[0], feed=session.feed, position=0)
        call(session)
        ClientRequest.objects.create(digest=str(number), **request)
    Device.objects.exclude(pk=kept.pk).update(created_at=long_ago)
    Token.objects.exclude(device=kept).update(use_by=long_ago)
    asked, young = call(session, decision="approved"), call(session, tool_call_id="young")
    ToolCall.objects.filter(pk=young.pk).update(created_at=timezone.now())
    for module in (intake, idempotency, approvals):
        assert (module.forget_old(), module.forget_old()) == (10, 0)
    assert (pairing.forget_void(), pairing.forget_void()) == (10, 0)
    assert StoredEvent.objects.count() == 1 and not ClientRequest.objects.exists()
    assert set(ToolCall.objects.all()) == {asked, young}
    assert [*Device.objects.all()] == [token.device for token in Token.objects.all()] == [kept]


def test_closed_sessions_with_all_that_they_have() -> None:
    phone = Device.objects.create(name="phone")
    for number in range(5):
        session = helpers.post(f"old {number}", 7)
        call(session, decision="rejected")
        Cursor.objects.create(device=phone, feed=session.feed, position=1)
    big = helpers.session("old 3")
    for _ in range(8):
        call(big, decision="approved")
    Session.objects.update(status=Session.Status.CLOSED, last_activity_at=timezone.now() - LONG_AGO)
    for name, status in (("open", Session.Status.ACTIVE), ("just closed", Session.Status.CLOSED)):
        Session.objects.filter(pk=helpers.post(name, 2).pk).update(status=status)
    call(helpers.session("just closed"), decision="approved")
    assert observed_sessions.forget_closed() == 5
    assert {session.session_id for session in Session.objects.all()} == {"open", "just closed"}
    feeds = {helpers.session(name).feed_id for name in ("open", "just closed")}
    assert set(Feed.objects.values_list("pk", flat=True)) == {Feed.ALL, *feeds}
    assert LogRow.objects.exclude(feed_id=Feed.ALL).count() == 4
    assert ToolCall.objects.count() == 1 and not Cursor.objects.exists()
    assert observed_sessions.forget_closed() == 0


def test_idle_sessions_are_closed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them events are stored, which wait for each transaction."""
    monkeypatch.setattr(observed_sessions, "CLOSED_AT_ONCE", STEP)
    for number in range(10):
        helpers.post(f"idle {number}")
    day_ago = timezone.now() - timedelta(hours=25)
    Session.objects.update(last_activity_at=day_ago)
    together: list[Sequence[object]] = []  # what each transaction has brought
    monkeypatch.setattr(tail, "committed", together.append)
    assert observed_sessions.close_idle() == 10
    assert [len(rows) for rows in together] == [3, 3, 3, 1]


def test_what_can_be_resumed_is_kept_for_30_days() -> None:
    """D60: paused, in error or closed by the timer; but not while its agent is being started."""
    for days in (29, 31):
        for status in (Session.Status.CLOSED, Session.Status.PAUSED, Session.Status.ERROR):
            for owner in (None, uuid.uuid4()):
                session = helpers.post(f"{days} {status} {'is started' if owner else ''}", 2)
                Session.objects.filter(pk=session.pk).update(
                    kind=Session.Kind.BRIDGE,
                    status=status,
                    expired=status == Session.Status.CLOSED,
                    owner=owner,
                    last_activity_at=timezone.now() - timedelta(days=days),
                )
    everything = set(Session.objects.values_list("session_id", flat=True))
    assert observed_sessions.close_idle() == 2
    assert observed_sessions.forget_closed() == 3
    left = set(Session.objects.values_list("session_id", flat=True))
    assert everything - left == {"31 closed ", "31 paused ", "31 error "}
    ends = LogRow.objects.filter(feed_id=Feed.ALL, type="session_end")
    told = {json.loads(row.frame)["payload"]["session_id"] for row in ends}
    assert told == {"31 paused ", "31 error "}


def test_one_that_was_only_quiet_opens_again_by_its_next_event() -> None:
    """D34: a terminal that was left open for a day works again; what is late opens none."""
    asks = {"tool": "Bash", "params": {"command": "ls"}, "risk_level": "low"}
    for name in ("quiet", "ended", "quiet, then ended"):
        helpers.post(name, 1)
        if name == "ended":
            helpers.store(helpers.event(name, "SessionEnd"))
        day_ago = timezone.now() - timedelta(hours=25)
        Session.objects.filter(session_id=name).update(last_activity_at=day_ago)
        assert observed_sessions.close_idle() == (name != "ended")
        assert helpers.session(name).status == Session.Status.CLOSED
        if name == "quiet, then ended":
            helpers.store(helpers.event(name, "SessionEnd"))
        late = helpers.event(name, "PreToolUse", **asks, requires_approval=True)
        helpers.store(replace(late, timestamp=now_text(timezone.now() - timedelta(seconds=60))))
        session, is_open = helpers.session(name), name == "quiet"
        assert (session.status == Session.Status.ACTIVE) is is_open
        assert (session.pending_approvals == 1) is is_open


def test_what_comes_while_older_rows_are_deleted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of two sessions are old; each gets an event before the first of them goes."""
    late, real = ["pruned", "forgotten"], log_outbox.outbox
    sessions = [helpers.post(name, 4) for name in late]
    LogRow.objects.exclude(feed=Feed.ALL).update(created_at=timezone.now() - LONG_AGO)
    ended = Session.objects.filter(session_id="forgotten")
    ended.update(status=Session.Status.CLOSED, last_activity_at=timezone.now() - LONG_AGO)

    def outbox() -> Any:
        if late:
            helpers.store(helpers.event(late.pop(), "SessionStart", working_directory="/w"))
        return real()

    monkeypatch.setattr(log_outbox, "outbox", outbox)
    assert observed_sessions.forget_closed() == 0
    assert log_outbox.prune() == 4
    for session in sessions:
        assert [row.type for row in helpers.read_all({session.feed_id: 0})] == ["agent_event"]


def test_a_feed_that_is_forgotten_while_others_are_acknowledged() -> None:
    """PostgreSQL lets it go after it was found, and refuses its cursor with all others."""
    feed, device = helpers.post().feed, Device.objects.create(name="phone")

    def refuse_first(execute: Any, sql: str, *more: Any) -> Any:
        if sql.startswith(f'INSERT INTO "{Cursor._meta.db_table}"') and not refused:
            refused.append(sql)
            raise IntegrityError
        return execute(sql, *more)

    for move in (cursors.advance, lambda *given: cursors.acknowledge(given[0], (), given[1])):
        refused: list[str] = []
        Cursor.objects.all().delete()
        with connection.execute_wrapper(refuse_first):
            move(device.pk, {feed.pk: feed.last_seq})
        assert refused and cursors.positions(device) == {feed.pk: feed.last_seq}


async def test_nobody_waits_for_a_writer_that_has_been_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection was replaced while the database was away: its socket must end."""

    def away(*_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(cursors, "acknowledge", away)
    monkeypatch.setattr(acks, "FLUSH_SECONDS", 0.1)
    monkeypatch.setattr(limits, "ACK_MAX_IDS", 0)
    ours = acks.Acknowledgements(1)
    for _ in range(2):  # the first is being stored, the second waits
        ours.acknowledged([str(uuid.uuid4())])
        await asyncio.sleep(0)
    waiting = asyncio.create_task(ours.wait_for_room())
    await asyncio.sleep(0)
    await ours.flush()
    await asyncio.wait_for(waiting, PATIENCE)
