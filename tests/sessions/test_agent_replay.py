"""What a device gets of a bridge-run session when it joins it (D28 to D30), and the breaker's clock
(D48).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode_raw
from devices_app.models import Device
from sessions_app.agents.breaker import Breaker
from sessions_app.log import cursors, reader
from sessions_app.log.outbox import outbox
from sessions_app.log.replay import Replay, missed
from sessions_app.log.tail import Tail
from sessions_app.models import Feed, LogRow, Session
from tests.sessions import helpers
from tests.sessions.test_delivery import Phone, connected, tail

__all__ = ["tail"]

pytestmark = pytest.mark.django_db(transaction=True)


def begin() -> Session:
    feed = Feed.objects.create(kind=Feed.Kind.BRIDGE)
    return Session.objects.create(
        session_id="ours", kind=Session.Kind.BRIDGE, feed=feed, agent_type="demo"
    )


def stream(session: Session, *contents: str) -> list[str]:
    """Chunks in the session's feed; their ids."""
    with outbox() as box:
        feed = Feed.objects.get(pk=session.feed_id)
        payloads = [
            {"session_id": "ours", "message_id": "m", "content": content, "is_tool_use": False}
            for content in contents
        ]
        return [box.append(feed, encode_raw("stream_chunk", payload)).id for payload in payloads]


def contents(frames: Any) -> list[str]:
    return [frame["payload"]["content"] for frame in frames]


def replay(device: Device, session: Session, sent: int | None = None) -> Replay:
    return missed(device.pk, session.feed_id, sent, reader.head_seq())


def test_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """D30: 100 KB and 30 minutes, oldest first out; what was cut is known."""
    session, device = begin(), helpers.device()
    stream(session, *("x" * 9_000 for _ in range(20)))
    found = replay(device, session)
    assert (
        sum(row.size for row in found.rows)
        <= limits.REPLAY_BUFFER_BYTES
        < sum(row.size for row in found.rows) + 9_500
    )
    assert (
        found.rows[-1].seq == found.through == reader.head_seq()
        and found.cut == found.rows[0].seq - 1
    )
    newest = found.rows[-1].seq
    LogRow.objects.filter(seq__lt=newest).update(
        created_at=timezone.now() - timedelta(seconds=limits.REPLAY_BUFFER_SECONDS + 1)
    )
    found = replay(device, session)
    assert [row.seq for row in found.rows] == [newest] and found.cut == newest - 1
    LogRow.objects.filter(feed=session.feed_id, seq__lt=newest).delete()
    Feed.objects.filter(pk=session.feed_id).update(dropped_seq=newest - 1)
    assert replay(device, session).cut == newest - 1, "pruned rows are cut too"


class Client(Phone):
    """As in the tests of delivery; ``buffers`` are the replay_buffers, ``chunks`` the live
    contents.
    """

    @property
    def buffers(self) -> list[dict[str, Any]]:
        return [
            message["payload"] for message in self.messages if message["type"] == "replay_buffer"
        ]

    @property
    def chunks(self) -> list[str]:
        return contents(message for message in self.messages if message["type"] == "stream_chunk")

    async def until_live(self, seq: int) -> None:
        """Until rows up to there have been passed."""
        async with asyncio.timeout(60):
            while self.delivery.live < seq:
                await asyncio.sleep(0)


@pytest.fixture
async def client(tail: Tail) -> Client:
    made = await connected(tail, await sync_to_async(helpers.device)(), Client)
    await made.until(lambda: made.delivery.feeds == {Feed.ALL}) if made.messages else await _ready(
        made
    )
    return made


async def _ready(client: Client) -> None:
    async with asyncio.timeout(60):
        while not client.delivery.feeds:
            await asyncio.sleep(0)


async def join(client: Client, session: Session) -> None:
    """As a session_start does: the buffer reaches up to what there is when it is answered."""
    client.delivery.join(session.feed_id, buffer_upto=await sync_to_async(reader.head_seq)())


@pytest.mark.parametrize("known", [False, True])
async def test_one_buffer_then_live(client: Client, known: bool) -> None:
    """D28: one replay_buffer with what was there when the client was told that it has joined, then
    live rows, each once and in order: also those that are said before the buffer is made, and those
    that other feeds' rows have overtaken (``known``)."""
    session = await sync_to_async(begin)()
    await sync_to_async(stream)(session, "one", "two")
    upto = await sync_to_async(reader.head_seq)()
    await sync_to_async(stream)(session, "three", "four")
    if known:
        await client.until_live(await sync_to_async(reader.head_seq)())
    client.delivery.join(session.feed_id, buffer_upto=upto)
    await sync_to_async(stream)(session, "five")
    await client.until(lambda: "five" in client.chunks)
    assert (
        len(client.buffers) == 1
        and client.buffers[0]["complete"] is True
        and client.buffers[0]["session_id"] == "ours"
    )
    assert contents(client.buffers[0]["messages"]) == ["one", "two"] and client.chunks == [
        "three",
        "four",
        "five",
    ]
    await join(client, session)
    await sync_to_async(stream)(session, "six")
    await client.until(lambda: "six" in client.chunks)
    assert len(client.buffers) == 1 and len(client.chunks) == 4, (
        "joined again, it gets nothing twice"
    )


@pytest.mark.parametrize("what", ["its rows", "the buffer"])
async def test_an_acknowledgement_counts_what_it_held(client: Client, what: str) -> None:
    """D27: by the ids of the rows that it held, or by its own: it stands for them."""
    session = await sync_to_async(begin)()
    ids = await sync_to_async(stream)(session, "one", "two")
    await join(client, session)
    await client.until(lambda: bool(client.buffers))
    client.acknowledgements.acknowledged(
        ids
        if what == "its rows"
        else [message["id"] for message in client.messages if message["type"] == "replay_buffer"]
    )
    await client.acknowledgements.flush()
    positions = await sync_to_async(cursors.positions)(
        await sync_to_async(Device.objects.get)(pk=client.device_id)
    )
    assert positions[session.feed_id] == await sync_to_async(reader.head_seq)()


# -- the breaker -----------------------------------------------------------------------------------


def test_the_breakers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec, Limits: opens after 5 failures, probes after 60000 ms; D48: one probe at a time, which
    closes it or keeps it open.
    """
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("sessions_app.agents.breaker.time", clock)
    breaker = Breaker("it")

    def fail() -> None:
        with breaker.attempt():
            breaker.failed()

    def refused() -> None:
        with pytest.raises(BridgeError, match="CIRCUIT_OPEN"), breaker.attempt():
            pass

    for _ in range(4):
        fail()
    assert not breaker.open
    breaker.succeeded()
    for _ in range(5):
        fail()
    now = 59.9
    refused()
    now = 60.0
    with breaker.attempt():
        refused()  # one probe at a time
        breaker.failed()
    now = 119.0
    refused()
    now = 120.0
    with breaker.attempt():
        pass  # it was given up
    with breaker.attempt():
        breaker.succeeded()
    fail()
    assert not breaker.open
