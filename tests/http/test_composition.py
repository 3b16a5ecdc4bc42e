"""An upgrade while the database is away (D46), which no kill of a real one meets for certain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError

from bridge_project.composition.upgrade import UpgradeCheck
from bridge_project.network.transport import ConnectionMode, Transport
from devices_app import tokens


# the thread that asks may have a connection already, which is looked at first
@pytest.mark.django_db(transaction=True)
async def test_an_upgrade_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """D46: 503 STORAGE_UNAVAILABLE with Retry-After, as everywhere."""

    async def never(*_: Any) -> None:
        raise AssertionError("the upgrade was let through")

    def away(bearer: str) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(tokens, "identify", away)
    local = Transport(
        secure=True,
        client="127.0.0.1",
        mode=ConnectionMode.LOCAL_ONLY,
        via_proxy=False,
        base_url="https://127.0.0.1:8443",
    )
    headers = [(b"host", b"localhost:8443"), (b"authorization", b"Bearer " + b"x" * 40)]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/api/v1/ws",
        "server": ["127.0.0.1", 8443],
        "headers": headers,
        "bridge": local,
        "extensions": {"websocket.http.response": {}},
    }
    await UpgradeCheck(never)(scope, connecting, send)
    start, answer = sent
    assert start["status"] == 503 and dict(start["headers"])[b"retry-after"] == b"5"
    assert json.loads(answer["body"])["code"] == "STORAGE_UNAVAILABLE"


async def connecting() -> dict[str, Any]:
    return {"type": "websocket.connect"}
