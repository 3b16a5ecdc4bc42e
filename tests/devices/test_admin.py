"""The devices in the admin site, what can be done there and by whom; the audit trail."""

import html
import re
from functools import partial

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client

from devices_app import audit, tokens
from devices_app.models import AuditEntry, Device
from tests.devices.conftest import auth, mint

pytestmark = pytest.mark.django_db

DEVICES = "/admin/devices_app/device/"
PAIR = f"{DEVICES}pair/"


def test_the_policy_lets_nothing_inline_run(admin_client: Client) -> None:
    """On every page, also of one who is not signed in, and of an error."""
    for client, path in (
        (admin_client, "/admin/"),
        (Client(), "/admin/login/"),
        (admin_client, "/admin/no/"),
    ):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "*" not in policy and "http" not in policy


def test_a_device_is_shown_but_no_digest_and_no_text_turned_round(admin_client: Client) -> None:
    device, token, plain = mint("Ada's \u202egnp.exe")
    auth(plain, "binding-1", platform="ios", client_version="1.4.0", address="10.0.0.7")
    shown = admin_client.get(DEVICES).content.decode()
    for text in ("Ada&#x27;s \ufffdgnp.exe", "paired", "ios", "1.4.0", "10.0.0.7"):
        assert text in shown
    page = admin_client.get(f"{DEVICES}{device.pk}/change/").content.decode()
    assert "binding-1" in page and f"{DEVICES}{device.pk}/revoke/" in page
    assert not [text for text in (token.digest, plain, "\u202e") if text in shown + page]


def test_only_the_name_can_be_changed_and_none_is_added_or_deleted(admin_client: Client) -> None:
    device, _, _ = mint()
    form = {"tokens-TOTAL_FORMS": "0", "tokens-INITIAL_FORMS": "0", "name": "tablet"}
    form |= {"platform": "web", "revoked_at_0": "2026-01-01"}
    assert admin_client.post(f"{DEVICES}{device.pk}/change/", form).status_code == 302
    device.refresh_from_db()
    assert (device.name, device.platform, device.revoked_at) == ("tablet", "", None)
    assert admin_client.get(f"{DEVICES}add/").status_code == 403
    assert admin_client.post(f"{DEVICES}{device.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Device.objects.count() == 1


def test_the_button_that_revokes_asks_first(admin_client: Client) -> None:
    device, _, plain = mint()
    revoke, change = f"{DEVICES}{device.pk}/revoke/", f"{DEVICES}{device.pk}/change/"
    assert str(device) in admin_client.get(revoke).content.decode()
    assert tokens.identify(plain) is not None
    assert admin_client.post(revoke).status_code == 302
    assert tokens.identify(plain) is None
    assert "/revoke/" not in admin_client.get(change).content.decode()
    assert "revoked already" in admin_client.post(revoke, follow=True).content.decode()
    assert LogEntry.objects.get().get_change_message() == "Revoked."
    assert AuditEntry.objects.filter(action="revoke").count() == 1


def test_revoking_and_pairing_need_a_log_in_and_the_own_page(admin_user: User) -> None:
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(admin_user)
    for path in (f"{DEVICES}{mint()[0].pk}/revoke/", PAIR):
        assert Client().post(path).headers["Location"].startswith("/admin/login/")
        assert careful.post(path).status_code == 403
    assert Device.objects.get().revoked_at is None


def test_the_code_is_shown_once(admin_client: Client) -> None:
    """As `mint_pairing_qr` makes it; looking at the page makes none."""
    assert b"pair#v=" not in admin_client.get(PAIR).content and not Device.objects.exists()
    answer = admin_client.post(PAIR, {"name": "  Bob\u202e's  "})
    page, device = html.unescape(answer.content.decode()), Device.objects.get()
    assert device.name == "Bob\ufffd's" and "no-store" in answer.headers["Cache-Control"]
    link = re.search(r"https://\S+/pair#v=1&token=(\S+?)&url=(wss://\S+?)&pin=\w{64}", page)
    assert link is not None
    principal = tokens.identify(link[1])
    assert principal is not None and principal.device == device
    assert device.tokens.get().digest not in page
    entry = AuditEntry.objects.get(action="pairing_code")
    assert (entry.actor, entry.who, entry.subject) == ("admin", "admin", str(device))
    assert link[1] not in str(vars(entry))
    asked = f"{PAIR}{device.pk}/"
    assert asked in page and b"Waiting" in admin_client.get(asked).content
    auth(link[1], address="10.0.0.7")
    answer = admin_client.get(asked)
    assert answer.status_code == 286, "nobody asks again"
    assert "is paired, from 10.0.0.7." in answer.content.decode()
    assert link[1] not in admin_client.get(f"{DEVICES}{device.pk}/change/").content.decode()


def test_nothing_changes_deletes_or_replaces_an_entry() -> None:
    audit.record("commit", actor=AuditEntry.Actor.TERMINAL, who="Ada", subject="abc")
    entries, entry = AuditEntry.objects, AuditEntry.objects.get()
    entry.who = "Mallory"
    by_many = (
        partial(entries.bulk_update, [entry], ["who"]),
        partial(entries.bulk_create, [entry]),
    )
    change_all = partial(entries.update, who="Mallory")
    for change in (entry.save, entry.delete, entries.all().delete, change_all, *by_many):
        with pytest.raises(TypeError, match="never changed or deleted"):
            change()
    with pytest.raises(IntegrityError), transaction.atomic():
        AuditEntry(pk=entry.pk, action="commit", actor="terminal", who="Mallory").save()
    assert entries.get().who == "Ada"
