"""The page that a phone opens without a token, as bytes (D19, D43, D55); tests/web has the rest."""

import base64
import hashlib
import re
import time
from functools import partial

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from django.test import Client

from devices_app import views


def test_nothing_is_kept_or_told_and_nothing_but_its_two_parts_runs(client: Client) -> None:
    response = client.get("/pair")
    assert response.status_code == 200 and not response.cookies
    assert response["Content-Type"] == "text/html; charset=utf-8"
    names = ("Cache-Control", "Referrer-Policy", "X-Content-Type-Options")
    assert [response[name] for name in names] == ["no-store", "no-referrer", "nosniff"]
    policy = dict(part.split(" ", 1) for part in response["Content-Security-Policy"].split("; "))
    page = response.content.decode()
    for name in ("default-src", "form-action", "base-uri", "frame-ancestors"):
        assert policy[name] == "'none'"
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    outside = r"""\b(?:src|action)=|\bhref="(?!data:,"|/app/"|/ca\.)|\bon\w+=|style="""
    assert not re.findall(outside, page)


def test_every_system_has_its_steps_without_a_script(client: Client) -> None:
    """With the authority's fingerprint as its certificate has it."""
    page = client.get("/pair").content.decode()
    steps = dict(re.findall(r'<details data-system="(\w+)">(.*?)</details>', page, re.DOTALL))
    assert {name: re.findall('href="(.*?)"', part) for name, part in steps.items()} == {
        "ios": ["/ca.mobileconfig"],
        **{name: ["/ca.crt"] for name in ("android", "mac", "windows", "linux")},
    }
    ca = x509.load_pem_x509_certificate(client.get("/ca.crt").content)
    shown = re.search(r'<output id="fingerprint">([0-9A-F:]{95})</output>', page)
    assert shown and bytes.fromhex(shown[1].replace(":", "")) == ca.fingerprint(hashes.SHA256())


def test_a_name_that_leads_here_only_later(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """D55: avahi may start after the first request; the page offers the name a minute later."""
    now = time.monotonic() + 3600  # long after the look of another test
    for name, at in (("", now), ("desk.local", now + 61)):
        monkeypatch.setattr(views, "local_name", partial(str, name))
        monkeypatch.setattr(time, "monotonic", partial(float, at))
        assert ("desk.local" in client.get("/pair").content.decode()) == bool(name)
