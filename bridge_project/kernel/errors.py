"""Define every error code in one table, from which docs/errors.md is generated."""

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
    within: str = ""  # messages that carry it, if not `error`, or `connection_error` before a close
    recoverable: bool | None = None  # in an `error`: the same connection can go on
    severity: Severity = "warning"
    notified: bool = False  # whoever raises it notifies the devices, in words of its own (D51)
    passes: bool = False  # a client that waits and connects again may succeed
    momentary: bool = False  # may be over when the message is repeated: no answer to remember (D31)
    never_sent: str = ""  # why a code of the specification is not sent, in words


BY_A_CLIENT = "what a client reports of itself"

# A row is laid out by hand: what the code means, the remedy, how it is sent.
# fmt: off
_TABLE = [
    # -- HTTP --------------------------------------------------------------------------------------
    ErrorCode("AUTH_INVALID_TOKEN", "The token is missing, malformed, unknown or expired.",
        "Send `Authorization: Bearer <token>`; pair the device again if its token was revoked.",
        status=401),
    ErrorCode("AUTH_INSUFFICIENT_SCOPE", "The token is valid, but not for this.",
        "Use the token of the kind that this endpoint takes: device, hook or admin.", status=403),
    ErrorCode("HOOK_AUTH_FAILED", "The hook token is not the configured one.",
        "Send the token that is in `secrets/hook_token` of the bridge's data directory.",
        status=401),
    ErrorCode("HOOK_INVALID_PAYLOAD", "The hook event does not match its schema.",
        "Correct the fields that `validation_errors` names.", status=400, severity="info"),
    ErrorCode("HOOK_INVALID_EVENT_TYPE", "`event` is not one of the nine hook events.",
        "Send one of the events that `validation_errors` names.", status=400, severity="info"),
    ErrorCode("HOOK_INVALID_TIMESTAMP", "`timestamp` is not an ISO 8601 date and time.",
        "Send UTC, for example 2026-01-31T12:00:00Z.", status=400, severity="info"),
    ErrorCode("HOOK_STALE_TIMESTAMP", "`timestamp` is more than 5 minutes from the server's time.",
        "Set the clock, or send the event with the server's `timestamp` and its own time in "
        "`occurred_at`.", status=400, severity="info"),
    ErrorCode("HOOK_INVALID_SESSION_ID", "`session_id` is not a usable, non-empty string.",
        "Send the agent's own session id.", status=400, severity="info"),
    ErrorCode("HOOK_VALIDATION_FAILED", "The hook event failed validation.",
        "Correct the fields that `errors` names.", severity="info",
        never_sent="the rule that was violated has a code, such as `HOOK_INVALID_PAYLOAD`"),
    ErrorCode("VALIDATION_ERROR", "The request does not match what this endpoint takes.",
        "See the endpoint in the OpenAPI document at /api/v1/schema.",
        status=400, severity="info"),
    ErrorCode("PAYLOAD_VALIDATION_ERROR", "A payload field of a hook event is wrong.",
        "Correct the field.", status=400, severity="info",
        never_sent="only an entry of `validation_errors` has it"),
    ErrorCode("SESSION_NOT_FOUND", "No session has this id.",
        "List the sessions, or start one.", status=404, recoverable=False, severity="info",
        momentary=True),
    ErrorCode("SESSION_CLOSED", "The session is closed.",
        "Start a new session, or resume it where it is `resumable`.", status=409, severity="info"),
    ErrorCode("RATE_LIMIT_EXCEEDED", "Too many requests.",
        "Wait for `retry_after` seconds.", status=429),
    ErrorCode("INTERNAL_ERROR", "The bridge failed unexpectedly.",
        "Look for the `request_id` in the bridge's log.", status=500, severity="error"),
    ErrorCode("WS_UPGRADE_REQUIRED", "This address takes only WebSocket upgrades.",
        "Connect a WebSocket client to `websocket_url`.", status=400, severity="info"),
    ErrorCode("NOT_FOUND", "There is nothing at this address.",
        "See the OpenAPI document at /api/v1/schema.", status=404, severity="info"),
    ErrorCode("METHOD_NOT_ALLOWED", "This address does not take this method.",
        "See the `Allow` header.", status=405, severity="info"),
    ErrorCode("PAYLOAD_TOO_LARGE", "The body or message is larger than the bridge takes.",
        "Send less at once; the limit is `max_message_size_mb` in /info.",
        status=413, close=1009, within="`error`", recoverable=False, passes=True),
    ErrorCode("UNSUPPORTED_MEDIA_TYPE", "The body is not sent as JSON.",
        "Send `Content-Type: application/json`.", status=415, severity="info"),
    ErrorCode("STORAGE_UNAVAILABLE", "The database cannot be used now; nothing was stored.",
        "Send it again after `Retry-After` seconds; the command `doctor` says what is wrong.",
        status=503, close=4503, within="`error`, or `connection_error`", recoverable=True,
        severity="critical", passes=True, momentary=True),
    ErrorCode("ORIGIN_NOT_ALLOWED", "A page of this origin may not connect.",
        "Add the origin to BRIDGE_ALLOWED_ORIGINS if it is yours.", status=403),
    ErrorCode("HOST_NOT_ALLOWED", "The bridge does not answer under this host name.",
        "Use the bridge's own address, or set BRIDGE_PUBLIC_URL.", status=400),
    # -- files -------------------------------------------------------------------------------------
    ErrorCode("FILE_INVALID_PATH", "The path is missing or not valid.",
        "Send a path inside an allowed root.", status=400, recoverable=True, severity="info"),
    ErrorCode("FILE_ACCESS_DENIED", "The bridge does not open this path.",
        "Ask for a path inside BRIDGE_ALLOWED_ROOTS that the bridge may read.",
        status=403, recoverable=True),
    ErrorCode("FILE_NOT_FOUND", "There is no such file or directory.",
        "List the directory first.", status=404, recoverable=True, severity="info"),
    ErrorCode("FILE_UNAVAILABLE", "The file system of this path does not answer.",
        "Look at the mount on the bridge's machine; other directories can be used meanwhile.",
        status=503, recoverable=True, momentary=True),
    ErrorCode("FILE_TOO_LARGE", "The file is larger than one message may be.",
        "Read it in parts: `file_read` with `offset` and `limit`, over the WebSocket. What is not "
        "UTF-8 text comes whole or not at all.",
        status=413, recoverable=True, severity="info"),
    # -- connection_error --------------------------------------------------------------------------
    ErrorCode("AUTH_FAILED", "This device is not paired: it was revoked, or its code ran out.",
        "Pair this device again.", close=4401, recoverable=False),
    ErrorCode("INSECURE_TRANSPORT", "The connection is not encrypted.",
        "Connect with https:// or wss://.", status=403, close=4403, recoverable=False),
    ErrorCode("MISCONFIGURED", "The bridge is set up in a way that is not safe.",
        "Set BRIDGE_PUBLIC_URL to an https address.", close=4403, recoverable=False),
    ErrorCode("VERSION_INCOMPATIBLE", "The client's version does not work with this bridge.",
        "Update the client or the bridge.", close=4426, recoverable=False),
    ErrorCode("CONN_TIMEOUT", "Nothing was heard from the client in time.",
        "Connect again.", close=4408, recoverable=True, severity="info", passes=True),
    ErrorCode("CONN_TLS_HANDSHAKE_FAILED", "The client could not verify the certificate.",
        "Compare the pin; pair again after the bridge's data directory was replaced.",
        recoverable=False, never_sent=BY_A_CLIENT),
    ErrorCode("CONN_WEBSOCKET_CLOSED", "The client saw the WebSocket close.",
        "Connect again.", recoverable=True, never_sent=BY_A_CLIENT),
    ErrorCode("CONN_REPLACED", "A newer connection of this device took over.",
        "Use the newer connection.",
        close=4409, within="`error`", recoverable=False, severity="info"),
    ErrorCode("CONN_SLOW", "The client took no bytes for 30 seconds.",
        "Connect again; what was not received is sent again.",
        close=4413, recoverable=True,
        never_sent="a client that takes no bytes cannot read it; the close code 4413 says it"),
    ErrorCode("RATE_LIMITED", "Too many messages, connections or failed attempts.",
        "Wait, then try again more slowly.",
        close=4429, within="`error`, or `connection_error`", recoverable=True, passes=True,
        momentary=True),
    # -- error, WebSocket --------------------------------------------------------------------------
    ErrorCode("PROTO_INVALID_MESSAGE", "The message does not match the protocol.",
        "Correct the fields that `violations` names.", recoverable=True, severity="info"),
    ErrorCode("PROTO_SEQUENCE_ERROR", "The message came in the wrong phase.",
        "Follow the order in `details.expected`.", recoverable=True, severity="info",
        momentary=True),
    ErrorCode("SESS_NOT_FOUND", "No session has this id.",
        "Start it with `resume` false.", recoverable=False, severity="info"),
    ErrorCode("SESS_CLOSED", "The session is closed.",
        "Start a new session, or resume it where it is `resumable`.",
        recoverable=False, severity="info", momentary=True),
    ErrorCode("SESS_NOT_RESUMABLE", "The session cannot be resumed.",
        "Start a new session.", recoverable=False, severity="info"),
    ErrorCode("SESS_AT_THE_DESK", "A program at the machine runs this session.",
        "See `details.status`: end the program there, or wait until it is idle.",
        recoverable=True, severity="info", momentary=True),
    ErrorCode("SESS_LIMIT_REACHED", "No more sessions can run at once.",
        "End a session, then try again.", recoverable=True, severity="info", momentary=True),
    ErrorCode("SESS_NOT_ACTIVE", "The session's agent is not running: it is paused, or it failed.",
        "Resume it: `session_start` with its id and `resume` true.",
        recoverable=True, severity="info", momentary=True),
    ErrorCode("AGENT_ERROR", "The agent failed.",
        "Try again.", recoverable=True, severity="error", notified=True),
    ErrorCode("AGENT_UNAVAILABLE", "This agent cannot be started here.",
        "Choose one of `supported_agents`. An observed session is answered at its machine.",
        recoverable=True, severity="info", momentary=True),
    ErrorCode("TOOL_ERROR", "The tool failed.",
        "Change the parameters and try again.",
        recoverable=True, severity="info",
        never_sent="a tool that failed is a `tool_error`, which says how: "
                   "`TOOL_EXECUTION_FAILED` or `TOOL_TIMEOUT`"),
    ErrorCode("TOOL_EXECUTION_FAILED", "The tool failed.",
        "See `details`.", within="`tool_error`", recoverable=True, severity="info"),
    ErrorCode("TOOL_TIMEOUT", "The tool took too long.",
        "Try again with less work.", within="`tool_error`", recoverable=True),
    ErrorCode("TOOL_CALL_NOT_FOUND", "No tool call of this session has this id.",
        "Use the `tool_call_id` of an `approval_required`.", recoverable=False, severity="info",
        momentary=True),
    ErrorCode("TOOL_ALREADY_DECIDED", "Somebody has decided this tool call already.",
        "See `details.decision`.", recoverable=False, severity="info"),
    ErrorCode("PUSH_ENDPOINT_REFUSED", "The bridge sends nothing to this address.",
        "Use a browser's own push service, or name the host in BRIDGE_PUSH_HOSTS.",
        status=403, recoverable=True),
    ErrorCode("PUSH_ENDPOINT_GONE", "The push service knows this address no more.",
        "Let the browser unsubscribe, subscribe anew, and send what it has then.",
        status=410, recoverable=True, severity="info", momentary=True),
    ErrorCode("GIT_ERROR", "Git refused.",
        "Read the message; it says why.", recoverable=True, severity="info", momentary=True),
    ErrorCode("GIT_TRUST_REQUIRED", "The repository brings programs that would run.",
        "See `details.programs`; repeat the request with `trust`: `details.digest`, to let these "
        "run in this repository from now on.", recoverable=True, severity="info", momentary=True),
    ErrorCode("BRIDGE_ERROR", "The bridge failed unexpectedly.",
        "Try again; the bridge's log has the `id` of the message.",
        recoverable=True, severity="error", passes=True, momentary=True),
    ErrorCode("CIRCUIT_OPEN", "The agent failed several times in a row; the bridge waits a minute.",
        "Try again in a minute.", recoverable=True, severity="critical", momentary=True),
    ErrorCode("SYS_INTERNAL_ERROR", "The client failed.",
        "Restart the client.", recoverable=True, severity="error", never_sent=BY_A_CLIENT),
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
    """Report a failure to the client; `fields` are added to the body or payload."""

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


def invalid_message(message: str, field: str, constraint: str, received: str) -> BridgeError:
    """Make the error for a field that breaks a rule its model cannot check."""
    violation = {"field": f"payload.{field}", "constraint": constraint, "received": received}
    return BridgeError("PROTO_INVALID_MESSAGE", message, violations=[violation])


class Ignoring:
    """Suppress a BridgeError with one of these codes, for a `with`."""

    def __init__(self, *codes: str) -> None:
        self.codes = codes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, BridgeError) and error.code in self.codes
