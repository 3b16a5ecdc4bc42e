"""Make the bodies of errors; log and count them, alert devices to severe ones."""

import logging
import re
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import structlog

from bridge_project.kernel import database, failure_alerts, limits, metrics
from bridge_project.kernel.errors import ERRORS, BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.server_messages import ConnectionError_, Error_
from bridge_project.protocol.types import now_text

log = structlog.get_logger("bridge.http")

JSON_TYPE: Final = "application/json"

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")  # safe in a header, a log line and a page


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """Hold an HTTP error; `fields` are those of its JSON body."""

    status: int
    headers: dict[str, str]
    fields: dict[str, Any]

    @property
    def body(self) -> bytes:
        return jsontext.dumps(self.fields).encode()


def error_answer(
    error: BridgeError, request_id: str, base_url: str, *, status: int | None = None
) -> ErrorAnswer:
    """Make an HTTP error, count it, and alert devices if it is severe (D9).

    `base_url` has no path; `status` replaces the row's.
    """
    metrics.http_errors.labels(error.code).inc()
    failure_alerts.report(error.code, request_id)
    status = status or error.row.status or 500
    headers = {"Content-Type": JSON_TYPE, "X-Request-ID": request_id, **error.headers}
    if status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    if error.code == "STORAGE_UNAVAILABLE":
        database.refused.set()
        headers.setdefault("Retry-After", str(limits.STORAGE_RETRY_SECONDS))
    fields = {
        "error": HTTPStatus(status).phrase,
        "message": error.message,
        "code": error.code,
        "request_id": request_id,
        "timestamp": now_text(),
        "documentation_url": _documentation_url(error, base_url),
        **error.fields,
    }
    return ErrorAnswer(status, headers, fields)


def error_payload(
    error: BridgeError, session_id: str | None = None, *, reference: str = ""
) -> Error_:
    """Make a failure's `error` message, and count it; `reference`: its key in the log."""
    _count_on_socket(error, reference)
    return Error_(
        code=error.code,
        message=error.message,
        session_id=error.fields.get("session_id", session_id),
        recoverable=error.row.recoverable is not False,
        violations=error.fields.get("violations"),
        details=error.fields.get("details"),
    )


def connection_error_payload(error: BridgeError, base_url: str) -> ConnectionError_:
    """Make the `connection_error` message of a failure, and count it."""
    _count_on_socket(error)
    return ConnectionError_(
        code=error.code,
        message=error.message,
        documentation_url=_documentation_url(error, base_url),
        remediation=error.row.remedy,
        details=error.fields.get("details"),
    )


def _documentation_url(error: BridgeError, base_url: str) -> str:
    return f"{base_url}/docs/errors/{error.code}"


def _count_on_socket(error: BridgeError, reference: str = "") -> None:
    metrics.socket_errors.labels(error.code).inc()
    failure_alerts.report(error.code, reference, error.fields.get("session_id"))


def log_error(code: str, **where: Any) -> None:
    """Log an error at its code's severity; those with a `client` are rate-limited."""
    level = logging.getLevelNamesMapping()[ERRORS[code].severity.upper()]
    log.log(level, "refused" if level < logging.ERROR else "failed", code=code, **where)


def request_id(given: str | None) -> str:
    """Return the client's `X-Request-ID` when it is sane, else a fresh UUID (D9)."""
    return given if given is not None and _SANE_REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
