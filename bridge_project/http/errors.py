"""Answer Django's own failures, such as 404, with the bridge's error body (D9)."""

from typing import Any, Final

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from rest_framework import exceptions as drf

from bridge_project.http.error_body import JSON_TYPE, error_answer, log_error
from bridge_project.http.request import base_url, client_address, request_id_of
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError

log = structlog.get_logger("bridge.http")

ADMIN_SITE: Final = "/admin/"  # Django's own pages; the API's is /api/v1/admin/
NO_LARGE_BODY: Final = (
    "Only hook events, and messages and attachments to a session, may have a body this large."
)

_BY_STATUS: Final = {
    401: "AUTH_INVALID_TOKEN",
    403: "AUTH_INSUFFICIENT_SCOPE",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RATE_LIMIT_EXCEEDED",
    503: "STORAGE_UNAVAILABLE",
}


def code_of(status: int) -> str:
    """Return the code for a status that Django or a middleware answered."""
    return _BY_STATUS.get(status, "INTERNAL_ERROR" if status >= 500 else "VALIDATION_ERROR")


def as_bridge_error(exception: Exception) -> BridgeError | None:
    """Return the exception as a BridgeError; None leaves it to Django."""
    if isinstance(exception, BridgeError):
        return exception
    if isinstance(exception, drf.APIException):
        return BridgeError(code_of(exception.status_code))
    if isinstance(exception, STORAGE_ERRORS):
        reason = f"{exception.__class__.__name__}: {exception}".strip()
        log.error("storage_unavailable", error=reason)
        return BridgeError("STORAGE_UNAVAILABLE")
    return None


def exception_handler(exception: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Answer what a view of the API raised; None leaves it to Django."""
    error = as_bridge_error(exception)
    if error is not None and error.code == "AUTH_FAILED":  # what a socket is told
        error = BridgeError("AUTH_INVALID_TOKEN")
    return None if error is None else error_response(context["request"]._request, error)


def error_response(
    request: HttpRequest, error: BridgeError, *, status: int | None = None, exc_info: bool = False
) -> HttpResponse:
    """Answer a failure, as JSON or as a page of the admin site, and log it."""
    answer = error_answer(error, request_id_of(request), base_url(request), status=status)
    body: str | bytes = answer.body
    if request.path.startswith(ADMIN_SITE):
        context = {"title": answer.fields["error"], "answer": answer.fields}
        context |= {"styles": settings.UNFOLD["STYLES"], "scripts": settings.UNFOLD["SCRIPTS"]}
        context["site_favicons"] = [{"rel": "icon", "href": "data:,"}]  # or browsers ask for one
        body = render_to_string("bridge/admin_error.html", context)
        del answer.headers["Content-Type"]
    response = HttpResponse(body, status=answer.status, headers=answer.headers)
    response._bridge_error = error.code  # type: ignore[attr-defined]
    # or Django would log it again, without the code
    response._has_been_logged = True  # type: ignore[attr-defined]
    where = {"method": request.method, "path": request.path[:200]}
    where |= {"client": client_address(request)}
    log_error(error.code, status=answer.status, exc_info=exc_info, **where)
    return response


def is_foreign(response: HttpResponseBase) -> bool:
    """Return whether Django or a middleware made this error answer."""
    ours = hasattr(response, "_bridge_error")
    is_json = response.get("Content-Type", "").startswith(JSON_TYPE)
    return response.status_code >= 400 and not ours and not is_json


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form of the admin site that failed Django's CSRF check."""
    message = (
        "The form did not come from this site, or is too old."
        " Allow cookies, load it again, and send it again."
    )
    return error_response(request, BridgeError("AUTH_INSUFFICIENT_SCOPE", message))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 500 as Django's `handler500`; only the log has the traceback."""
    return error_response(request, BridgeError("INTERNAL_ERROR"), exc_info=True)
