"""Run one client connection: check the pinned key, exchange messages and pings."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from bridge_project import PROTOCOL_VERSION
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS
from bridge_project.network.certificate_files import pin_of
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.types import now_text

Message = dict[str, Any]

ANSWER_SECONDS = 30.0  # for the answer to a request
# for the answer to a request that may start an agent
START_SECONDS = limits.AGENT_START_SECONDS + ANSWER_SECONDS
OPEN_SECONDS: Final = 10.0
ACK_MAX: Final = 500  # ids in one notification_ack

# after any other connection_error a client gives up (SPEC WebSocket errors)
_PASSING: Final = {code for code, row in ERRORS.items() if row.passes}
_CLOSED: Final = {1001: "the bridge is stopping", 1006: "the connection broke"}


class Lost(Exception):
    """Report a lost or failed connection; trying again may help."""


class Refused(Exception):
    """Report that the bridge refuses this client; trying again will not help."""


@dataclass(frozen=True, slots=True)
class Target:
    """Hold where to connect and as whom.

    ``pin``: hex SHA-256 of the server's public key.
    """

    url: str
    token: str
    pin: str = ""
    device_id: str | None = None


def pinned_context() -> ssl.SSLContext:
    """Make a TLS context for a caller that compares the server's pin by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_row(message: Message) -> bool:
    """Return whether a message is a log row, resent until acknowledged (D26, D27)."""
    model = CATALOGUE.get(str(message.get("type")))
    return model is not None and model.feed is not None and bool(message.get("id"))


