"""One connection of a client: TLS checked against the pin before anything is sent, then messages,
answers and heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from bridge_project import PROTOCOL_VERSION
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.types import now_text

Message = dict[str, Any]

ANSWER_SECONDS = 30.0  # for the answer to a request
START_SECONDS = limits.AGENT_START_SECONDS + ANSWER_SECONDS  # to one that may have an agent started
OPEN_SECONDS = 10.0
ACK_MAX = 500  # ids in one notification_ack


class Lost(Exception):
    """The connection is gone, or could not be made; trying again may help. The text says why, in
    one line.
    """


class Refused(Exception):
    """The bridge will not have this client, and trying again will not change that. The text says
    why, in one line.
    """


# after any other a client gives up (SPEC WebSocket errors)
_PASSING = frozenset(code for code, row in ERRORS.items() if row.passes)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect and as whom. ``pin``: hex SHA-256 of the server's public key; empty: its
    certificate must be trusted by this system.
    """

    url: str
    token: str
    pin: str = ""
    device_id: str | None = None

    @classmethod
    def from_link(cls, link: str) -> Target:
        """The target in a pairing link, ``https://…/pair#v=1&token=…&url=…&pin=…``. Raises
        ValueError when it is none.
        """
        fields = {name: values[0] for name, values in parse_qs(urlsplit(link).fragment).items()}
        if not {"url", "token", "pin"} <= fields.keys():
            raise ValueError("not a pairing link")
        return cls(url=fields["url"], token=fields["token"], pin=fields["pin"].lower())


def pin_of(certificate: bytes) -> str:
    """The pin of a certificate in DER: hex SHA-256 of its public key (D43)."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def pinned_context() -> ssl.SSLContext:
    """For whoever compares the server's key with a pin, which says more than an authority's word:
    the system's are not even read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Client:
    """An open connection. ``async for message in client`` gives what arrives, answers to
    ``request`` and pongs left out; it ends by raising Lost.
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
        """Connect, and close in order at the end. Raises Lost, or Refused when the server's key is
        not the pinned one.
        """
        client = cls(await _connect(target))
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.connection.close()

    # -- sending -----------------------------------------------------------------------------------

    async def send(self, type_: str, payload: Message, id_: str | None = None) -> str:
        """Send a message and return its id. Raises Lost."""
        own = id_ or str(uuid.uuid4())
        await self._send_text(
            json.dumps({"type": type_, "id": own, "timestamp": now_text(), "payload": payload})
        )
        return own

    async def request(self, type_: str, payload: Message) -> Message:
        """Send a message and return the one that carries its id (D4), whatever its type. Raises
        Lost or Refused.
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
        """Authenticate; returns the payload of ``connection_ack``. Raises Lost or Refused."""
        payload: Message = {
            "token": target.token,
            "client_version": PROTOCOL_VERSION,
            "platform": "web",
        }
        if target.device_id is not None:
            payload["device_id"] = target.device_id
        return await self._expect("auth", payload, "connection_ack")

    async def health_check(self) -> Message:
        """Returns the payload of ``health_status``. Raises Lost or Refused."""
        payload = {
            "timestamp": now_text(),
            "client_nonce": str(uuid.uuid4()),
            "client_capabilities": ["health_v1", "acknowledgment_v1"],
        }
        return await self._expect("health_check", payload, "health_status")

    async def acknowledge_warning(self, code: str) -> Message:
        """Returns the payload of ``acknowledgment_accepted``. Raises Lost or Refused."""
        payload = {"warning_code": code, "acknowledged": True, "acknowledged_at": now_text()}
        return await self._expect("acknowledge_warning", payload, "acknowledgment_accepted")

    async def join(self, session_id: str, *, known: bool) -> Message:
        """Join a session and return the answer. ``known``: the bridge listed it; any other is asked
        for so that it is never created (D22).
        """
        return await self.request(
            "session_start",
            {"agent": "", "session_id": session_id, "working_directory": "", "resume": not known},
        )

    async def acknowledge(self, ids: Iterable[str]) -> None:
        """Say that these messages arrived (D27). Raises Lost."""
        waiting = list(ids)
        for start in range(0, len(waiting), ACK_MAX):
            await self.send(
                "notification_ack", {"notification_ids": waiting[start : start + ACK_MAX]}
            )

    async def _expect(self, type_: str, payload: Message, wanted: str) -> Message:
        answer = await self.request(type_, payload)
        body: Message = answer.get("payload") or {}
        if answer["type"] == "connection_error":
            raise refusal(body)
        if answer["type"] != wanted:
            raise Lost(
                f"{type_} was answered by {answer['type']} {body.get('code', '')} {body.get('message', '')}".rstrip()
            )
        return body

    async def _send_text(self, text: str) -> None:
        try:
            await self.connection.send(text)
        except ConnectionClosed as closed:
            raise self._lost or _lost(_code(closed)) from None

    # -- receiving ---------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            if self._lost is not None and self._arrived.empty():
                raise self._lost
            message = await self._arrived.get()
            if message:
                yield message

    def idle(self) -> bool:
        """Whether nothing more has arrived yet."""
        return self._arrived.empty()

    async def _read(self) -> None:
        try:
            async for text in self.connection:
                await self._sort(json.loads(text))
            raise _lost(self.connection.close_code or 1006)
        except ConnectionClosed as closed:
            self._end(self._lost or _lost(_code(closed)))
        except ValueError:
            self._end(Lost("what came was not JSON"))
        except Lost as lost:
            self._end(self._lost or lost)

    async def _sort(self, message: Message) -> None:
        waiting = self._answers.get(str(message.get("id")))
        if message["type"] == "heartbeat_pong":
            self._pong.set()
        elif waiting is not None and not waiting.done():
            waiting.set_result(message)
        elif message["type"] == "connection_error":
            self._lost = refusal(message["payload"])
        else:
            if message["type"] == "error" and message["payload"].get("code") == "CONN_REPLACED":
                self._lost = Refused("Another connection of this device took over.")
            await self._arrived.put(message)

    def _end(self, lost: Lost | Refused) -> None:
        self._lost = lost
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)
        # a full one has a reader that finds out by itself
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait({})

    async def _beat(self) -> None:
        """A ping every 15 seconds; one that is not answered in 10 ends the connection (SPEC
        Limits).
        """
        while True:
            await asyncio.sleep(limits.HEARTBEAT_INTERVAL_SECONDS)
            self._pong.clear()
            with contextlib.suppress(Lost, Refused):  # the reader says it
                await self._send_text(
                    json.dumps({"type": "heartbeat_ping", "timestamp": now_text()})
                )
            try:
                async with asyncio.timeout(limits.PONG_WAIT_SECONDS):
                    await self._pong.wait()
            except TimeoutError:
                self._lost = self._lost or Lost("the bridge does not answer the heartbeat")
                self.connection.transport.abort()
                return


