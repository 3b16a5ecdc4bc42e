"""Versions (spec, Versioning 3; D21, D44)."""

from __future__ import annotations

import json

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone

pytestmark = pytest.mark.spec("versioning.compatible")


def answer(bridge: Bridge, version: str) -> tuple[Message, Phone]:
    phone = bridge.phone().connect()
    return phone.auth(client_version=version), phone


@pytest.mark.spec("connerror.VERSION_INCOMPATIBLE")
def test_bounds(public: Bridge, shared: Bridge) -> None:
    """Compared as numbers; by default (D44) 1.0.0 to 1.999.999. What is no version is none."""
    for bridge, version, reason in (
        (public, "1.1.9", "CLIENT_TOO_OLD"),
        (public, "0.99.99", "CLIENT_TOO_OLD"),
        (public, "1.10.1", "CLIENT_TOO_NEW"),
        (public, "10.0.0", "CLIENT_TOO_NEW"),
        (shared, "0.9.9", "CLIENT_TOO_OLD"),
        (shared, "2.0.0", "CLIENT_TOO_NEW"),
    ):
        refused, phone = answer(bridge, version)
        assert refused["type"] == "connection_error", version
        assert refused["payload"]["code"] == "VERSION_INCOMPATIBLE", version
        assert reason in json.dumps(refused["payload"])
        assert phone.wait_closed() == 4426
    right = {public: ("1.2.0", "1.9.9", "1.10.0"), shared: ("1.0.0", "1.999.999")}
    for bridge, versions in right.items():
        for version in versions:
            taken, phone = answer(bridge, version)
            assert taken["type"] == "connection_ack", version
            phone.close()
    for version in ("banana", "", "1.2.3.4", "v1.2.3", "-1.2.3", "1.2.3-", "1.2.3\n", "１.2.3"):
        wrong, phone = answer(shared, version)
        assert wrong["payload"]["code"] in ("PROTO_INVALID_MESSAGE", "VERSION_INCOMPATIBLE"), wrong
        phone.close()


def test_a_refused_version_claims_nothing(public: Bridge) -> None:
    """D15: the right version may still bind the token."""
    pairing = public.pairing()
    old = public.phone(pairing, device_id="old-app", client_version="0.1.0").connect()
    assert old.auth()["payload"]["code"] == "VERSION_INCOMPATIBLE"
    assert old.wait_closed() == 4426
    new = public.phone(pairing, device_id="new-app", client_version="1.5.0").connect()
    assert new.auth()["type"] == "connection_ack"
    new.close()
