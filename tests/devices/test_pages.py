"""The pages that a phone opens without a token, as bytes: /pair and /ca.crt (D19, D43). What the
browser makes of /pair is in tests/web/test_pair_page.py.
"""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from django.test import Client

from bridge_project.kernel.config import conf
from bridge_project.network import certificates
from devices_app import views

SIX_FIELDS = {"error", "message", "code", "request_id", "timestamp", "documentation_url"}


class TestPair:
    def test_nothing_is_kept_and_nothing_is_told(self, client: Client) -> None:
        response = client.get("/pair")
        assert response.status_code == 200
        assert response["Content-Type"] == "text/html; charset=utf-8"
        assert (
            response["Cache-Control"],
            response["Referrer-Policy"],
            response["X-Content-Type-Options"],
        ) == ("no-store", "no-referrer", "nosniff")
        assert not response.cookies

    def test_the_policy_lets_the_two_parts_of_the_page_and_nothing_else_run(
        self, client: Client
    ) -> None:
        response = client.get("/pair")
        policy = dict(
            part.split(" ", 1) for part in response["Content-Security-Policy"].split("; ")
        )
        page = response.content.decode()
        assert {
            name: policy[name]
            for name in ("default-src", "form-action", "base-uri", "frame-ancestors")
        } == dict.fromkeys(("default-src", "form-action", "base-uri", "frame-ancestors"), "'none'")
        for tag, directive in (("script", "script-src"), ("style", "style-src")):
            (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
            assert (
                policy[directive]
                == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
            )
        assert not re.findall(
            r"""\b(?:src|action)=|\bhref="(?!data:,"|/app/"|/ca\.)|\bon\w+=|style=""", page
        )

    @pytest.mark.parametrize("name", ["b\u00fcro", "x" * 64])
    def test_a_machine_whose_name_is_none(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """D55: no certificate can hold it, or no name server knows it: no other name is offered."""
        monkeypatch.setattr(socket, "gethostname", lambda: name)
        views._pair_page.cache_clear()
        response = client.get("/pair")
        views._pair_page.cache_clear()
        assert response.status_code == 200 and b'data-name=""' in response.content

    def test_every_system_has_its_steps_without_a_script(self, client: Client) -> None:
        """D55, with the authority's fingerprint as its certificate has it."""
        page = client.get("/pair").content.decode()
        steps = dict(re.findall(r'<details data-system="(\w+)">(.*?)</details>', page, re.DOTALL))
        assert {name: re.findall('href="(.*?)"', part) for name, part in steps.items()} == {
            "ios": ["/ca.mobileconfig"],
            **{name: ["/ca.crt"] for name in ("android", "mac", "windows", "linux")},
        }
        ca = x509.load_pem_x509_certificate(client.get("/ca.crt").content)
        shown = re.search(r'<output id="fingerprint">([0-9A-F:]{95})</output>', page)
        assert shown and bytes.fromhex(shown[1].replace(":", "")) == ca.fingerprint(hashes.SHA256())

    @pytest.mark.parametrize("method", ["post", "put", "delete", "options"])
    def test_other_methods(self, method: str, client: Client) -> None:
        response = getattr(Client(enforce_csrf_checks=True), method)("/pair")
        assert response.status_code == 405
        assert response["Allow"] == "GET, HEAD"
        assert response.json()["code"] == "METHOD_NOT_ALLOWED"
        assert response.json().keys() >= SIX_FIELDS


class TestAuthority:
    @pytest.fixture(autouse=True)
    def _forget(self) -> Iterator[None]:
        views._ca_path.cache_clear()
        yield
        views._ca_path.cache_clear()

    def test_it_is_the_one_that_signed_the_leaf(self, client: Client) -> None:
        response = client.get("/ca.crt")
        assert response.status_code == 200
        assert response["Content-Type"] == "application/x-x509-ca-cert"
        leaf = x509.load_pem_x509_certificates(certificates.load_or_renew(conf).chain.read_bytes())[
            0
        ]
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(response.content))
        assert b"PRIVATE" not in response.content
        assert not response.cookies

    def test_none_with_a_given_certificate(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            views,
            "certificates",
            SimpleNamespace(load_or_renew=lambda _conf: SimpleNamespace(ca=None)),
        )
        assert b"ca.crt" not in client.get("/pair").content, "there is nothing to trust"
        response = client.get("/ca.crt")
        assert response.status_code == 404
        assert response.json()["code"] == "NOT_FOUND" and response.json().keys() >= SIX_FIELDS
