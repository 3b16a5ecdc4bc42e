"""What one socket is sent from the log: backlog, joins, live rows, gaps; each row once and in order
(D26 to D29).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError
from django.utils import timezone

from bridge_project.kernel import limits
from devices_app.models import Device
from sessions_app.log import cursors, reader, retention
from sessions_app.log import tail as tail_module
from sessions_app.log.reader import Row
from sessions_app.log.tail import Tail
from sessions_app.models import Feed, LogRow
from sessions_app.socket.acknowledgements import Acknowledgements
from sessions_app.socket.delivery import Delivery
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)


class Phone:
    """A socket that keeps what it is sent."""

    connected: ClassVar[list[Phone]] = []

    def __init__(self, tail: Tail, device: Device, upto: int) -> None:
        self.messages: list[dict[str, Any]] = []
        self.changed = asyncio.Event()
        self.acknowledgements = Acknowledgements(device.pk)
        self.delivery = Delivery(device, self, self.acknowledgements, tail)
        self.device_id = device.pk
        tail.followers.add(self.delivery.wake)
        self.connected.append(self)
        self.task = asyncio.create_task(self.delivery.run(upto))

    async def send_in_turn(self, text: str) -> None:
        self.messages.append(json.loads(text))
        self.changed.set()

    def session_ended(self, frame: str) -> None:
        """It has joined none."""

    def send_rows(self, rows: Sequence[Row]) -> int:
        """Takes at most two at a time: the rest comes in turn."""
        self.messages += [json.loads(row.frame) for row in rows[:2]]
        self.changed.set()
        return len(rows[:2])

    @property
    def prompts(self) -> list[str]:
        return [
            message["payload"]["payload"]["prompt"]
            for message in self.messages
            if message["type"] == "agent_event"
        ]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def hears(self, *prompts: str) -> None:
        """These and no others, in this order."""
        await self.until(lambda: len(self.prompts) >= len(prompts))
        assert self.prompts == list(prompts)


P = TypeVar("P", bound=Phone)


@pytest.fixture
async def tail(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tail]:
    tail = tail_module.tail
    tail.open(await sync_to_async(reader.head_seq)())
    yield tail
    for phone in Phone.connected:
        phone.task.cancel()
    Phone.connected.clear()
    tail.followers.clear()
    tail.close()


async def say(*prompts: str, session_id: str = "s1") -> int:
    """Post prompts; the session's feed."""
    await sync_to_async(helpers.store)(
        *[helpers.event(session_id, prompt=prompt) for prompt in prompts]
    )
    return (await sync_to_async(helpers.session)(session_id)).feed_id


async def phone(tail: Tail, start_seq: int = 0) -> Phone:
    return await connected(tail, await sync_to_async(helpers.device)("phone", start_seq), Phone)


async def connected(tail: Tail, device: Device, kind: type[P]) -> P:
    """A socket that is told now that it is connected."""
    return kind(tail, device, await sync_to_async(reader.head_seq)())


async def test_a_backlog_ends_where_the_client_was_told_that_it_is_connected(tail: Tail) -> None:
    """D28: what comes after that is live, however late the backlog is read, and so are the
    approvals.
    """
    feed = await say("before")
    device, upto = (
        await sync_to_async(helpers.device)("phone"),
        await sync_to_async(reader.head_seq)(),
    )
    await say("after")
    await sync_to_async(helpers.store)(
        helpers.event(
            "s1",
            "PreToolUse",
            tool="Bash",
            params={},
            risk_level="high",
            requires_approval=True,
            tool_call_id="late",
        )
    )
    client = Phone(tail, device, upto)
    await client.until(
        lambda: any(message["type"] == "notification" for message in client.messages)
    )
    assert [message["type"] for message in client.messages] == [
        "session_started",
        "agent_event",
        "notification",
    ]
    del client.messages[:]
    client.delivery.join(feed)
    await client.until(
        lambda: bool(client.messages) and client.messages[-1]["type"] == "approval_required"
    )
    assert client.messages[0]["payload"]["payload"] == {"prompt": "after"}


async def _ready(client: Phone) -> None:
    while Feed.ALL not in client.delivery.feeds:
        await asyncio.sleep(0)


async def _joined(client: Phone, feed: int) -> None:
    while feed not in client.delivery.feeds:
        await asyncio.sleep(0)


