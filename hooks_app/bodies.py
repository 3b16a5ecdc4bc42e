"""D8's one answer for everything that can be wrong with a hook event."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from bridge_project.errors import BridgeError
from bridge_project.protocol.parse import HookInvalid, HookViolation
from bridge_project.rest import error_response


def violation_body(violation: HookViolation) -> dict[str, str]:
    return {"field": violation.field, "message": violation.message, "code": violation.code, "rule": violation.rule}


def validation_failure(request: HttpRequest, invalid: HookInvalid) -> HttpResponse:
    """400 in all three forms that the spec shows, at once."""
    first = invalid.violations[0]
    error = BridgeError(
        invalid.code,
        first.message,
        received=False,
        details={"field": first.field, "constraint": first.constraint},
        validation_errors=[violation_body(violation) for violation in invalid.violations],
        errors=[{"field": violation.field, "message": violation.message} for violation in invalid.violations],
    )
    return error_response(request, error, status=400)
