"""Handle auth, health_check, heartbeats, acknowledgements (D15, D16, D20 to D27)."""

import uuid
from datetime import UTC, datetime

from django.utils import timezone

from bridge_project import __version__
from bridge_project.http import ratelimit
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError, invalid_message
from bridge_project.kernel.threads import readers, writers
from bridge_project.network.transport import MODE_DESCRIPTIONS, Transport, websocket_url
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.base import Payload, Phase
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.resources import HealthChecks, PushOffer
from bridge_project.protocol.types import now_text, parse_timestamp, parse_version
from devices_app import pairing, tokens
from devices_app.models import Device
from devices_app.push import choices, vapid
from sessions_app import away, session_view
from sessions_app.agents.registry import supported
from sessions_app.log import reader
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import Disconnect
from sessions_app.socket.registry import registry

DIRECT_PUBLIC, CLOCK_SKEW = "DIRECT_PUBLIC_CONNECTION", "CLOCK_SKEW"
WARNINGS = {
    DIRECT_PUBLIC: "The bridge is reached over a public address without a tunnel."
    " Acknowledge it, or use a mesh or a tunnel.",
    CLOCK_SKEW: "The clocks of this device and of the bridge are more than 5 minutes apart."
    " Set them, or times will look wrong.",
}


async def auth(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.Auth = message.payload
    connection.authenticating = True
    principal = await readers.run(tokens.identify, payload.token)
    if principal is not None and principal.device is not None:
        connection.authenticating = False  # until its version is read (D21)
        _check_version(payload.client_version)  # a stranger's token fails first
        connection.authenticating = True
    own_pairing = str(uuid.uuid4())
    try:
        device, fresh = await writers.run(
            pairing.authenticate,
            payload.token,
            client_device_id=payload.device_id,
            platform=payload.platform,
            client_version=payload.client_version,
            address=connection.transport.client,
            notification_id=own_pairing,
        )
    except BridgeError as error:
        try:  # count it for the address; too many are RATE_LIMITED (D16)
            await readers.run(ratelimit.check, "failed-auth", None, connection.transport.client)
        except BridgeError as limited:
            raise Disconnect("RATE_LIMITED", limited.message, details=limited.fields) from None
        raise Disconnect(error.code, error.message) from None
    if connection.over:  # refused meanwhile: the device's other connection stays
        return
    await registry.register(connection, device, tokens.digest(payload.token))
    connection.delivery.withheld.add(own_pairing)  # it is for the other devices
    connection.phase = Phase.AUTHENTICATED
    # What a client does once it is answered comes after this row.
    head = await readers.run(reader.head_seq)
    # In a thread: with thousands of sessions the event loop would stand still.
    connection.shown_at = timezone.now()
    ack, connection.shown = await readers.run(
        _connection_ack, connection.transport, message.id, device, fresh
    )
    await connection.send_frame(ack)
    if not connection.is_direct_public:
        connection.spawn(connection.delivery.run(head))


def _check_version(version: str) -> None:
    """Raise Disconnect VERSION_INCOMPATIBLE with the reason (SPEC Versioning)."""
    try:
        client = parse_version(version)
    except ValueError:
        rule = "major.minor.patch"
        why = f"client_version is not {rule}."
        raise invalid_message(why, "client_version", rule, version[:64]) from None
    lowest, highest = conf.bridge_min_client_version, conf.bridge_max_client_version
    too_old = client < parse_version(lowest)
    if not too_old and client <= parse_version(highest):
        return
    reason = "CLIENT_TOO_OLD" if too_old else "CLIENT_TOO_NEW"
    raise Disconnect(
        "VERSION_INCOMPATIBLE",
        f"{reason}: this bridge takes clients from {lowest} to {highest}.",
        details={
            "reason": reason,
            "client_version": version,
            "min_client_version": lowest,
            "max_client_version": highest,
        },
    )


def _connection_ack(
    transport: Transport, id: str | None, device: Device, fresh: str | None
) -> tuple[Encoded, dict[int, int]]:
    """Make the ``connection_ack``; also return session → hash of what it shows."""
    open_ones = Session.objects.exclude(status=Session.Status.CLOSED)
    sessions = list(open_ones.values_list(*session_view.COLUMNS, named=True))
    shown, folded = session_view.listed(sessions)
    payload = s.ConnectionAck(
        server_version=__version__,
        supported_agents=supported(),
        connection_mode=transport.mode,
        connection_mode_description=MODE_DESCRIPTIONS[transport.mode],
        bridge_url=websocket_url(transport.base_url),
        active_sessions=list(map(session_view.info_of, shown)),
        idle_sessions=folded,
        device_name=device.name,
        device_token=fresh,
        notify=choices.shown(choices.of(device)),
        presence=away.current(),
        push=None if conf.bridge_push == "off" else PushOffer(public_key=vapid.public_key()),
    )
    return encode(payload, id=id), {one.pk: session_view.fingerprint(one) for one in sessions}


async def health_check(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.HealthCheck = message.payload
    now = datetime.now(UTC)
    behind = (now - parse_timestamp(payload.timestamp)).total_seconds()
    in_step = abs(behind) <= limits.CLOCK_SKEW_WARNING_SECONDS
    must_acknowledge = not _is_settled(connection)
    codes = [DIRECT_PUBLIC] if connection.is_direct_public else []
    codes += [] if in_step else [CLOCK_SKEW]
    connection.health_reported = True
    status = s.HealthStatus(
        status="warning" if codes else "healthy",
        connection_mode=connection.transport.mode,
        warnings=codes,
        warning_details={
            code: {
                "message": WARNINGS[code],
                "requires_acknowledgment": must_acknowledge and code == DIRECT_PUBLIC,
            }
            for code in codes
        },
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
    )
    await _reply(connection, message, status, ready=not must_acknowledge)


async def acknowledge_warning(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.AcknowledgeWarning = message.payload
    if payload.warning_code not in WARNINGS:
        rule, given = "one of " + ", ".join(WARNINGS), payload.warning_code[:64]
        raise invalid_message("There is no such warning.", "warning_code", rule, given)
    if payload.acknowledged and payload.warning_code == DIRECT_PUBLIC:
        await writers.run(pairing.acknowledge_warning, connection.paired)
    reported = connection.health_reported or connection.phase is Phase.READY
    ready = reported and _is_settled(connection)
    answer = s.AcknowledgmentAccepted(
        warning_code=payload.warning_code,
        ready=ready,
        session_timeout=f"{limits.ACKNOWLEDGED_WARNING_SECONDS // 3600}h",
    )
    await _reply(connection, message, answer, ready=ready)


def _is_settled(connection: ClientConnection) -> bool:
    """Return whether no warning waits; none does while a client is ready (D24)."""
    return (
        connection.phase is Phase.READY
        or not connection.is_direct_public
        or pairing.warning_acknowledged(connection.paired)
    )


async def _reply(
    connection: ClientConnection, message: ClientMessage, answer: Payload, *, ready: bool
) -> None:
    """Answer, and begin with the session messages when the client is ready."""
    begins = ready and connection.phase is not Phase.READY
    head = await readers.run(reader.head_seq) if begins else 0  # before the client is told
    await connection.send_payload(answer, id=message.id)
    if begins:
        connection.phase = Phase.READY
        if connection.is_direct_public:
            connection.spawn(connection.delivery.run(head))


async def heartbeat_ping(connection: ClientConnection, message: ClientMessage) -> None:
    # before the pong goes out: what follows it is not proven by it
    sent = dict(connection.delivery.sent)
    await connection.send_payload(s.HeartbeatPong())
    connection.acknowledgements.ping(sent)


async def presence_set(
    connection: ClientConnection, message: ClientMessage
) -> s.PresenceState | None:
    """Store whether the owner is away; the row for all devices answers this one."""
    row_id, answers = str(uuid.uuid4()), connection.delivery.answers
    answers[row_id] = message.id  # before the row is written: it is sent as soon as it commits
    known: s.PresenceState | None = None
    try:
        device, away_now = connection.paired, message.payload.away
        known = await writers.run(away.set_away, away_now, device=device, row_id=row_id)
    except BaseException:
        answers.pop(row_id, None)
        raise
    if known is not None:
        answers.pop(row_id, None)
    return known


async def notification_ack(connection: ClientConnection, message: ClientMessage) -> None:
    ids = message.payload.notification_ids
    if len(ids) > limits.ACK_MAX_IDS:
        rule = f"at most {limits.ACK_MAX_IDS} ids"
        raise invalid_message("Too many ids at once.", "notification_ids", rule, str(len(ids)))
    connection.delivery.acknowledged(ids)
    connection.acknowledgements.acknowledged(ids)
    await connection.acknowledgements.wait_for_room()
