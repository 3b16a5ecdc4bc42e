"""HTTP's edges inside Django: request ids, host names, and the one place where a failure becomes an
HTTP answer (D9).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog
from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.request import UnreadablePostError
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from rest_framework import exceptions as drf

from bridge_project.http.error_body import error_body, log_error
from bridge_project.http.error_body import request_id as sane_request_id
from bridge_project.http.json import JSON_TYPE
from bridge_project.kernel import limits
from bridge_project.kernel.config import ConfError, conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.network import certificates, interfaces, transport
from bridge_project.network.transport import ConnectionMode, Transport
from bridge_project.protocol import jsontext

log = structlog.get_logger("bridge.http")

GetResponse = Callable[[HttpRequest], HttpResponseBase]

ADMIN_SITE: Final = "/admin/"  # Django's own pages; the API's is /api/v1/admin/
API_PREFIXES: Final = ("/api/", "/hooks/")
NO_LARGE_BODY: Final = "Only hook events and messages to a session may have a body this large."
# how long the machine's names are remembered: an interface may come up while the bridge runs
NAMES_SECONDS: Final = 30

# -- what a request is -----------------------------------------------------------------------------


def transport_of(request: HttpRequest) -> Transport:
    """The connection that carries a request, as ``asgi`` resolved it; without a server (Django's
    test clients) a local one.
    """
    found = getattr(request, "scope", {}).get("bridge")
    if found is not None:
        return cast(Transport, found)
    return Transport(
        secure=True,
        client=request.META.get("REMOTE_ADDR", "127.0.0.1"),
        mode=ConnectionMode.LOCAL_ONLY,
        via_proxy=False,
        base_url=transport.base_url(conf),
    )


def client_address(request: HttpRequest) -> str:
    """Whom limits count: ``RequestMiddleware`` has put it there."""
    return str(request.META.get("REMOTE_ADDR", ""))


def request_id_of(request: HttpRequest) -> str:
    """The request's id (D9), made on first use where no middleware has run."""
    found = getattr(request, "request_id", None)
    if found is None:
        found = sane_request_id(request.META.get("HTTP_X_REQUEST_ID"))
        request.request_id = found  # type: ignore[attr-defined]
    return cast(str, found)


def base_url(request: HttpRequest) -> str:
    """The address under which this client reaches the bridge, without a path: BRIDGE_PUBLIC_URL,
    else the checked ``Host``, else the socket's own.
    """
    if conf.bridge_public_url:
        return conf.bridge_public_url
    host = getattr(request, "checked_host", "")
    return f"https://{host}" if host else transport_of(request).base_url


# -- middleware ------------------------------------------------------------------------------------


class RequestMiddleware:
    """Outermost: gives a request its id, its client's address and its scheme, and lets no error
    leave without the six fields (D9).

    Only synchronous, so that Django runs the whole chain in one thread instead of changing threads
    at each middleware.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        take_transport(request)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id_of(request))
        try:
            if _has_large_body_for_a_page(request):
                too_large = BridgeError("PAYLOAD_TOO_LARGE", NO_LARGE_BODY)
                response: HttpResponseBase = error_response(request, too_large)
            else:
                response = self._refuse_large_form(request) or self.get_response(request)
            if _is_foreign_error(response):
                response = _in_our_words(request, response)
        finally:
            structlog.contextvars.clear_contextvars()
        response["X-Request-ID"] = request_id_of(request)
        if request.path.startswith(API_PREFIXES):
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """What a plain Django view raised, and what ``exception_handler`` had no row for; None
        leaves it to ``server_error``.
        """
        error = as_bridge_error(exception)
        return None if error is None else error_response(request, error)

    def _refuse_large_form(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse a body of the admin site that no form has, before CSRF's check parses it.

        A body of unknown length is refused too: browsers send forms with their length.
        """
        length = request.META.get("CONTENT_LENGTH") or "0"
        fits = (
            "HTTP_TRANSFER_ENCODING" not in request.META and int(length) <= limits.ADMIN_FORM_BYTES
        )
        if fits or not request.path.startswith(ADMIN_SITE):
            return None
        return error_response(request, BridgeError("PAYLOAD_TOO_LARGE", "This form is too large."))


