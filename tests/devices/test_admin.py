"""The devices in the admin site: what is shown, what can be done, and by whom."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from bridge_project.http import ratelimit
from bridge_project.kernel.config import conf
from devices_app import tokens
from devices_app.models import AuditEntry, Device
from tests.devices.conftest import Minted, auth

pytestmark = pytest.mark.django_db

DEVICES = "/admin/devices_app/device/"


PASSWORD = "sphinx-of-black-quartz"


def logged_in(client: Client) -> Client:
    """Through the form, as a person does it."""
    client.get("/admin/login/")
    csrf = {"csrfmiddlewaretoken": client.cookies[settings.CSRF_COOKIE_NAME].value}
    answer = client.post(
        "/admin/login/",
        {"username": "ada", "password": PASSWORD, **csrf},
        secure=True,
        headers={"Referer": "https://testserver/admin/login/"},
    )
    assert settings.SESSION_COOKIE_NAME in client.cookies, answer.content
    return client


@pytest.fixture(autouse=True)
def _unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = conf.model_copy(update={"bridge_rate_limits": "off"})
    monkeypatch.setattr(ratelimit, "conf", unlimited)


@pytest.fixture
def admin() -> Client:
    User.objects.create_superuser("ada", password=PASSWORD)
    return logged_in(Client())


def test_the_index_leads_to_the_web_client(admin: Client) -> None:
    assert b'<a href="/app/"' in admin.get("/admin/", secure=True).content


def test_the_policy_lets_nothing_inline_run(admin: Client) -> None:
    """On every page, also of one who is not signed in, and of an error."""
    for client, path in ((admin, "/admin/"), (Client(), "/admin/login/"), (admin, "/admin/no/")):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "*" not in policy and "http" not in policy


def test_what_nobody_needs_is_not_there(admin: Client) -> None:
    assert admin.get("/admin/auth/group/").status_code == 404
    page = admin.get(f"/admin/auth/user/{User.objects.get().pk}/change/").content.decode()
    assert "ada" in page and "permission" not in page.lower() and "group_" not in page


def test_no_text_turns_another_round(admin: Client, mint: Callable[..., Minted]) -> None:
    mint("safe\u202egnp.exe")
    page = admin.get(DEVICES).content.decode()
    assert "safe\ufffdgnp.exe" in page and "\u202e" not in page


def test_the_list_shows_who_where_and_when(admin: Client, mint: Callable[..., Minted]) -> None:
    _, token, plain = mint("Ada's phone")
    auth(plain, platform="ios", client_version="1.4.0", address="10.0.0.7")
    page = admin.get(DEVICES).content.decode()
    for text in ("Ada&#x27;s phone", "paired", "ios", "1.4.0", "10.0.0.7"):
        assert text in page
    assert token.digest not in page and plain not in page


def test_a_device_shows_its_tokens_but_never_a_digest(
    admin: Client, mint: Callable[..., Minted]
) -> None:
    device, token, plain = mint()
    auth(plain, "binding-1")
    page = admin.get(f"{DEVICES}{device.pk}/change/").content.decode()
    assert "binding-1" in page and f"{DEVICES}{device.pk}/revoke/" in page
    assert token.digest not in page and plain not in page


def test_only_the_name_can_be_changed(admin: Client, mint: Callable[..., Minted]) -> None:
    device, _, _ = mint()
    form = {
        "tokens-TOTAL_FORMS": "0",
        "tokens-INITIAL_FORMS": "0",
        "name": "tablet",
        "platform": "web",
        "revoked_at_0": "2026-01-01",
    }
    assert admin.post(f"{DEVICES}{device.pk}/change/", form).status_code == 302
    device.refresh_from_db()
    assert (device.name, device.platform, device.revoked_at) == ("tablet", "", None)


def test_none_is_added_or_deleted(admin: Client, mint: Callable[..., Minted]) -> None:
    device, _, _ = mint()
    assert admin.get(f"{DEVICES}add/").status_code == 403
    assert admin.post(f"{DEVICES}{device.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Device.objects.count() == 1


class TestRevoke:
    def test_the_button_asks_first(
        self, admin: Client, mint: Callable[..., Minted], revoked: list[Device]
    ) -> None:
        device, _, plain = mint()
        page = admin.get(f"{DEVICES}{device.pk}/revoke/")
        assert page.status_code == 200 and str(device) in page.content.decode()
        assert tokens.identify(plain) is not None and not revoked
        assert admin.post(f"{DEVICES}{device.pk}/revoke/").status_code == 302
        assert tokens.identify(plain) is None and revoked == [device]
        assert LogEntry.objects.get().get_change_message() == "Revoked."
        assert "/revoke/" not in admin.get(f"{DEVICES}{device.pk}/change/").content.decode()

    def test_the_action_asks_first(
        self, admin: Client, mint: Callable[..., Minted], revoked: list[Device]
    ) -> None:
        minted = [mint(name) for name in ("a", "b", "c")]
        form = {
            "action": "revoke_selected",
            "_selected_action": [str(device.pk) for device, _, _ in minted[:2]],
        }
        page = admin.post(DEVICES, form, follow=True)
        assert not revoked
        assert all(str(device) in page.content.decode() for device, _, _ in minted[:2])
        assert admin.post(page.redirect_chain[0][0]).status_code == 302
        assert {device.name for device in revoked} == {"a", "b"}
        assert tokens.identify(minted[2][2]) is not None

    def test_revoked_ones_stay_revoked(
        self, admin: Client, mint: Callable[..., Minted], revoked: list[Device]
    ) -> None:
        device, _, _ = mint()
        admin.post(f"{DEVICES}{device.pk}/revoke/")
        response = admin.post(f"{DEVICES}{device.pk}/revoke/", follow=True)
        assert "revoked already" in response.content.decode()
        assert len(revoked) == 1

    @pytest.mark.parametrize("staff", [False, True])
    def test_not_without_the_right(
        self, staff: bool, mint: Callable[..., Minted], revoked: list[Device]
    ) -> None:
        device, _, _ = mint()
        User.objects.create_user("ada", password=PASSWORD, is_staff=True)
        client = logged_in(Client())
        User.objects.update(is_staff=staff)
        assert client.post(f"{DEVICES}{device.pk}/revoke/").status_code in (302, 403)
        assert not revoked

    def test_not_from_another_page(
        self, mint: Callable[..., Minted], revoked: list[Device]
    ) -> None:
        device, _, _ = mint()
        User.objects.create_superuser("ada", password=PASSWORD)
        client = logged_in(Client(enforce_csrf_checks=True))
        assert client.post(f"{DEVICES}{device.pk}/revoke/").status_code == 403
        assert not revoked

    def test_unknown(self, admin: Client) -> None:
        assert admin.get(f"{DEVICES}999/revoke/").status_code == 404


class TestPairing:
    PAGE = f"{DEVICES}pair/"

    def test_the_code_is_shown_once(self, admin: Client) -> None:
        """As `mint_pairing_qr` makes it; looking at the page makes none."""
        assert b"pair#v=" not in admin.get(self.PAGE).content and not Device.objects.exists()
        answer = admin.post(self.PAGE, {"name": "  Bob\u202e's  "})
        page, device = html.unescape(answer.content.decode()), Device.objects.get()
        assert device.name == "Bob\ufffd's" and "no-store" in answer.headers["Cache-Control"]
        link = re.search(r"https://\S+/pair#v=1&token=(\S+?)&url=(wss://\S+?)&pin=\w{64}", page)
        assert link is not None
        principal = tokens.identify(link[1])
        assert principal is not None and principal.device == device
        assert device.tokens.get().digest not in page
        entry = AuditEntry.objects.get(action="pairing_code")
        assert (entry.actor, entry.who, entry.subject) == ("admin", "ada", str(device))
        assert link[1] not in str(vars(entry))
        asked = f"{DEVICES}pair/{device.pk}/"
        assert asked in page and b"Waiting" in admin.get(asked).content
        auth(link[1], address="10.0.0.7")
        answer = admin.get(asked)
        assert answer.status_code == 286, "nobody asks again"
        assert "is paired, from 10.0.0.7." in answer.content.decode()
        assert link[1] not in admin.get(f"{DEVICES}{device.pk}/change/").content.decode()

    def test_only_for_who_is_signed_in_and_may(self) -> None:
        User.objects.create_user("ada", password=PASSWORD, is_staff=True)
        assert logged_in(Client()).post(self.PAGE).status_code == 403
        assert Client().post(self.PAGE).headers["Location"].startswith("/admin/login/")
        User.objects.update(is_superuser=True)
        careful = logged_in(Client(enforce_csrf_checks=True))
        assert careful.post(self.PAGE).status_code == 403, "not from another page"
        assert not Device.objects.exists()

    def test_not_where_devices_would_refuse_the_address(
        self, admin: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = conf.model_copy(update={"bridge_public_url": "http://bridge.example"})
        monkeypatch.setattr("devices_app.invitation.conf", wrong)
        page = admin.post(self.PAGE).content.decode()
        assert "BRIDGE_PUBLIC_URL is not an https address" in page
        assert not Device.objects.exists()