class Client:
    """Hold an open connection; iterate over it for the messages that arrive.

    Answers to ``request`` and pongs are left out. It ends by raising Lost or Refused.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._pong = asyncio.Event()
        self._arrived: asyncio.Queue[Message] = asyncio.Queue(maxsize=1000)
        self._lost: Lost | Refused | None = None
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, target: Target) -> AsyncIterator[Client]:
        """Connect, and close in order at the end. Raises Lost or Refused."""
        client = cls(await _connect(target))
        try:
            yield client
        finally:
            for task in client._tasks:
                task.cancel()
            await asyncio.gather(*client._tasks, return_exceptions=True)
            await client.connection.close()

    def end(self, why: Lost | Refused) -> None:
        """End the connection: every waiting call raises the first error given here."""
        self._lost = self._lost or why
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._lost)
        # a full one has a reader that finds out by itself
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait({})

    async def send(self, type_: str, payload: Message | None, id_: str = "") -> None:
        """Send a message; ``payload`` None: a heartbeat. Raises Lost or Refused."""
        message: Message = {"type": type_, "timestamp": now_text()}
        if payload is not None:
            message |= {"id": id_ or str(uuid.uuid4()), "payload": payload}
        try:
            await self.connection.send(json.dumps(message))
        except ConnectionClosed as closed:
            raise self._lost or _lost(closed) from None

    async def request(self, type_: str, payload: Message) -> Message:
        """Send a message and return the one that carries its id (D4).

        Raises Lost or Refused.
        """
        own = str(uuid.uuid4())
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[own] = answer
        patience = START_SECONDS if type_ == "session_start" else ANSWER_SECONDS
        try:
            await self.send(type_, payload, own)
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            raise Lost(f"no answer to {type_} within {patience:g} s") from None
        finally:
            del self._answers[own]

    async def auth(self, target: Target) -> Message:
        """Authenticate; return the payload of ``connection_ack``. Raises Lost or Refused."""
        payload: Message = {"token": target.token, "client_version": PROTOCOL_VERSION}
        payload |= {"platform": "web", "device_id": target.device_id}
        return await self._expect("auth", payload, "connection_ack")

    async def health_check(self) -> Message:
        """Return the payload of ``health_status``. Raises Lost or Refused."""
        payload = {"timestamp": now_text(), "client_nonce": str(uuid.uuid4())}
        capabilities = {"client_capabilities": ["health_v1", "acknowledgment_v1"]}
        return await self._expect("health_check", payload | capabilities, "health_status")

    async def acknowledge_warning(self, code: str) -> Message:
        """Return the payload of ``acknowledgment_accepted``. Raises Lost or Refused."""
        payload = {"warning_code": code, "acknowledged": True, "acknowledged_at": now_text()}
        return await self._expect("acknowledge_warning", payload, "acknowledgment_accepted")

    async def join(self, session_id: str, *, known: bool) -> Message:
        """Join a session and return the answer.

        ``known``: the bridge listed it; any other is asked for so that it is never created (D22).
        """
        payload = {"agent": "", "session_id": session_id, "working_directory": ""}
        return await self.request("session_start", payload | {"resume": not known})

    async def acknowledge(self, ids: Iterable[str]) -> None:
        """Acknowledge these messages (D27). Raises Lost or Refused."""
        waiting = list(ids)
        for start in range(0, len(waiting), ACK_MAX):
            some = waiting[start : start + ACK_MAX]
            await self.send("notification_ack", {"notification_ids": some})

    async def _expect(self, type_: str, payload: Message, wanted: str) -> Message:
        answer = await self.request(type_, payload)
        body: Message = answer.get("payload") or {}
        if answer["type"] == "connection_error":
            raise _refusal(body)
        if answer["type"] != wanted:
            said = f"{answer['type']} {body.get('code', '')} {body.get('message', '')}"
            raise Lost(f"{type_} was answered by {said}".rstrip())
        return body

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            if self._lost is not None and self._arrived.empty():
                raise self._lost
            message = await self._arrived.get()
            if message:
                yield message

    def idle(self) -> bool:
        """Return whether nothing more has arrived yet."""
        return self._arrived.empty()

    async def _read(self) -> None:
        try:
            while True:
                await self._sort(json.loads(await self.connection.recv()))
        except ConnectionClosed as closed:
            self.end(_lost(closed))
        except ValueError:
            self.end(Lost("what came was not JSON"))

    async def _sort(self, message: Message) -> None:
        waiting = self._answers.get(str(message.get("id")))
        if message["type"] == "heartbeat_pong":
            self._pong.set()
        elif waiting is not None and not waiting.done():
            waiting.set_result(message)
        elif message["type"] == "connection_error":
            self._lost = _refusal(message["payload"])  # the close that follows ends it
        else:
            if message["type"] == "error" and message["payload"].get("code") == "CONN_REPLACED":
                self._lost = Refused("Another connection of this device took over.")
            await self._arrived.put(message)

    async def _beat(self) -> None:
        """Ping every 15 s; end when a pong takes over 10 (SPEC Limits)."""
        while True:
            await asyncio.sleep(limits.HEARTBEAT_INTERVAL_SECONDS)
            self._pong.clear()
            with contextlib.suppress(Lost, Refused):  # the reader says it
                await self.send("heartbeat_ping", None)
            try:
                async with asyncio.timeout(limits.PONG_WAIT_SECONDS):
                    await self._pong.wait()
            except TimeoutError:
                self._lost = self._lost or Lost("the bridge does not answer the heartbeat")
                self.connection.transport.abort()
                return


async def _connect(target: Target) -> ClientConnection:
    class Pinned(ClientConnection):
        """Check the server's key before the first byte of HTTP."""

        async def handshake(self, *args: Any, **kwargs: Any) -> None:
            tls = self.transport.get_extra_info("ssl_object")
            if pin_of(tls.getpeercert(binary_form=True)) != target.pin:
                self.transport.abort()
                raise Refused(
                    "The server there has another key than the bridge that was paired with."
                    " Pair again if the bridge was set up anew."
                )
            await super().handshake(*args, **kwargs)

    try:
        return await connect(
            target.url,
            ssl=pinned_context(),
            create_connection=Pinned,
            proxy=None,
            compression=None,
            ping_interval=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=2,
            max_size=None,
        )
    except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as error:
        if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
            raise Lost("nothing listens there") from None
        raise Lost(" ".join(str(error).split()) or type(error).__name__) from None


def _lost(closed: ConnectionClosed) -> Lost:
    code = closed.rcvd.code if closed.rcvd else 1006
    return Lost(f"{_CLOSED.get(code, 'the bridge closed the connection')} ({code})")


def _refusal(payload: Message) -> Lost | Refused:
    """Return the exception for a ``connection_error``."""
    text = f"{payload.get('code')}: {payload.get('message')}"
    if payload.get("code") in _PASSING:
        return Lost(text)
    return Refused(f"{text} {payload.get('remediation') or ''}".rstrip())
