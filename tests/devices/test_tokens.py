"""Tokens: their form, their hash, whose they are (SPEC Authentication; D14, D15)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from django.utils import timezone

from bridge_project.kernel.config import conf
from devices_app import tokens
from devices_app.models import Token
from tests.devices.conftest import Minted


@pytest.mark.parametrize(
    "header", ["Bearer abc", "bearer abc", "BEARER abc", "Bearer  abc", " Bearer abc "]
)
def test_a_well_formed_header_holds_a_token(header: str) -> None:
    assert tokens.bearer_of(header) == "abc"


@pytest.mark.django_db
class TestIdentify:
    def test_whose_a_token_is(self, mint: Callable[..., Minted]) -> None:
        """Limits count by `rate_key`, which tells nothing of the token."""
        hook, admin = (
            tokens.identify(conf.secret("hook_token")),
            tokens.identify(conf.secret("admin_token")),
        )
        assert hook == tokens.Principal("hook") and hook.rate_key == "hook"
        assert admin == tokens.Principal("admin") and admin.rate_key == "admin"
        device, token, plain = mint()
        found = tokens.identify(plain)
        assert found is not None and (found.kind, found.device, found.token) == (
            "device",
            device,
            token,
        )
        assert found.rate_key == f"device:{device.pk}"

    @pytest.mark.parametrize(
        "text", ["", "x", "bridge_device_", "bridge_device_" + "A" * 43, "\ud800", "ä"]
    )
    def test_an_unknown_token_is_nobody(self, text: str, mint: Callable[..., Minted]) -> None:
        mint()
        assert tokens.identify(text) is None

    def test_the_hash_is_no_token(self, mint: Callable[..., Minted]) -> None:
        _, token, _ = mint()
        assert tokens.identify(token.digest) is None

    def test_every_comparison_is_in_constant_time(
        self, mint: Callable[..., Minted], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D15, which nothing from outside could tell."""
        _, token, plain = mint()
        compared: list[tuple[str, str]] = []

        def compare(a: str, b: str) -> bool:
            compared.append((a, b))
            return hmac.compare_digest(a, b)

        monkeypatch.setattr("devices_app.tokens.hmac", SimpleNamespace(compare_digest=compare))
        assert tokens.identify(plain) is not None
        secrets = [
            hashlib.sha256(conf.secret(name).encode()).hexdigest()
            for name in ("hook_token", "admin_token")
        ]
        assert [known for _, known in compared[:2]] == secrets
        assert compared[2][0] == token.digest

    def test_a_revoked_token_of_a_living_device(self, mint: Callable[..., Minted]) -> None:
        device, token, plain = mint()
        Token.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
        assert tokens.identify(plain) is None
        device.refresh_from_db()
        assert device.revoked_at is None
