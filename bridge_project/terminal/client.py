"""Run one client connection: check the pinned key, send and acknowledge messages."""

import asyncio
import contextlib
import json
import ssl
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from bridge_project import PROTOCOL_VERSION
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS
from bridge_project.network.certificate_files import pin_of
from bridge_project.protocol.types import now_text

Message = dict[str, Any]
Accept = Callable[[str], Awaitable[None]]
Take = Callable[[Message], None]
T = TypeVar("T")

ANSWER_SECONDS: Final = limits.AGENT_START_SECONDS + 30.0  # a request may start an agent


class Lost(Exception):
    """Report a lost or failed connection; trying again may help."""


class Refused(Exception):
    """Report that the bridge refuses this client; trying again will not help."""


@dataclass(frozen=True, slots=True)
class Target:
    """Hold where to connect and as whom."""

    url: str
    token: str
    pin: str  # hex SHA-256 of the server's public key
    device_id: str


def pinned_context() -> ssl.SSLContext:
    """Make a TLS context for a caller that compares the server's pin by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Client:
    """Send messages; pass to ``take`` what arrives, but for answers it need not show."""

    def __init__(self, connection: ClientConnection, take: Take) -> None:
        self._connection, self._take = connection, take
        # request's id → its answer, and whether ``take`` gets it too, in the order of arrival
        self._answers: dict[str, tuple[asyncio.Future[Message], bool]] = {}

    async def send(self, type_: str, payload: Message, id_: str = "") -> None:
        """Send a message. Raises Lost."""
        message = {"type": type_, "id": id_ or str(uuid.uuid4()), "timestamp": now_text()}
        try:
            await self._connection.send(json.dumps(message | {"payload": payload}))
        except ConnectionClosed as closed:
            raise _lost(closed) from None

    async def request(self, type_: str, payload: Message, *, shown: bool = False) -> Message:
        """Send a message; return its answer (D4). Raises Lost or Refused."""
        own = str(uuid.uuid4())
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[own] = answer, shown
        try:
            await self.send(type_, payload, own)
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            raise Lost(f"no answer to {type_} within {ANSWER_SECONDS:g} s") from None
        finally:
            self._answers.pop(own, None)

    async def get_ready(self, target: Target, accept: Accept) -> None:
        """Authenticate, check health, ``accept`` its warnings. Raises Lost or Refused."""
        about = {"client_version": PROTOCOL_VERSION, "platform": "web"}
        own = {"token": target.token, "device_id": target.device_id}
        await self._exchange("auth", about | own, "connection_ack")
        nonce = {"timestamp": now_text(), "client_nonce": str(uuid.uuid4())}
        able = {"client_capabilities": ["health_v1", "acknowledgment_v1"]}
        health = await self._exchange("health_check", nonce | able, "health_status")
        for code in [] if health["ready"] else health["warnings"]:
            await accept(f"{code}: {health['warning_details'][code]['message']}")
            taken = {"acknowledged": True, "acknowledged_at": now_text(), "warning_code": code}
            await self._exchange("acknowledge_warning", taken, "acknowledgment_accepted")

    async def join(self, session_id: str) -> Message:
        """Join a listed session; return the answer. Raises Lost or Refused."""
        asked = {"agent": "", "session_id": session_id, "working_directory": "", "resume": False}
        return await self.request("session_start", asked, shown=True)

    async def _exchange(self, type_: str, payload: Message, wanted: str) -> Message:
        answer = await self.request(type_, payload, shown=True)
        body: Message = answer.get("payload") or {}
        if answer["type"] != wanted:
            reply = f"{answer['type']} {body.get('code', '')} {body.get('message', '')}"
            raise Lost(f"{type_} was answered by {reply}".rstrip())
        return body

    async def read(self) -> NoReturn:
        """Pass on what arrives, and acknowledge it (D27). Ends by raising Lost or Refused."""
        why: Lost | Refused = Lost("the connection was closed")
        try:
            while True:
                message = json.loads(await self._connection.recv())
                self._pass_on(message)
                if "id" in message:
                    # when the connection is at its end, the reason may still wait to be read
                    with contextlib.suppress(Lost):
                        await self.send("notification_ack", {"notification_ids": [message["id"]]})
        except (ConnectionClosed, Lost, Refused) as error:
            why = _lost(error) if isinstance(error, ConnectionClosed) else error
            raise why from None
        finally:
            for answer, _ in self._answers.values():
                if not answer.done():
                    answer.set_exception(why)

    def _pass_on(self, message: Message) -> None:
        payload = message.get("payload") or {}
        if message["type"] == "connection_error":
            raise _refusal(payload)
        if message["type"] == "error" and payload.get("code") == "CONN_REPLACED":
            raise Refused("Another connection of this device, such as a second `watch`, took over.")
        answer, shown = self._answers.pop(_request_of(message), (None, True))
        is_row = message["type"] == "agent_event"
        if answer is None or is_row or (shown and message["type"] != "error"):
            self._take(message)
        if answer is not None and not answer.done():
            answer.set_result(message)


def _request_of(message: Message) -> str:
    """Return the id of the request that is answered (D4): a prompt by its row."""
    about: Message = message["payload"]["payload"] if message["type"] == "agent_event" else {}
    return str(about.get("message_id") or message.get("id", ""))


async def converse(target: Target, take: Take, talk: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, and ``take`` each message until ``talk`` ends. Raises Lost or Refused."""
    connection = await _connect(target)
    client = Client(connection, take)
    talking, reading = asyncio.ensure_future(talk(client)), asyncio.ensure_future(client.read())
    try:
        await asyncio.wait((talking, reading), return_when=asyncio.FIRST_COMPLETED)
        return await (talking if talking.done() else reading)
    finally:
        talking.cancel()
        reading.cancel()
        await asyncio.gather(talking, reading, return_exceptions=True)
        await connection.close()


async def _connect(target: Target) -> ClientConnection:
    """Connect to the pinned key, with a ping as often as the spec has heartbeats."""

    class Pinned(ClientConnection):
        """Check the server's key before the first byte of HTTP."""

        async def handshake(self, *args: Any, **kwargs: Any) -> None:
            tls = self.transport.get_extra_info("ssl_object")
            if pin_of(tls.getpeercert(binary_form=True)) != target.pin:
                self.transport.abort()
                raise Lost(f"what answers at {target.url} has another key than the bridge")
            await super().handshake(*args, **kwargs)

    try:
        return await connect(
            target.url,
            ssl=pinned_context(),
            create_connection=Pinned,
            proxy=None,
            compression=None,
            ping_interval=limits.HEARTBEAT_INTERVAL_SECONDS,
            ping_timeout=limits.PONG_WAIT_SECONDS,
            close_timeout=2,
            max_size=None,
        )
    except (ssl.SSLError, InvalidHandshake) as error:
        raise Lost(f"what answers at {target.url} is no bridge ({error})") from None
    except (OSError, ConnectionClosed) as error:
        refused = isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error)
        raise Lost(f"nothing listens at {target.url}" if refused else str(error)) from None


def _lost(closed: ConnectionClosed) -> Lost:
    return Lost((closed.rcvd.reason if closed.rcvd else "") or "the connection broke")


def _refusal(payload: Message) -> Lost | Refused:
    """Return the exception for a ``connection_error`` (SPEC WebSocket errors)."""
    text = f"{payload.get('code')}: {payload.get('message')}"
    if (row := ERRORS.get(str(payload.get("code")))) and row.passes:
        return Lost(text)
    return Refused(f"{text} {payload.get('remediation') or ''}".rstrip())
