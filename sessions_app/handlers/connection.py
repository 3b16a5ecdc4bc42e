"""auth, health_check, acknowledge_warning, heartbeat_ping, notification_ack (SPEC Connection
phases; D15, D16, D20 to D27).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bridge_project import __version__
from bridge_project.http import ratelimit
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers, writers
from bridge_project.network.transport import Transport, connection_mode_description, websocket_url
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.resources import HealthChecks, SessionInfo
from bridge_project.protocol.types import SemVer, now_text, parse_timestamp
from devices_app import pairing, tokens
from sessions_app.agents.registry import supported
from sessions_app.log import reader
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import Refused, handles
from sessions_app.socket.registry import registry

WARNING_DIRECT_PUBLIC = "DIRECT_PUBLIC_CONNECTION"
WARNING_CLOCK_SKEW = "CLOCK_SKEW"
WARNINGS = {
    WARNING_DIRECT_PUBLIC: "The bridge is reached over a public address without a tunnel. Acknowledge it, or use a mesh or a tunnel.",
    WARNING_CLOCK_SKEW: "The clocks of this device and of the bridge are more than 5 minutes apart. Set them, or times will look wrong.",
}


@handles(c.Auth)
async def auth(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.Auth = message.payload
    _check_version(payload.client_version, known=await _known(payload.token))
    try:
        device, fresh = await writers.run(
            pairing.authenticate,
            payload.token,
            client_device_id=payload.device_id,
            platform=payload.platform,
            client_version=payload.client_version,
            address=connection.transport.client,
        )
    except BridgeError as error:
        raise await _failed(connection, error) from None
    await registry.take_place(connection, device, tokens.digest(payload.token))
    connection.phase = Phase.AUTHENTICATED
    ack, head = await readers.run(_connection_ack, connection.transport, message.id, fresh)
    await connection.send_frame(ack)
    if connection.transport.mode != "direct_public":
        connection.start_delivery(head)


async def _known(token: str) -> bool:
    principal = await readers.run(tokens.identify, token)
    return principal is not None and principal.device is not None


def _check_version(version: str, *, known: bool) -> None:
    """Raise Refused VERSION_INCOMPATIBLE with the reason (SPEC Versioning). A stranger is not told:
    his token fails first.
    """
    if not known:
        return
    try:
        client = SemVer.parse(version)
    except ValueError:
        violation = {
            "field": "payload.client_version",
            "constraint": "major.minor.patch",
            "received": version[:64],
        }
        raise BridgeError(
            "PROTO_INVALID_MESSAGE",
            "client_version is not major.minor.patch.",
            violations=[violation],
        ) from None
    lowest, highest = (
        SemVer.parse(conf.bridge_min_client_version),
        SemVer.parse(conf.bridge_max_client_version),
    )
    reason = "CLIENT_TOO_OLD" if client < lowest else "CLIENT_TOO_NEW" if client > highest else None
    if reason:
        details = {
            "reason": reason,
            "client_version": version,
            "min_client_version": str(lowest),
            "max_client_version": str(highest),
        }
        raise Refused(
            "VERSION_INCOMPATIBLE",
            f"{reason}: this bridge takes clients from {lowest} to {highest}.",
            details=details,
        )


async def _failed(connection: ClientConnection, error: BridgeError) -> Refused:
    """A failed authentication counts for the address; too many turn into RATE_LIMITED (D16)."""
    try:
        await readers.run(ratelimit.failed_authentication, connection.transport.client)
    except BridgeError as limited:
        return Refused("RATE_LIMITED", limited.message, details=limited.fields)
    return Refused(error.code, error.message)


def _connection_ack(transport: Transport, id: str | None, fresh: str | None) -> tuple[Encoded, int]:
    """The message, and the head of the log, read first: what a client does once it has been
    answered comes after it.

    Written in the thread that reads the sessions: with thousands of them the event loop would stand
    still for it.
    """
    head = reader.head_seq()
    payload = s.ConnectionAck(
        server_version=__version__,
        supported_agents=supported(),
        connection_mode=transport.mode.value,
        connection_mode_description=connection_mode_description(transport.mode),
        bridge_url=websocket_url(transport.base_url),
        active_sessions=_active_sessions(),
        device_token=fresh,
    )
    return encode(payload, id=id), head


def _active_sessions() -> list[SessionInfo]:
    """Four columns of each and no more: with thousands of sessions their recent events would take
    longer than all the rest.
    """
    found = Session.objects.exclude(status=Session.Status.CLOSED).values_list(
        "session_id", "agent_type", "title", "working_directory"
    )
    return [
        SessionInfo(session_id=id_, agent=agent, title=title, working_directory=directory or None)
        for id_, agent, title, directory in found
    ]


@handles(c.HealthCheck)
async def health_check(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.HealthCheck = message.payload
    now = datetime.now(UTC)
    behind = (now - parse_timestamp(payload.timestamp)).total_seconds()
    in_step = abs(behind) <= limits.CLOCK_SKEW_WARNING_SECONDS
    must_acknowledge = (
        connection.transport.mode == "direct_public"
        and not pairing.warning_acknowledged(_device(connection))
    )
    codes = [WARNING_DIRECT_PUBLIC] * (connection.transport.mode == "direct_public") + [
        WARNING_CLOCK_SKEW
    ] * (not in_step)
    connection.health_reported = True
    head = await _head(connection)
    await connection.reply(
        message,
        s.HealthStatus(
            status="warning" if codes else "healthy",
            connection_mode=connection.transport.mode.value,
            warnings=codes,
            warning_details={code: _warning(code, must_acknowledge) for code in codes},
            checks=HealthChecks(
                tls_valid=connection.transport.secure,
                clock_sync=in_step,
                version_compatible=True,
                token_permissions=True,
            ),
            server_timestamp=now_text(now),
            latency_ms=max(0.0, round(behind * 1000, 3)) if in_step else 0.0,
            ready=not must_acknowledge,
            requires_acknowledgment=must_acknowledge,
        ),
    )
    if not must_acknowledge:
        _become_ready(connection, head)


def _warning(code: str, must_acknowledge: bool) -> dict[str, Any]:
    return {
        "message": WARNINGS[code],
        "requires_acknowledgment": must_acknowledge and code == WARNING_DIRECT_PUBLIC,
    }


@handles(c.AcknowledgeWarning)
async def acknowledge_warning(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.AcknowledgeWarning = message.payload
    if payload.warning_code not in WARNINGS:
        violation = {
            "field": "payload.warning_code",
            "constraint": "one of " + ", ".join(WARNINGS),
            "received": payload.warning_code[:64],
        }
        raise BridgeError("PROTO_INVALID_MESSAGE", "Nobody warned of that.", violations=[violation])
    device = _device(connection)
    if payload.acknowledged and payload.warning_code == WARNING_DIRECT_PUBLIC:
        await writers.run(pairing.acknowledge_warning, device)
    settled = connection.transport.mode != "direct_public" or pairing.warning_acknowledged(device)
    ready = settled and (connection.health_reported or connection.phase is Phase.READY)
    head = await _head(connection)
    hours = f"{limits.ACKNOWLEDGED_WARNING_SECONDS // 3600}h"
    await connection.reply(
        message,
        s.AcknowledgmentAccepted(
            warning_code=payload.warning_code, ready=ready, session_timeout=hours
        ),
    )
    if ready:
        _become_ready(connection, head)


def _device(connection: ClientConnection) -> Any:
    assert connection.device is not None
    return connection.device


async def _head(connection: ClientConnection) -> int:
    """The head of the log before a client is told that it is ready; not asked for where delivery
    has begun.
    """
    return 0 if connection.phase is Phase.READY else await readers.run(reader.head_seq)


def _become_ready(connection: ClientConnection, head: int) -> None:
    if connection.phase is not Phase.READY:
        connection.phase = Phase.READY
        if connection.transport.mode == "direct_public":
            connection.start_delivery(head)


@handles(c.HeartbeatPing)
async def heartbeat_ping(connection: ClientConnection, message: ClientMessage) -> None:
    assert connection.acknowledgements is not None and connection.delivery is not None
    # before the pong goes out: what follows it is not proven by it
    sent = dict(connection.delivery.sent)
    await connection.send_payload(s.HeartbeatPong())
    connection.acknowledgements.ping(sent)


@handles(c.NotificationAck)
async def notification_ack(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.NotificationAck = message.payload
    assert connection.acknowledgements is not None
    if len(payload.notification_ids) > limits.ACK_MAX_IDS:
        violation = {
            "field": "payload.notification_ids",
            "constraint": f"at most {limits.ACK_MAX_IDS} ids",
            "received": str(len(payload.notification_ids)),
        }
        raise BridgeError("PROTO_INVALID_MESSAGE", "Too many ids at once.", violations=[violation])
    connection.acknowledgements.acknowledged(payload.notification_ids)
