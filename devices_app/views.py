"""Pages without a token: pairing and the certificate authority for phones (D19, D43), and the
log-in of the admin site.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from functools import cache
from pathlib import Path

import structlog
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.csrf import csrf_exempt

from bridge_project.http import ratelimit
from bridge_project.http.request import client_address
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.network import certificates

log = structlog.get_logger("bridge.http")

SAFE_METHODS = ("GET", "HEAD")

_password_check = threading.Lock()  # a check takes a core for a third of a second
_password_queue = threading.BoundedSemaphore(1 + limits.PASSWORDS_WAITING)


@csrf_exempt
def pair(request: HttpRequest) -> HttpResponse:
    """``/pair``: reads the link's fragment in the browser, clears it, and shows address, token and
    pin for copying.

    The page is whole in itself and asks for nothing else; its policy names its one script and its
    one style by their hashes and forbids the rest.
    """
    _only_safe(request)
    page, policy = _pair_page()
    response = HttpResponse(page)
    response["Content-Security-Policy"] = policy
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Content-Type-Options"] = "nosniff"
    return response


@csrf_exempt
def ca_certificate(request: HttpRequest) -> HttpResponse:
    """``/ca.crt``: the bridge's own authority as PEM, for phones that should trust it; 404 with a
    given certificate.
    """
    _only_safe(request)
    path = _ca_path()
    if path is None:
        raise BridgeError(
            "NOT_FOUND",
            "The bridge uses a certificate that was given to it, so it has no authority of its own.",
        )
    response = HttpResponse(path.read_bytes(), content_type="application/x-x509-ca-cert")
    response["Content-Disposition"] = 'attachment; filename="bridge-ca.crt"'
    response["Cache-Control"] = "no-cache"
    return response


def admin_log_in(request: HttpRequest) -> HttpResponse:
    """``/admin/login/``: Django's page, but a try is counted before its password is checked (D16).

    Raises BridgeError RATE_LIMIT_EXCEEDED after too many tries of an address in a minute, and while
    enough other passwords wait to be checked.
    """
    if request.method != "POST":
        return admin.site.login(request)
    client = client_address(request)
    ratelimit.check("admin.login", None, client)
    if not _password_queue.acquire(blocking=False):
        raise ratelimit.too_many("Too many log-ins at once.", 1)
    try:
        with _password_check:
            response = admin.site.login(request)
    finally:
        _password_queue.release()
    if response.status_code == 200:  # the form again; who is let in is sent on
        # not the name: some type their password there
        log.warning("admin_log_in_failed", client=client)
    return response


def _only_safe(request: HttpRequest) -> None:
    if request.method not in SAFE_METHODS:
        raise BridgeError("METHOD_NOT_ALLOWED", headers={"Allow": ", ".join(SAFE_METHODS)})


@cache
def _pair_page() -> tuple[str, str]:
    """The page and its Content-Security-Policy, which belong together."""
    script, style = (render_to_string(f"devices_app/pair.{kind}").strip() for kind in ("js", "css"))
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data:",  # the empty icon, so that the browser does not ask for one
        "form-action": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    page = render_to_string("devices_app/pair.html", {"script": script, "style": style})
    return page, "; ".join(f"{directive} {source}" for directive, source in policy.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _ca_path() -> Path | None:
    """Where the authority's certificate is; the file itself may be renewed while the bridge
    runs.
    """
    return certificates.ensure(conf).ca
