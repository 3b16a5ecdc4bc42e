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


@pytest.fixture
def admin() -> Client:
    return logged_in(User.objects.create_superuser("ada"))


def logged_in(user: User, *, careful: bool = False) -> Client:
    client = Client(enforce_csrf_checks=careful)
    client.force_login(user)
    return client


def test_the_policy_lets_nothing_inline_run(admin: Client) -> None:
    """On every page, also of one who is not signed in, and of an error."""
    for client, path in ((admin, "/admin/"), (Client(), "/admin/login/"), (admin, "/admin/no/")):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "*" not in policy and "http" not in policy


def test_a_device_is_shown_but_no_digest_and_no_text_turned_round(admin: Client) -> None:
    device, token, plain = mint("Ada's \u202egnp.exe")
    auth(plain, "binding-1", platform="ios", client_version="1.4.0", address="10.0.0.7")
    shown = admin.get(DEVICES).content.decode()
    for text in ("Ada&#x27;s \ufffdgnp.exe", "paired", "ios", "1.4.0", "10.0.0.7"):
        assert text in shown
    page = admin.get(f"{DEVICES}{device.pk}/change/").content.decode()
    assert "binding-1" in page and f"{DEVICES}{device.pk}/revoke/" in page
    assert not [text for text in (token.digest, plain, "\u202e") if text in shown + page]


def test_only_the_name_can_be_changed_and_none_is_added_or_deleted(admin: Client) -> None:
    device, _, _ = mint()
    form = {"tokens-TOTAL_FORMS": "0", "tokens-INITIAL_FORMS": "0", "name": "tablet"}
    form |= {"platform": "web", "revoked_at_0": "2026-01-01"}
    assert admin.post(f"{DEVICES}{device.pk}/change/", form).status_code == 302
    device.refresh_from_db()
    assert (device.name, device.platform, device.revoked_at) == ("tablet", "", None)
    assert admin.get(f"{DEVICES}add/").status_code == 403
    assert admin.post(f"{DEVICES}{device.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Device.objects.count() == 1


def test_the_button_that_revokes_asks_first(admin: Client) -> None:
    device, _, plain = mint()
    revoke, change = f"{DEVICES}{device.pk}/revoke/", f"{DEVICES}{device.pk}/change/"
    assert str(device) in admin.get(revoke).content.decode()
    assert tokens.identify(plain) is not None
    assert admin.post(revoke).status_code == 302
    assert tokens.identify(plain) is None
    assert "/revoke/" not in admin.get(change).content.decode()
    assert "revoked already" in admin.post(revoke, follow=True).content.decode()
    assert LogEntry.objects.get().get_change_message() == "Revoked."
    assert AuditEntry.objects.filter(action="revoke").count() == 1


def test_the_action_that_revokes_asks_first(admin: Client) -> None:
    devices = [mint(name)[0] for name in ("a", "b", "c")]
    chosen = [str(device.pk) for device in devices[:2]]
    form = {"action": "revoke_selected", "_selected_action": chosen}
    page = admin.post(DEVICES, form, follow=True)
    assert not Device.objects.exclude(revoked_at=None).exists()
    assert all(str(device) in page.content.decode() for device in devices[:2])
    assert admin.post(page.redirect_chain[0][0]).status_code == 302
    assert [device.name for device in Device.objects.filter(revoked_at=None)] == ["c"]


def test_revoking_and_pairing_need_the_right_and_the_own_page() -> None:
    revoke = f"{DEVICES}{mint()[0].pk}/revoke/"
    user = User.objects.create_user("ada", is_staff=True)
    assert Client().post(PAIR).headers["Location"].startswith("/admin/login/")
    client = logged_in(user)
    assert [client.post(path).status_code for path in (revoke, PAIR)] == [403, 403]
    User.objects.update(is_superuser=True)
    careful = logged_in(user, careful=True)
    assert [careful.post(path).status_code for path in (revoke, PAIR)] == [403, 403]
    User.objects.filter(pk=user.pk).update(is_superuser=False, is_staff=False)
    assert client.post(revoke).status_code in (302, 403)
    assert Device.objects.get().revoked_at is None


def test_the_code_is_shown_once(admin: Client) -> None:
    """As `mint_pairing_qr` makes it; looking at the page makes none."""
    assert b"pair#v=" not in admin.get(PAIR).content and not Device.objects.exists()
    answer = admin.post(PAIR, {"name": "  Bob\u202e's  "})
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
    asked = f"{PAIR}{device.pk}/"
    assert asked in page and b"Waiting" in admin.get(asked).content
    auth(link[1], address="10.0.0.7")
    answer = admin.get(asked)
    assert answer.status_code == 286, "nobody asks again"
    assert "is paired, from 10.0.0.7." in answer.content.decode()
    assert link[1] not in admin.get(f"{DEVICES}{device.pk}/change/").content.decode()


# -- the audit trail is append only ---------------------------------------------------------------


def test_nothing_changes_deletes_or_replaces_an_entry() -> None:
    audit.record("commit", actor=AuditEntry.Actor.TERMINAL, who="Ada", subject="abc")
    entries, entry = AuditEntry.objects, AuditEntry.objects.get()
    entry.who = "Mallory"
    for change in (
        entry.save,
        entry.delete,
        entries.all().delete,
        partial(entries.update, who="Mallory"),
        partial(entries.bulk_update, [entry], ["who"]),
        partial(entries.bulk_create, [entry]),
    ):
        with pytest.raises(TypeError, match="never changed or deleted"):
            change()
    with pytest.raises(IntegrityError), transaction.atomic():
        AuditEntry(pk=entry.pk, action="commit", actor="terminal", who="Mallory").save()
    assert entries.get().who == "Ada"


def test_an_entry_outlives_its_device() -> None:
    device, _, _ = mint("Ada's phone")
    audit.record("decision", device=device)
    number = device.pk
    Device.objects.all().delete()
    entry = AuditEntry.objects.get(action="decision")
    assert (entry.who, entry.device_number) == ("Ada's phone", number)
