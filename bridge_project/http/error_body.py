"""The six-field error body of D9, for whoever answers an HTTP request: the server's edge and the
REST framework.
"""

from __future__ import annotations

import logging
import re
import uuid
from http import HTTPStatus
from typing import Any

import structlog

from bridge_project.kernel import failure_alerts, metrics
from bridge_project.kernel.errors import ERRORS, documentation_path
from bridge_project.protocol.types import now_text

log = structlog.get_logger("bridge.http")

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:\-]{1,128}")  # safe in a header, a log line and a page


def error_body(
    code: str,
    request_id: str,
    *,
    base_url: str,
    message: str = "",
    status: int | None = None,
    timestamp: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """The body of an HTTP error (SPEC HTTP error body, D9): ``error`` is the status's phrase,
    ``documentation_url`` is absolute.

    ``code`` is a row of the error table (KeyError otherwise), ``base_url`` an address without a
    path (``transport.base_url``), ``fields`` are added after the six. ``status`` is needed only
    where the row has none or another one is sent.
    """
    row = ERRORS[code]
    # here, because every error answer is written here, the edge's included
    metrics.http_errors.labels(code).inc()
    failure_alerts.report(code, request_id)
    return {
        "error": HTTPStatus(status or row.status or 500).phrase,
        "message": message or row.message,
        "code": code,
        "request_id": request_id,
        "timestamp": timestamp or now_text(),
        "documentation_url": base_url + documentation_path(code),
    } | fields


def log_error(code: str, **where: Any) -> None:
    """Log an error answer at its code's severity; ``where``: its status, method, path, client.

    A refusal with a ``client`` is logged once a minute for each client and code, then counted
    (``logs.HoldBack``).
    """
    level = logging.getLevelNamesMapping()[ERRORS[code].severity.upper()]
    log.log(level, "refused" if level < logging.ERROR else "failed", code=code, **where)


def request_id(given: str | None) -> str:
    """The client's ``X-Request-ID`` when it is sane (1 to 128 of letters, digits and ``._:-``),
    else a fresh UUID (D9).
    """
    return given if given is not None and _SANE_REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
