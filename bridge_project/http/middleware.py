"""Give each Django request an id and its client; check its host; rewrite errors."""

import re
from collections.abc import Callable
from typing import Final

import structlog
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from bridge_project.http import errors
from bridge_project.http.request import request_id_of, scope_of, transport_of
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.network.own_names import host_allowed, own_names

GetResponse = Callable[[HttpRequest], HttpResponseBase]

# Nothing inline, no `unsafe-eval`: static/bridge/admin.js replaces inline scripts.
ADMIN_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
# Characters that change the order of text: a person reads an agent's text before allowing a call.
_TURNS_TEXT: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
API_PREFIXES: Final = ("/api/", "/hooks/")


class RequestMiddleware:
    """Give each request its id and client, and each error the body of D9.

    It is the outermost middleware. It is synchronous, so that Django runs the whole chain in one
    thread instead of changing threads at each middleware.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        carrier = transport_of(request)
        request.META["REMOTE_ADDR"] = carrier.client
        # a proxy's word counts, so that CSRF compares the right origin
        scope_of(request)["scheme"] = "https" if carrier.secure else "http"
        # ends with the request, which runs in a context of its own (see `Threads.run`)
        structlog.contextvars.bind_contextvars(request_id=request_id_of(request))
        response = self._answer(request)
        response["X-Request-ID"] = request_id_of(request)
        if request.path.startswith(API_PREFIXES):
            response.headers.setdefault("Cache-Control", "no-store")
        elif request.path.startswith(errors.ADMIN_SITE):
            response["Content-Security-Policy"] = ADMIN_POLICY
            if isinstance(response, HttpResponse) and not response.streaming:
                text = response.content.decode(response.charset)
                response.content = _TURNS_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)
        return response

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        if (refusal := _refusal(request)) is not None:
            return errors.error_response(request, refusal)
        response = self.get_response(request)
        if not errors.is_foreign(response):
            return response
        # with its own headers (`Allow`, CORS)
        headers = {k: v for k, v in response.items() if not k.lower().startswith("content-")}
        error = BridgeError(errors.code_of(response.status_code), headers=headers)
        answer = errors.error_response(request, error, status=response.status_code)
        # not close(): that tells Django that the request is over
        answer._resource_closers += response._resource_closers  # type: ignore[attr-defined]
        return answer

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer what a plain Django view raised; None leaves it to Django."""
        error = errors.as_bridge_error(exception)
        return None if error is None else errors.error_response(request, error)


def _refusal(request: HttpRequest) -> BridgeError | None:
    """Return why a request is refused before it is read: its size or its host (D18)."""
    scope = scope_of(request)
    if scope.get("bridge.body") == "awaited" and not request.path.startswith(API_PREFIXES):
        return BridgeError("PAYLOAD_TOO_LARGE", errors.NO_LARGE_BODY)
    if request.path.startswith(errors.ADMIN_SITE):
        # browsers send forms with their length, so one of unknown length is none
        length = int(request.META.get("CONTENT_LENGTH") or "0")
        if "HTTP_TRANSFER_ENCODING" in request.META or length > limits.ADMIN_FORM_BYTES:
            return BridgeError("PAYLOAD_TOO_LARGE", "This form is too large.")
    if host := request.META.get("HTTP_HOST", ""):  # no browser leaves it out
        if not host_allowed(own_names(scope), host):
            return BridgeError("HOST_NOT_ALLOWED")
        request.checked_host = host  # type: ignore[attr-defined]
    return None
