"""What hook requests are answered: an accepted event, and D8's one body for everything that can be
wrong with one.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from bridge_project.http.errors import error_response
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.hooks import HookInvalid, HookViolation
from bridge_project.protocol.types import now_text
from hooks_app.intake.store import Receipt


def ingestion_result(receipt: Receipt) -> dict[str, Any]:
    """The body of an accepted event's 200."""
    return {
        "received": True,
        "event_id": receipt.event_id,
        "broadcast_count": receipt.broadcast_count,
        "timestamp": now_text(),
    }


def violation_body(violation: HookViolation) -> dict[str, str]:
    return {
        "field": violation.field,
        "message": violation.message,
        "code": violation.code,
        "rule": violation.rule,
    }


def validation_failure(request: HttpRequest, invalid: HookInvalid) -> HttpResponse:
    """400 in all three forms that the spec shows, at once."""
    first = invalid.violations[0]
    error = BridgeError(
        invalid.code,
        first.message,
        received=False,
        details={"field": first.field, "constraint": first.constraint},
        validation_errors=[violation_body(violation) for violation in invalid.violations],
        errors=[
            {"field": violation.field, "message": violation.message}
            for violation in invalid.violations
        ],
    )
    return error_response(request, error, status=400)
