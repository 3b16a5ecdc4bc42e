"""Serve pages without a token: pairing, the CA certificate, the admin log-in."""

import base64
import hashlib
import threading
import time
from functools import cache, lru_cache
from pathlib import Path

import structlog
from cryptography import x509
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from bridge_project.http import ratelimit
from bridge_project.http.request import client_address
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import names
from bridge_project.network import certificates
from bridge_project.network.authority import apple_profile, fingerprint
from bridge_project.network.own_names import local_name

LOCAL_NAME_SECONDS = 2.0  # for the first request in a while
LOCAL_NAME_KEPT_SECONDS = 60  # networks come and go, and avahi starts after the bridge

log = structlog.get_logger("bridge.http")

_password_check = threading.Lock()  # a check takes a core for a third of a second
_password_queue = threading.BoundedSemaphore(1 + limits.PASSWORDS_WAITING)


@csrf_exempt
@require_safe
def pair(request: HttpRequest) -> HttpResponse:
    """Show the pairing link's values and the steps to trust the bridge (D43, D55)."""
    ratelimit.check("pair", None, client_address(request))
    path = _ca_path()
    age = int(time.monotonic() // LOCAL_NAME_KEPT_SECONDS)
    page, policy = _pair_page(path.read_bytes() if path is not None else b"", age)
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
    headers["Referrer-Policy"] = "no-referrer"
    return HttpResponse(page, headers=headers)


@csrf_exempt
@require_safe
def ca_certificate(request: HttpRequest) -> HttpResponse:
    """Serve the bridge's own CA certificate as PEM; 404 where it has none (D19)."""
    return _download(_authority(), "application/x-x509-ca-cert", "bridge-ca.crt")


@csrf_exempt
@require_safe
def ca_profile(request: HttpRequest) -> HttpResponse:
    """Serve the CA certificate as a profile for Apple's devices (D55)."""
    profile = apple_profile(x509.load_pem_x509_certificate(_authority()))
    return _download(profile, "application/x-apple-aspen-config", "bridge.mobileconfig")


def _authority() -> bytes:
    path = _ca_path()
    if path is None:
        text = (
            "The bridge uses a certificate that was given to it, so it has no authority of its own."
        )
        raise BridgeError("NOT_FOUND", text)
    return path.read_bytes()


def _download(content: bytes, kind: str, name: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    headers |= {"Content-Type": kind, "Cache-Control": "no-cache"}
    return HttpResponse(content, headers=headers)


def admin_log_in(request: HttpRequest) -> HttpResponse:
    """Log in by Django's page; count each attempt before checking the password (D16).

    Raises BridgeError RATE_LIMIT_EXCEEDED after too many attempts of an address in a minute, and
    while too many other passwords wait to be checked.
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


@lru_cache(maxsize=1)
def _pair_page(authority: bytes, _age: int) -> tuple[str, str]:
    """Render the page and its Content-Security-Policy, which belong together.

    ``authority``: the bridge's own, as PEM; empty without one. Another ``_age``: look anew whether
    this machine's name leads here.
    """
    script, style = (render_to_string(f"devices_app/pair.{kind}").strip() for kind in ("js", "css"))
    # img-src: the empty icon, so that the browser does not ask for one
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:;"
        " form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    try:
        name = names.begin(local_name).result(LOCAL_NAME_SECONDS) or ""
    except TimeoutError:
        name = ""
    shown = fingerprint(x509.load_pem_x509_certificate(authority)) if authority else ""
    context = {"script": script, "style": style, "local_name": name, "fingerprint": shown}
    return render_to_string("devices_app/pair.html", context), policy


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _ca_path() -> Path | None:
    """Return the authority's path; the file may be renewed while the bridge runs."""
    return certificates.load_or_renew(conf).ca
