"""The life of a token over HTTP and WebSocket: races, refusals, what is remembered (D15, D24, D43).

What a client sees of binding, voiding and revoking is in tests/conformance/test_devices_pairing.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction
from django.utils import timezone

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from devices_app import pairing, signals, tokens
from devices_app.models import Device
from tests.devices.conftest import Minted, auth

pytestmark = pytest.mark.django_db

Signals = list[dict[str, Any]]


def use(plain: str, address: str = "192.168.1.7") -> None:
    found = tokens.identify(plain)
    assert found is not None
    pairing.record_token_use(found, address=address)


def refused(plain: str, device_id: str | None = "id-1") -> str:
    with pytest.raises(BridgeError) as caught:
        auth(plain, device_id)
    assert caught.value.code == "AUTH_FAILED"
    return caught.value.message


class TestBinding:
    def test_where_it_came_from_is_known_when_it_is_announced(
        self, mint: Callable[..., Minted]
    ) -> None:
        seen: list[str] = []

        def receive(device: Device, **kwargs: Any) -> None:
            seen.append(device.last_address)

        signals.device_paired.connect(receive)
        try:
            auth(mint()[2], address="10.0.0.1")
            use(mint()[2], "10.0.0.2")
        finally:
            signals.device_paired.disconnect(receive)
        assert seen == ["10.0.0.1", "10.0.0.2"]

    def test_a_failing_listener_undoes_the_claim(
        self, mint: Callable[..., Minted], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, token, plain = mint()

        def fail(**kwargs: Any) -> None:
            raise RuntimeError("the log cannot be written")

        monkeypatch.setattr(signals.device_paired, "send", fail)
        with pytest.raises(RuntimeError), transaction.atomic():
            auth(plain, "id-1")
        token.refresh_from_db()
        assert token.used_at is None and token.client_device_id is None


@pytest.mark.django_db(transaction=True)
def test_of_simultaneous_first_auths_exactly_one_binds(
    mint: Callable[..., Minted], paired: Signals
) -> None:
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
    assert sum(seen["first"] for seen in paired) == 1


class TestRefusal:
    def test_all_reasons_but_the_binding_sound_alike(self, mint: Callable[..., Minted]) -> None:
        with time_machine.travel(timezone.now(), tick=False) as clock:
            _, _, void = mint()
            clock.shift(timedelta(minutes=10))
            device, _, revoked = mint()
            pairing.revoke(device)
            _, _, expired = mint(lifetime=timedelta(minutes=1))
            auth(expired)
            clock.shift(timedelta(minutes=1))
            others = (
                conf.secret("hook_token"),
                conf.secret("admin_token"),
                "unknown",
                "",
                "\ud800",
            )
            assert len({refused(text) for text in (void, revoked, expired, *others)}) == 1

    def test_revoked_between_identify_and_use(
        self, mint: Callable[..., Minted], paired: Signals
    ) -> None:
        device, _, plain = mint()
        found = tokens.identify(plain)
        assert found is not None
        pairing.revoke(device)
        with pytest.raises(BridgeError, match="AUTH_INVALID_TOKEN"):
            pairing.record_token_use(found, address="127.0.0.1")
        assert not paired


class TestAnotherToken:
    """``--device``: a paired device gets a new token and stays the device that it is (D43)."""

    def test_first_use_over_http_ends_the_old_one_too(self, mint: Callable[..., Minted]) -> None:
        device, _, old = mint()
        use(old)
        _, _, new = mint(device=device)
        use(new)
        assert tokens.identify(old) is None and tokens.identify(new) is not None

    def test_one_that_is_never_used_changes_nothing(self, mint: Callable[..., Minted]) -> None:
        device, _, old = mint()
        auth(old, "id-1")
        with time_machine.travel(timezone.now(), tick=False) as clock:
            _, _, new = mint(device=device)
            clock.shift(timedelta(minutes=10))
            refused(new)
            assert auth(old, "id-1") == device


class TestSeen:
    def test_what_no_column_takes_is_cut(self, mint: Callable[..., Minted]) -> None:
        device, _, _ = mint()
        pairing.touch(device, "10.0.0.1", "p" * 40, "1.0.0-\x00\ud800" + "v" * 80)
        device.refresh_from_db()
        assert device.platform == "p" * 16
        assert len(device.client_version) == 64 and "\x00" not in device.client_version


class TestWarning:
    def test_it_holds_for_eight_hours(self, mint: Callable[..., Minted]) -> None:
        with time_machine.travel(timezone.now(), tick=False) as clock:
            device, _, _ = mint()
            assert not pairing.warning_acknowledged(device)
            pairing.acknowledge_warning(device)
            clock.shift(timedelta(hours=8, seconds=-1))
            assert pairing.warning_acknowledged(Device.objects.get(pk=device.pk))
            clock.shift(timedelta(seconds=1))
            assert not pairing.warning_acknowledged(device)


class TestState:
    def test_of_a_device(self, mint: Callable[..., Minted]) -> None:
        with time_machine.travel(timezone.now(), tick=False) as clock:
            void, waiting_soon_paired, expired = (
                mint()[0],
                mint(ttl=timedelta(hours=1)),
                mint(lifetime=timedelta(minutes=10)),
            )
            auth(expired[2])
            clock.shift(timedelta(minutes=10))
            assert pairing.state(waiting_soon_paired[0]) == "waiting"
            auth(waiting_soon_paired[2])
            assert [
                pairing.state(device) for device in (void, waiting_soon_paired[0], expired[0])
            ] == ["void", "paired", "expired"]
            pairing.revoke(void)
            assert pairing.state(void) == "revoked"