async def _connect(target: Target) -> ClientConnection:
    class Pinned(ClientConnection):
        """Checks the server's key before the first byte of HTTP."""

        async def handshake(self, *args: Any, **kwargs: Any) -> None:
            if target.pin:
                certificate = self.transport.get_extra_info("ssl_object").getpeercert(
                    binary_form=True
                )
                if pin_of(certificate) != target.pin:
                    self.transport.abort()
                    raise Refused(
                        "The server there has another key than the bridge that was paired with. Pair again if the bridge was set up anew."
                    )
            await super().handshake(*args, **kwargs)

    if urlsplit(target.url).scheme != "wss":
        raise Refused("The address must begin with wss://")
    try:
        return await connect(
            target.url,
            ssl=pinned_context() if target.pin else ssl.create_default_context(),
            create_connection=Pinned,
            proxy=None,
            compression=None,
            ping_interval=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=2,
            max_size=None,
        )
    except (InvalidURI, ssl.SSLCertVerificationError) as error:
        raise Refused(_sentence(error)) from None
    except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as error:
        raise Lost(_sentence(error)) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "nothing listens there"
    return " ".join(str(error).split()) or type(error).__name__


def _code(closed: ConnectionClosed) -> int:
    return closed.rcvd.code if closed.rcvd else 1006


def _lost(code: int) -> Lost:
    words = {1001: "the bridge is stopping", 1006: "the connection broke"}
    return Lost(f"{words.get(code, 'the bridge closed the connection')} ({code})")


def refusal(payload: Message) -> Lost | Refused:
    """What a ``connection_error`` means for the client."""
    text = f"{payload.get('code')}: {payload.get('message')}"
    return (
        Lost(text)
        if payload.get("code") in _PASSING
        else Refused(f"{text} {payload.get('remediation') or ''}".rstrip())
    )


def is_row(message: Message) -> bool:
    """Whether a message is one of the log: sent again until it is acknowledged, and known by its id
    (D26, D27).
    """
    row = CATALOGUE.get(str(message.get("type")))
    return row is not None and row.feed is not None and bool(message.get("id"))
