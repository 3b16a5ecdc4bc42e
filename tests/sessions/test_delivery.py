"""What one socket is sent from the log: backlog, joins, live rows, gaps; each row once and in order
(D26 to D29).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar

import pytest
from asgiref.sync import sync_to_async

from devices_app.models import Device
from sessions_app.log import reader
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


async def _joined(client: Phone, feed: int) -> None:
    while feed not in client.delivery.feeds:
        await asyncio.sleep(0)


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


@pytest.mark.parametrize("at_hand", [3, 4096], ids="{} rows".format)
async def test_two_processes_in_any_order(
    tail: Tail,
    joined: list[Phone],
    theirs: Theirs,
    monkeypatch: pytest.MonkeyPatch,
    at_hand: int,
) -> None:
    """Rows of both, announced late, twice, crosswise or not at all, or before there are so many:
    each once, in the order of the log; also when more come than are kept at hand.
    """
    monkeypatch.setattr(tail_module, "TAIL_ROWS", at_hand)
    chance = random.Random(at_hand)
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
        if chance.random() < 0.1:
            tail.notify_head(tail.head + 1_000_000)  # D26: what is told is not believed
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    tail.notify_head(await sync_to_async(reader.head_seq)())
    for client in joined:
        await client.hears("first", *map(str, range(60)))
