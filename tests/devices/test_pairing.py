"""The life of a token: races, refusals, what is remembered (D15, D24); conformance has more."""

import hashlib
import hmac
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from devices_app import pairing, tokens
from devices_app.models import AuditEntry, Device
from tests.devices.conftest import auth, mint

pytestmark = pytest.mark.django_db


def refused(plain: str) -> str:
    with pytest.raises(BridgeError) as caught:
        auth(plain)
    assert caught.value.code == "AUTH_FAILED"
    return caught.value.message


@pytest.mark.django_db(transaction=True)
def test_of_simultaneous_first_auths_exactly_one_binds() -> None:
    _, token, plain = mint()
    ids = ["id-1", "id-2", None, "id-3", "id-4"]
    start = threading.Barrier(len(ids))

    def try_it(device_id: str | None) -> str | None:
        start.wait(180)
        try:
            auth(plain, device_id)
        except BridgeError as error:
            return error.code
        finally:
            connection.close()
        return None

    with ThreadPoolExecutor(len(ids)) as threads:
        outcomes = dict(zip(ids, threads.map(try_it, ids), strict=True))
    token.refresh_from_db()
    outcomes.pop(None)  # without an id: let in before one is bound, refused after it
    assert outcomes.pop(token.client_device_id) is None
    assert set(outcomes.values()) == {"AUTH_FAILED"}
    assert AuditEntry.objects.filter(action="pairing").count() == 1


def test_all_reasons_of_a_refusal_but_the_binding_sound_alike() -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        void = mint()[2]
        clock.shift(timedelta(minutes=10))
        device, token, revoked = mint()
        pairing.revoke(device)
        expired = mint(lifetime=timedelta(minutes=1))[2]
        auth(expired)
        clock.shift(timedelta(minutes=1))
        others = (conf.secret("hook_token"), conf.secret("admin_token"), token.digest, "", "\ud800")
        assert len({refused(text) for text in (void, revoked, expired, *others)}) == 1


def test_a_token_is_compared_as_a_hash_and_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D15, which nothing from outside could tell."""
    _, token, plain = mint()
    compare = Mock(wraps=hmac.compare_digest)
    monkeypatch.setattr("devices_app.tokens.hmac", SimpleNamespace(compare_digest=compare))
    assert tokens.identify(plain) is not None
    secrets = [conf.secret(name) for name in ("hook_token", "admin_token")]
    hashes = [hashlib.sha256(secret.encode()).hexdigest() for secret in secrets]
    (_, first), (_, second), (third, _) = (call.args for call in compare.call_args_list[:3])
    assert [first, second, third] == [*hashes, token.digest]


def test_one_that_is_revoked_while_it_is_first_used_over_http_pairs_nobody() -> None:
    device, _, plain = mint()
    found = tokens.identify(plain)
    assert found is not None
    pairing.revoke(device)
    with pytest.raises(BridgeError, match="AUTH_INVALID_TOKEN"):
        pairing.record_token_use(found, address="127.0.0.1")
    device.refresh_from_db()
    assert device.paired_at is None


def test_an_acknowledged_warning_holds_for_eight_hours() -> None:
    """D24."""
    device, _, _ = mint()
    with time_machine.travel(timezone.now(), tick=False) as clock:
        assert not pairing.warning_acknowledged(device)
        pairing.acknowledge_warning(device)
        clock.shift(timedelta(hours=8, seconds=-1))
        assert pairing.warning_acknowledged(Device.objects.get(pk=device.pk))
        clock.shift(timedelta(seconds=1))
        assert not pairing.warning_acknowledged(device)
