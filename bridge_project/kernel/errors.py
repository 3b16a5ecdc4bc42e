"""Define every error code, one row of a table each (SPEC Errors, D7 to D12, D50).

The pages under `/docs/errors/<CODE>` and `docs/errors.md` are generated from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["info", "warning", "error", "critical", "fatal"]


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """Hold a row of the table; None in a column: the code is not sent that way."""

    code: str
    message: str
    remedy: str
    status: int | None = None  # of an HTTP answer
    close: int | None = None  # the WebSocket close code (D21)
    before_close: Literal["connection_error", "error"] = "connection_error"
    recoverable: bool | None = None  # in an `error`: the same connection can go on
    severity: Severity = "warning"
    notified: bool = False  # whoever raises it notifies the devices, in words of its own (D51)
    passes: bool = False  # a client that waits and connects again may succeed
    never_sent: str = ""  # why a code of the specification is not sent, in words


BY_A_CLIENT = "what a client reports of itself"

# A row is laid out by hand: how it is sent, what it means, the remedy.
# fmt: off
_TABLE = [
    # -- HTTP --------------------------------------------------------------------------------------
    ErrorCode("AUTH_INVALID_TOKEN", status=401,
        message="The token is missing, malformed, unknown or expired.",
        remedy="Send `Authorization: Bearer <token>`; pair the device again if its token was "
               "revoked."),
    ErrorCode("AUTH_INSUFFICIENT_SCOPE", status=403,
        message="The token is valid, but not for this.",
        remedy="Use the token of the kind that this endpoint takes: device, hook or admin."),
    ErrorCode("HOOK_AUTH_FAILED", status=401,
        message="The hook token is not the configured one.",
        remedy="Send the bridge's hook token; `python manage.py install_hooks` writes a "
               "producer that has it."),
    ErrorCode("HOOK_INVALID_PAYLOAD", status=400, severity="info",
        message="The hook event does not match its schema.",
        remedy="Correct the fields that `validation_errors` names."),
    ErrorCode("HOOK_INVALID_EVENT_TYPE", status=400, severity="info",
        message="`event` is not one of the nine hook events.",
        remedy="Send one of the events that `validation_errors` names."),
    ErrorCode("HOOK_INVALID_TIMESTAMP", status=400, severity="info",
        message="`timestamp` is not an ISO 8601 date and time.",
        remedy="Send UTC, for example 2026-01-31T12:00:00Z."),
    ErrorCode("HOOK_STALE_TIMESTAMP", status=400, severity="info",
        message="`timestamp` is more than 5 minutes from the server's time.",
        remedy="Set the clock, or send the event with the server's `timestamp` and its own time "
               "in `occurred_at`."),
    ErrorCode("HOOK_INVALID_SESSION_ID", status=400, severity="info",
        message="`session_id` is not a usable, non-empty string.",
        remedy="Send the agent's own session id."),
    ErrorCode("HOOK_VALIDATION_FAILED", severity="info",
        never_sent="the rule that was violated has a code, such as `HOOK_INVALID_PAYLOAD`",
        message="The hook event failed validation.",
        remedy="Correct the fields that `errors` names."),
    ErrorCode("VALIDATION_ERROR", status=400, recoverable=True, severity="info",
        message="The request does not match what this endpoint takes.",
        remedy="See the endpoint in the OpenAPI document at /api/v1/schema."),
    ErrorCode("PAYLOAD_VALIDATION_ERROR", status=400, severity="info",
        message="A payload field of a hook event is wrong.",
        remedy="Correct the field."),
    ErrorCode("SESSION_NOT_FOUND", status=404, recoverable=False, severity="info",
        message="No session has this id.",
        remedy="List the sessions, or start one."),
    ErrorCode("SESSION_CLOSED", status=409, severity="info",
        message="The session is closed.",
        remedy="Start a new session."),
    ErrorCode("RATE_LIMIT_EXCEEDED", status=429,
        message="Too many requests.",
        remedy="Wait for `retry_after` seconds."),
    ErrorCode("INTERNAL_ERROR", status=500, severity="error",
        message="The bridge failed unexpectedly.",
        remedy="Look for the `request_id` in the bridge's log."),
    ErrorCode("WS_UPGRADE_REQUIRED", status=400, severity="info",
        message="This address takes only WebSocket upgrades.",
        remedy="Connect a WebSocket client to `websocket_url`."),
    ErrorCode("NOT_FOUND", status=404, severity="info",
        message="There is nothing at this address.",
        remedy="See the OpenAPI document at /api/v1/schema."),
    ErrorCode("METHOD_NOT_ALLOWED", status=405, severity="info",
        message="This address does not take this method.",
        remedy="See the `Allow` header."),
    ErrorCode("PAYLOAD_TOO_LARGE", status=413, close=1009, before_close="error", recoverable=False,
        passes=True,
        message="The body or message is larger than the bridge takes.",
        remedy="Send less at once; the limit is `max_message_size_mb` in /info."),
    ErrorCode("UNSUPPORTED_MEDIA_TYPE", status=415, severity="info",
        message="The body is not JSON.",
        remedy="Send `Content-Type: application/json`."),
    ErrorCode("STORAGE_UNAVAILABLE", status=503, close=4503, recoverable=True,
        severity="critical", passes=True,
        message="The database cannot be used now; nothing was stored.",
        remedy="Send it again after `Retry-After` seconds; `python manage.py doctor` says what "
               "is wrong."),
    ErrorCode("ORIGIN_NOT_ALLOWED", status=403,
        message="A page of this origin may not connect.",
        remedy="Add the origin to BRIDGE_ALLOWED_ORIGINS if it is yours."),
    ErrorCode("HOST_NOT_ALLOWED", status=400,
        message="The bridge does not answer under this host name.",
        remedy="Use the bridge's own address, or set BRIDGE_PUBLIC_URL."),
    # -- files -------------------------------------------------------------------------------------
    ErrorCode("FILE_INVALID_PATH", status=400, recoverable=True, severity="info",
        message="The path is missing or not valid.",
        remedy="Send a path inside an allowed root."),
    ErrorCode("FILE_ACCESS_DENIED", status=403, recoverable=True,
        message="The bridge does not open this path.",
        remedy="Ask for a path inside BRIDGE_ALLOWED_ROOTS that the bridge may read."),
    ErrorCode("FILE_NOT_FOUND", status=404, recoverable=True, severity="info",
        message="There is no such file or directory.",
        remedy="List the directory first."),
    ErrorCode("FILE_TOO_LARGE", status=413, recoverable=True, severity="info",
        message="The file is larger than one message may be.",
        remedy="Read it in parts with `offset` and `limit`."),
    # -- connection_error --------------------------------------------------------------------------
    ErrorCode("AUTH_FAILED", close=4401, recoverable=False,
        message="The token is invalid, expired, revoked or bound to another device.",
        remedy="Pair this device again."),
    ErrorCode("INSECURE_TRANSPORT", status=403, close=4403, recoverable=False,
        message="The connection is not encrypted.",
        remedy="Connect with https:// or wss://."),
    ErrorCode("MISCONFIGURED", close=4403, recoverable=False,
        message="The bridge is set up in a way that is not safe.",
        remedy="Set BRIDGE_PUBLIC_URL to an https address."),
    ErrorCode("VERSION_INCOMPATIBLE", close=4426, recoverable=False,
        message="The client's version does not work with this bridge.",
        remedy="Update the client or the bridge."),
    ErrorCode("CONN_TIMEOUT", close=4408, recoverable=True, severity="info", passes=True,
        message="Nothing was heard from the client in time.",
        remedy="Connect again."),
    ErrorCode("CONN_TLS_HANDSHAKE_FAILED", recoverable=False, never_sent=BY_A_CLIENT,
        message="The client could not verify the certificate.",
        remedy="Compare the pin; pair again after the bridge's data directory was replaced."),
    ErrorCode("CONN_WEBSOCKET_CLOSED", recoverable=True, never_sent=BY_A_CLIENT,
        message="The client saw the WebSocket close.",
        remedy="Connect again."),
    ErrorCode("CONN_REPLACED", close=4409, before_close="error", recoverable=False, severity="info",
        message="A newer connection of this device took over.",
        remedy="Use the newer connection."),
    ErrorCode("CONN_SLOW", close=4413, recoverable=True,
        never_sent="a client that takes no bytes cannot read it; the close code 4413 says it",
        message="The client took no bytes for 30 seconds.",
        remedy="Connect again; what was not received is sent again."),
    ErrorCode("RATE_LIMITED", close=4429, recoverable=True, passes=True,
        message="Too many messages, connections or failed attempts.",
        remedy="Wait, then try again more slowly."),
    # -- error, WebSocket --------------------------------------------------------------------------
    ErrorCode("PROTO_INVALID_MESSAGE", recoverable=True, severity="info",
        message="The message does not match the protocol.",
        remedy="Correct the fields that `violations` names."),
    ErrorCode("PROTO_SEQUENCE_ERROR", recoverable=True, severity="info",
        message="The message came in the wrong phase.",
        remedy="Follow the order in `details.expected`."),
    ErrorCode("SESS_NOT_FOUND", recoverable=False, severity="info",
        message="No session has this id.",
        remedy="Start it with `resume` false."),
    ErrorCode("SESS_CLOSED", recoverable=False, severity="info",
        message="The session is closed.",
        remedy="Start a new session, or resume it where it is `resumable`."),
    ErrorCode("SESS_NOT_RESUMABLE", recoverable=False, severity="info",
        message="The session cannot be resumed.",
        remedy="Start a new session."),
    ErrorCode("SESS_LIMIT_REACHED", recoverable=True, severity="info",
        message="No more sessions can run at once.",
        remedy="End a session, then try again."),
    ErrorCode("SESS_NOT_ACTIVE", status=409, recoverable=True, severity="info",
        message="The session's agent is not running: it is paused, or it failed.",
        remedy="Resume it: `session_start` with its id and `resume` true."),
    ErrorCode("AGENT_ERROR", recoverable=True, severity="error", notified=True,
        message="The agent failed.",
        remedy="Try again."),
    ErrorCode("AGENT_UNAVAILABLE", recoverable=True, severity="info",
        message="This agent cannot be started here.",
        remedy="Choose one of `supported_agents`."),
    ErrorCode("TOOL_ERROR", recoverable=True, severity="info",
        never_sent="a tool that failed is a `tool_error`, which says how: "
                   "`TOOL_EXECUTION_FAILED` or `TOOL_TIMEOUT`",
        message="The tool failed.",
        remedy="Change the parameters and try again."),
    ErrorCode("TOOL_EXECUTION_FAILED", recoverable=True, severity="info",
        message="The tool failed.",
        remedy="See `details`."),
    ErrorCode("TOOL_TIMEOUT", recoverable=True,
        message="The tool took too long.",
        remedy="Try again with less work."),
    ErrorCode("TOOL_CALL_NOT_FOUND", recoverable=False, severity="info",
        message="No tool call of this session has this id.",
        remedy="Use the `tool_call_id` of an `approval_required`."),
    ErrorCode("TOOL_ALREADY_DECIDED", recoverable=False, severity="info",
        message="Somebody has decided this tool call already.",
        remedy="See `details.decision`."),
    ErrorCode("PUSH_ENDPOINT_REFUSED", recoverable=True,
        message="The bridge sends nothing to this address.",
        remedy="Only the push services of browsers are sent to; BRIDGE_PUSH_HOSTS adds others."),
    ErrorCode("GIT_ERROR", recoverable=True, severity="info",
        message="Git refused.",
        remedy="Read the message; it is git's own."),
    ErrorCode("BRIDGE_ERROR", recoverable=True, severity="error", passes=True,
        message="The bridge failed unexpectedly.",
        remedy="Try again; the bridge's log has the `id` of the message."),
    ErrorCode("CIRCUIT_OPEN", recoverable=True, severity="critical",
        message="The agent failed to start several times; the bridge waits a minute.",
        remedy="Try again in a minute."),
    ErrorCode("SYS_INTERNAL_ERROR", recoverable=True, severity="error", never_sent=BY_A_CLIENT,
        message="The client failed.",
        remedy="Restart the client."),
]
# fmt: on

ERRORS: Mapping[str, ErrorCode] = {row.code: row for row in _TABLE}

# The spec's retry policy for tools: kind of failure → how often to retry (SPEC WebSocket errors).
TOOL_RETRIES: Mapping[str, int] = {
    "network_timeout": 3,
    "rate_limited": 3,
    "out_of_memory": 1,
    "file_not_found": 0,
    "permission_denied": 0,
}


class BridgeError(Exception):
    """Report a failure to the client: a row of the table, and its details.

    `fields` are added to the body (HTTP) or the payload (WebSocket), `headers` to an HTTP answer.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        self.row = ERRORS[code]
        self.code = code
        self.message = message or self.row.message
        self.headers = dict(headers or {})
        self.fields = fields
        super().__init__(f"{code}: {self.message}")


class Ignoring:
    """Suppress a BridgeError with one of these codes, for a `with`."""

    def __init__(self, *codes: str) -> None:
        self.codes = codes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, BridgeError) and error.code in self.codes


def documentation_path(code: str) -> str:
    return f"/docs/errors/{code}"