async def test_a_hundred_posts_during_joins_arrive_once_and_in_order(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the rows at hand are too few and the log must be read."""
    monkeypatch.setattr(tail_module, "TAIL_ROWS", 3)
    feed = await say("0")
    clients = [await phone(tail) for _ in range(3)]
    for n in range(1, 50):
        await say(f"{2 * n - 1}", f"{2 * n}")
        if n % 15 == 1:
            clients[n // 15 % 3].delivery.join(feed)
    for client in clients:
        client.delivery.join(feed)
        await client.until(lambda c=client: len(c.prompts) >= 99)  # type: ignore[misc]
        assert client.prompts == [str(n) for n in range(99)]


@pytest.fixture
def theirs(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Sequence[Row]]]:
    """Say something as another process would: it is in the log, and this process has not been told.
    What has been said, as its own process has it.
    """

    async def theirs(*prompts: str, session_id: str = "s1") -> Sequence[Row]:
        said: list[Sequence[Row]] = []
        with monkeypatch.context() as patched:
            patched.setattr(tail, "committed", said.append)
            await say(*prompts, session_id=session_id)
        return [row for rows in said for row in rows]

    return theirs


Theirs = Callable[..., Awaitable[Sequence[Row]]]


@pytest.fixture
async def joined(tail: Tail) -> list[Phone]:
    """Three phones that have joined one session and keep up with it."""
    feed = await say("first")
    phones = [await phone(tail) for _ in range(3)]
    for client in phones:
        client.delivery.join(feed)
        await client.hears("first")
        await asyncio.wait_for(_joined(client, feed), 60)
    return phones


@pytest.mark.parametrize(("name", "value"), [("TAIL_ROWS", 3), ("TAIL_BYTES", 2000)])
async def test_more_of_another_process_than_is_kept_at_hand(
    tail: Tail,
    joined: list[Phone],
    theirs: Theirs,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: int,
) -> None:
    monkeypatch.setattr(tail_module, name, value)
    rows = [row for n in range(20) for row in await theirs(f"{n}")]
    tail.notify_head(rows[-1].seq)
    for client in joined:
        await client.hears("first", *map(str, range(20)))
    await say("ours")
    for client in joined:
        await client.hears("first", *map(str, range(20)), "ours")


async def test_rows_of_another_process_that_cannot_be_read_at_once(
    tail: Tail, joined: list[Phone], theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database is away they are asked for again, without another bell."""
    tries, newest = [], reader.newest

    def away_twice(after: int, count: int, size: int) -> tuple[int, list[Row]]:
        tries.append(after)
        if len(tries) <= 2:
            raise OperationalError("away")
        return newest(after, count, size)

    monkeypatch.setattr(limits, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(reader, "newest", away_twice)
    [row] = await theirs("theirs")
    tail.notify_head(row.seq)
    for client in joined:
        await client.hears("first", "theirs")
    assert len(tries) == 3


async def test_a_bell_that_tells_of_more_than_there_is_changes_nothing(
    tail: Tail, joined: list[Phone], theirs: Theirs
) -> None:
    """D26: nothing is in it, and so nothing that it says is believed: other bridges may ring on the
    same Redis server.
    """
    tail.notify_head(tail.head + 1_000_000)
    await say("ours")
    [row] = await theirs("theirs")
    tail.notify_head(row.seq)
    await say("ours, too")
    for client in joined:
        await client.hears("first", "ours", "theirs", "ours, too")


async def test_rows_of_others_that_were_pruned_before_they_were_read(
    tail: Tail, joined: list[Phone], theirs: Theirs
) -> None:
    """D29: what has a hole is not taken for the whole; the hole is said."""
    await theirs("kept, and joined by nobody", session_id="other")
    rows = [row for n in range(4) for row in await theirs(f"{n}")]
    feed = await sync_to_async(Feed.objects.get)(pk=rows[0].feed_id)
    await sync_to_async(LogRow.objects.filter(seq__lte=rows[1].seq, feed=feed).delete)()
    await sync_to_async(Feed.objects.filter(pk=feed.pk).update)(dropped_seq=rows[1].seq)
    tail.notify_head(rows[-1].seq)
    for client in joined:
        await client.hears("first", "2", "3")
        assert [
            m["payload"]["notification_type"]
            for m in client.messages
            if m["type"] == "notification"
        ] == ["error"]


@pytest.mark.parametrize("seed", range(2))
async def test_two_processes_in_any_order(
    tail: Tail, joined: list[Phone], theirs: Theirs, seed: int
) -> None:
    """Rows of both, announced late, twice, crosswise or not at all: each once, in the order of the
    log.
    """
    chance = random.Random(seed)
    untold: list[Sequence[Row]] = []
    for n in range(60):
        untold.append(await theirs(f"{n}"))
        chance.shuffle(untold)
        while untold and chance.random() < 0.6:
            rows = untold.pop()
            if chance.random() < 0.5:
                tail.committed(rows)
            else:
                tail.notify_head(rows[-1].seq)
            if chance.random() < 0.2:
                untold.append(rows)
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    tail.notify_head(await sync_to_async(reader.head_seq)())
    for client in joined:
        await client.hears("first", *map(str, range(60)))


async def test_a_gap_is_said_and_its_acknowledgement_ends_it(tail: Tail) -> None:
    feed = await say("lost", "kept")
    await sync_to_async(LogRow.objects.filter(feed=feed).order_by("seq").update)(
        created_at=timezone.now() - timedelta(days=9)
    )
    await sync_to_async(retention.prune)()
    newest = await sync_to_async(reader.head_seq)()
    client = await phone(tail, start_seq=newest - 2)
    await client.until(lambda: bool(client.messages))
    [notice] = client.messages
    assert notice["type"] == "notification"
    assert notice["payload"]["notification_type"] == "error"
    assert notice["payload"]["session_id"] == "s1"
    client.acknowledgements.acknowledged([notice["id"]])
    await client.acknowledgements.flush()
    device = await sync_to_async(Device.objects.get)(pk=client.device_id)
    assert (await sync_to_async(cursors.positions)(device))[feed] == newest
    again = await connected(tail, device, Phone)
    await asyncio.wait_for(_ready(again), 60)
    assert again.messages == []


async def test_a_heartbeat_proves_what_was_sent_before_an_older_pong(tail: Tail) -> None:
    feed = await say("one")
    client = await phone(tail)
    now = [0.0]
    client.acknowledgements = Acknowledgements(client.device_id, clock=lambda: now[0])
    await client.until(lambda: client.prompts == ["one"])
    sent = dict(client.delivery.sent)
    client.acknowledgements.ping(sent)
    now[0] = limits.PONG_WAIT_SECONDS - 0.1
    client.acknowledgements.ping(sent | {feed: 99})
    await client.acknowledgements.flush()
    device = await sync_to_async(Device.objects.get)(pk=client.device_id)
    assert feed not in await sync_to_async(cursors.positions)(device)
    now[0] = limits.PONG_WAIT_SECONDS
    client.acknowledgements.ping(sent | {feed: 99})
    await client.acknowledgements.flush()
    assert (await sync_to_async(cursors.positions)(device))[feed] == sent[feed]
