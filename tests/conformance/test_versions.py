"""Versions (spec, Versioning 3; D21, D44)."""

from __future__ import annotations

import json

import pytest

from tests.conformance.bridge import Bridge

pytestmark = pytest.mark.spec("versioning.compatible")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("1.1.9", "CLIENT_TOO_OLD"),
        ("0.99.99", "CLIENT_TOO_OLD"),
        ("1.10.1", "CLIENT_TOO_NEW"),
        ("10.0.0", "CLIENT_TOO_NEW"),
    ],
)
@pytest.mark.spec("connerror.VERSION_INCOMPATIBLE")
def test_incompatible(public: Bridge, version: str, reason: str) -> None:
    """Below the minimum 1.2.0 or above the maximum 1.10.0, compared as numbers: connection_error
    VERSION_INCOMPATIBLE with the reason, close 4426.
    """
    phone = public.phone()
    phone.connect()
    answer = phone.auth(client_version=version)
    assert (
        answer["type"] == "connection_error" and answer["payload"]["code"] == "VERSION_INCOMPATIBLE"
    ), answer
    assert reason in json.dumps(answer["payload"])
    assert phone.wait_closed() == 4426


@pytest.mark.parametrize("version", ["1.2.0", "1.9.9", "1.10.0"])
def test_compatible(public: Bridge, version: str) -> None:
    """At the bounds and between them, compared as numbers (1.9.9 is below 1.10.0)."""
    phone = public.phone()
    phone.connect()
    assert phone.auth(client_version=version)["type"] == "connection_ack"
    phone.close()


@pytest.mark.parametrize("version", ["banana", "", "1.2.3.4"])
def test_no_version(shared: Bridge, version: str) -> None:
    """Spec: major.minor.patch; anything else is not taken for one."""
    phone = shared.phone()
    phone.connect()
    answer = phone.auth(client_version=version)
    assert answer["payload"]["code"] in ("PROTO_INVALID_MESSAGE", "VERSION_INCOMPATIBLE"), answer
    phone.close()


def test_default_bounds(shared: Bridge) -> None:
    """D44: 1.0.0 to 1.999.999."""
    for version, type_ in (
        ("1.0.0", "connection_ack"),
        ("1.999.999", "connection_ack"),
        ("0.9.9", "connection_error"),
        ("2.0.0", "connection_error"),
    ):
        phone = shared.phone()
        phone.connect()
        assert phone.auth(client_version=version)["type"] == type_, version
        phone.close()


def test_a_refused_version_claims_nothing(public: Bridge) -> None:
    """D15, D21: a client of a wrong version is turned away before it can use the token up: the
    right one may still bind it.
    """
    pairing = public.pairing()
    old = public.phone(pairing, device_id="old-app", client_version="0.1.0")
    old.connect()
    assert old.auth()["payload"]["code"] == "VERSION_INCOMPATIBLE"
    assert old.wait_closed() == 4426
    new = public.phone(pairing, device_id="new-app", client_version="1.5.0")
    new.connect()
    assert new.auth()["type"] == "connection_ack"
    new.close()
