"""The whole chain of middlewares as the server runs it, and CORS as the specification shows it
(SPEC Limits; D44).
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from django.db import OperationalError

from bridge_project.composition.upgrade import UpgradeCheck
from bridge_project.http.request_threads import Handler
from bridge_project.kernel.config import conf
from bridge_project.network.transport import ConnectionMode, Transport
from bridge_project.protocol.http import AgentInfo
from devices_app import tokens
from sessions_app.agents import registry
from tests.http.conftest import SIX

HANDLER = Handler()


async def ask(
    path: str, *, query: bytes = b"", body: list[bytes] | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """A request as the server hands it on: an ASGI scope with ``bridge`` in it, the body in
    pieces.
    """
    named = {"host": "localhost:8443", "authorization": f"Bearer {conf.secret('hook_token')}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    scope = {
        "type": "http",
        "method": "GET" if body is None else "POST",
        "path": path,
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "server": ["127.0.0.1", 8443],
        "scheme": "http",
        "bridge": Transport(
            secure=True,
            client="192.168.7.7",
            mode=ConnectionMode.PRIVATE_NETWORK,
            via_proxy=True,
            base_url="https://127.0.0.1:8443",
        ),
    }
    pieces = body or [b""]
    received = [
        {"type": "http.request", "body": piece, "more_body": i + 1 < len(pieces)}
        for i, piece in enumerate(pieces)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return received.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(60):
        await HANDLER(scope, receive, send)
    start, answer = sent
    return (
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        answer["body"],
    )


@pytest.mark.django_db(transaction=True)
async def test_a_chunked_body_over_asgi() -> None:
    status, _, body = await ask(
        "/hooks/batch",
        body=[b'{"eve', b'nts":[', b"]}"],
        content_type="application/json",
        transfer_encoding="chunked",
    )
    assert (status, json.loads(body)["count"]) == (200, 0)


@pytest.mark.parametrize("query", [b"path=\xff", b"path=%ff"])
@pytest.mark.django_db(transaction=True)
async def test_a_query_that_is_not_utf8(query: bytes) -> None:
    status, headers, body = await ask(
        "/api/v1/files/tree",
        query=query,
        authorization=f"Bearer {conf.secret('admin_token')}",
        x_request_id="mine",
    )
    assert (400 <= status < 500, headers["X-Request-ID"]) == (True, "mine")
    assert json.loads(body).keys() >= SIX


@pytest.mark.django_db(transaction=True)
async def test_a_static_file_comes_whole() -> None:
    status, headers, body = await ask("/static/admin/css/base.css")
    assert (status, headers["Content-Type"]) == (200, 'text/css; charset="utf-8"')
    assert int(headers["Content-Length"]) == len(body) > 1000


@pytest.mark.django_db(transaction=True)
async def test_cookies_are_sent() -> None:
    status, headers, _ = await ask("/admin/login/")
    assert status == 200
    assert "__Host-bridge-csrf-" in headers["Set-Cookie"]
    assert "Secure" in headers["Set-Cookie"]


@pytest.mark.django_db(transaction=True)
async def test_requests_run_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits holds no other up."""
    both = threading.Barrier(2, timeout=180)

    def meet() -> list[AgentInfo]:
        both.wait()
        return []

    monkeypatch.setattr(registry, "listed", meet)
    answers = await asyncio.gather(ask("/api/v1/info"), ask("/api/v1/info"))
    assert [status for status, _, _ in answers] == [200, 200]


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