def take_transport(request: HttpRequest) -> None:
    scope = getattr(request, "scope", {})
    if "bridge" in scope:
        carrier = transport_of(request)
        request.META["REMOTE_ADDR"] = carrier.client
        # a proxy's word counts, so that CSRF compares the right origin
        scope["scheme"] = "https" if carrier.secure else "http"


def _has_large_body_for_a_page(request: HttpRequest) -> bool:
    """Whether this only asks for a body larger than any page takes; the API's views answer that."""
    awaited = getattr(request, "scope", {}).get("bridge.body") == "awaited"
    return awaited and not request.path.startswith(API_PREFIXES)


def _is_foreign_error(response: HttpResponseBase) -> bool:
    ours = response.get("Content-Type", "").startswith(JSON_TYPE) or hasattr(
        response, "_bridge_error"
    )
    return response.status_code >= 400 and not ours


def _in_our_words(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    """An error that Django or a middleware answered in HTML or not at all, with its own headers
    kept (``Allow``, CORS).
    """
    code = _BY_STATUS.get(
        response.status_code,
        "INTERNAL_ERROR" if response.status_code >= 500 else "VALIDATION_ERROR",
    )
    kept = {
        name: value for name, value in response.items() if not name.lower().startswith("content-")
    }
    answer = error_response(request, BridgeError(code, headers=kept), status=response.status_code)
    answer._resource_closers += response._resource_closers  # type: ignore[attr-defined]  # not close(): that tells Django that the request is over
    return answer


class HostMiddleware:
    """Answers only under the bridge's own names (D18), so that no page can reach it by a name of
    its own (DNS rebinding).

    A request without ``Host`` passes: no browser sends one. Otherwise 400 HOST_NOT_ALLOWED.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        host = request.META.get("HTTP_HOST", "")
        if host:
            if not _is_own(request, host):
                return error_response(request, BridgeError("HOST_NOT_ALLOWED"))
            request.checked_host = host  # type: ignore[attr-defined]
        return self.get_response(request)


def _is_own(request: HttpRequest, host: str) -> bool:
    accepted_on = (getattr(request, "scope", {}).get("server") or ("", None))[0]
    return transport.host_allowed(own_names() | {transport.normalise(str(accepted_on or ""))}, host)


@dataclass(frozen=True, slots=True)
class _Names:
    names: tuple[str, ...]


_own_names: tuple[float, frozenset[str]] = (0.0, frozenset())


def own_names() -> frozenset[str]:
    """The names and addresses that the bridge answers to (D18): its certificate's, its public
    URL's, and those of this machine's interfaces.
    """
    global _own_names
    until, names = _own_names
    if time.monotonic() >= until:
        certified = certificates.wanted_names(conf)
        if conf.bridge_tls_cert:
            try:
                certified += certificates.ensure(conf).names
            except ConfError as error:  # the file is being replaced; the names in use stay
                log.warning("certificate_unreadable", error=str(error))
                certified += tuple(names)
        names = transport.allowed_names(conf, _Names(certified), interfaces.local_addresses())
        _own_names = (time.monotonic() + NAMES_SECONDS, names)
    return names


# -- failures --------------------------------------------------------------------------------------

_BY_STATUS: Final = {
    400: "VALIDATION_ERROR",
    401: "AUTH_INVALID_TOKEN",
    403: "AUTH_INSUFFICIENT_SCOPE",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RATE_LIMIT_EXCEEDED",
    503: "STORAGE_UNAVAILABLE",
}

_BY_EXCEPTION: Final[tuple[tuple[tuple[type[Exception], ...], str], ...]] = (
    ((OperationalError, InterfaceError), "STORAGE_UNAVAILABLE"),
    ((RequestDataTooBig,), "PAYLOAD_TOO_LARGE"),
    ((Http404,), "NOT_FOUND"),
    ((PermissionDenied,), "AUTH_INSUFFICIENT_SCOPE"),
    (
        (SuspiciousOperation, BadRequest, MultiPartParserError, UnreadablePostError),
        "VALIDATION_ERROR",
    ),
)


def as_bridge_error(exception: Exception) -> BridgeError | None:
    """The failure in the table's words; None for what nobody foresaw, which is a 500."""
    if isinstance(exception, BridgeError):
        return exception
    if isinstance(exception, drf.APIException):
        return _from_framework(exception)
    code = next((code for types, code in _BY_EXCEPTION if isinstance(exception, types)), None)
    if code == "STORAGE_UNAVAILABLE":
        log.error(
            "storage_unavailable", error=f"{exception.__class__.__name__}: {exception}".strip()
        )
        return BridgeError(code, headers={"Retry-After": str(limits.STORAGE_RETRY_SECONDS)})
    return None if code is None else BridgeError(code)


def _from_framework(exception: drf.APIException) -> BridgeError | None:
    # DRF turns the status of these two into 403 where a view has no authentication of its own.
    unknown = isinstance(exception, (drf.NotAuthenticated, drf.AuthenticationFailed))
    code = "AUTH_INVALID_TOKEN" if unknown else _BY_STATUS.get(exception.status_code)
    wait = getattr(exception, "wait", None)
    if wait is not None:
        seconds = max(1, round(wait))
        return BridgeError(
            "RATE_LIMIT_EXCEEDED", headers={"Retry-After": str(seconds)}, retry_after=seconds
        )
    return None if code is None else BridgeError(code)


def exception_handler(exception: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's door to ``error_response``; None re-raises, and Django answers 500 by
    ``server_error``.
    """
    error = as_bridge_error(exception)
    return None if error is None else error_response(context["request"]._request, error)


def error_response(
    request: HttpRequest, error: BridgeError, *, status: int | None = None, logged: bool = False
) -> HttpResponse:
    """Answer a failure, and log it (D51) unless it was: the six fields as JSON, or in the admin
    site as a page.

    The error's own fields follow the six; its headers are sent; ``WWW-Authenticate`` with 401 (D9).
    """
    status = status or error.row.status or 500
    fields = dict(error.fields)
    message = error.message if error.message != error.row.message else ""
    body = error_body(
        error.code,
        request_id_of(request),
        base_url=base_url(request),
        message=message,
        status=status,
        **fields,
    )
    if request.path.startswith(ADMIN_SITE):
        page = render_to_string("bridge/admin_error.html", {"title": body["error"], "answer": body})
        response = HttpResponse(page, status=status, headers=error.headers)
    else:
        text = jsontext.dumps(body)
        response = HttpResponse(text, content_type=JSON_TYPE, status=status, headers=error.headers)
    response._bridge_error = error.code  # type: ignore[attr-defined]
    if status == 401:
        response.headers.setdefault("WWW-Authenticate", "Bearer")
    response["X-Request-ID"] = request_id_of(request)
    response._has_been_logged = True  # type: ignore[attr-defined]  # Django would log it again, without the code
    if not logged:
        client = client_address(request)
        path = request.path[:200]
        log_error(error.code, status=status, method=request.method, path=path, client=client)
    return response


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
    return _answer(request, 400)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's ``CSRF_FAILURE_VIEW``: only forms of the admin site come here."""
    message = "The form did not come from this site, or is too old. Allow cookies, load it again, and send it again."
    return error_response(request, BridgeError("AUTH_INSUFFICIENT_SCOPE", message))


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
    return _answer(request, 403)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
    return _answer(request, 404)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Whatever nobody foresaw: logged with its traceback and the request's id, told without the
    traceback. Django calls it while it handles the exception.
    """
    where = {
        "method": request.method,
        "path": request.path[:200],
        "client": client_address(request),
    }
    log.error("failed", code="INTERNAL_ERROR", status=500, exc_info=True, **where)  # noqa: LOG014
    return _answer(request, 500)


def _answer(request: HttpRequest, status: int) -> HttpResponseBase:
    return error_response(
        request,
        BridgeError({500: "INTERNAL_ERROR"}.get(status) or _BY_STATUS[status]),
        status=status,
        logged=status == 500,
    )
