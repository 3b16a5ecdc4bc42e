"""The hot path: a well-formed, authorised, in-limit event is answered in front of Django's request
cycle; all else goes to the view.

The view stays the definition. This application uses the same parser, the same ingest and the same
limits; it even takes the answer's headers from the view, to which it hands the first event.
``tests/hooks/test_hot_path.py`` holds both against each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import InterfaceError, OperationalError

from bridge_project.http import ratelimit
from bridge_project.http.error_body import request_id
from bridge_project.http.errors import as_bridge_error
from bridge_project.http.json import check_media_type
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers
from bridge_project.network import transport
from bridge_project.network.own_names import own_names
from bridge_project.protocol import jsontext
from bridge_project.protocol.hooks import HookInvalid, parse_hook_body
from devices_app import tokens
from devices_app.tokens import Principal
from hooks_app.intake.group_commit import GroupWriter
from hooks_app.intake.responses import ingestion_result
from hooks_app.intake.store import Posted, Receipt
from hooks_app.views import EventView

LARGE = 64 * 1024  # bytes; a larger body is parsed in a thread, for it may take a second
LARGE_AT_ONCE = 2  # a large event takes many times its size in memory until it is stored
PATHS = frozenset({"/hooks/event", "/api/v1/hooks/event"})
HOOK = Principal("hook")

Message = Mapping[str, Any]
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class HotPath:
    """An ASGI application in front of ``application``, for HTTP."""

    def __init__(self, application: Application, writer: GroupWriter | None = None) -> None:
        self.application = application
        self.writer = writer or GroupWriter()
        self._headers: Headers | None = None
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers_of(scope)
        asked = scope.get("bridge.body") == "awaited"  # only whether a large body may come
        if (
            asked
            or scope["path"] not in PATHS
            or scope["method"] != "POST"
            or not _is_plain(scope, headers)
        ):
            await self.application(scope, receive, send)
            return
        if "bridge.connection" in scope:
            scope["bridge.connection"].authenticated = True
        # None: the client is gone, and nothing was accepted
        if (body := await _whole_body(receive)) is not None:
            await self._post(scope, headers, body, _again(body, receive), send)

    async def _post(
        self, scope: Scope, headers: dict[bytes, bytes], body: bytes, again: Receive, send: Send
    ) -> None:
        result = None if self._headers is None else await self._store(scope, headers, body)
        if isinstance(result, Receipt):
            given = headers.get(b"x-request-id")
            text = jsontext.dumps(ingestion_result(result)).encode()
            await _answer(
                send,
                self._headers or [],
                text,
                request_id(given.decode("latin-1") if given else None),
            )
        else:
            await self.application(
                {**scope, "bridge.refusal": result},
                again,
                send if self._headers else self._learning(send),
            )

    async def _store(
        self, scope: Scope, headers: dict[bytes, bytes], body: bytes
    ) -> Receipt | BridgeError | None:
        """The receipt; what the view must answer instead; None where it must find that out
        itself.
        """
        try:
            if len(body) > LARGE:
                async with self._large:
                    return await self._parse_and_store(scope, headers, body)
            return await self._parse_and_store(scope, headers, body)
        except HookInvalid:
            return None
        except BridgeError as refusal:
            return refusal
        except (OperationalError, InterfaceError) as error:
            # not tried again by the view: of a commit whose answer was lost nobody knows whether it
            # happened
            return as_bridge_error(error)

    async def _parse_and_store(
        self, scope: Scope, headers: dict[bytes, bytes], body: bytes
    ) -> Receipt:
        now = datetime.now(UTC)
        event = (
            parse_hook_body(body, now=now)
            if len(body) <= LARGE
            else await asyncio.to_thread(parse_hook_body, body, now=now)
        )
        if scope.get("bridge.body") != "admitted":  # it was counted when it asked
            await _count(scope["bridge"].client)
        return await self.writer.store(
            Posted(event, headers.get(b"x-hook-source", b"").decode("latin-1"))
        )

    def _learning(self, send: Send) -> Send:
        """Passes the view's answer on, and remembers its headers if it was the good one."""

        async def learn(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self._headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
            await send(message)

        return learn


def _headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Each header once; a repeated one makes the request the view's business."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        headers[name] = b"\x00" if name in headers else value
    return headers


def _is_plain(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Nothing about the request needs the view: no query, no page's Origin, plain JSON, the hook
    token, one of our names.
    """
    bearer = tokens.bearer_of(headers.get(b"authorization", b"").decode("latin-1"))
    if (
        bearer is None
        or not tokens.is_hook(bearer)
        or scope["query_string"]
        or b"origin" in headers
        or b"content-encoding" in headers
    ):
        return False
    try:
        check_media_type(headers.get(b"content-type", b"").decode("latin-1"))
    except BridgeError:
        return False
    return transport.host_allowed(own_names(scope), headers.get(b"host", b"").decode("latin-1"))


async def _count(client: str) -> None:
    """The view's own rate limit. Raises BridgeError RATE_LIMIT_EXCEEDED."""
    if conf.rate_limits_on:
        if conf.redis_url:
            await readers.run(ratelimit.check, EventView.rate_group, HOOK, client)
        else:
            ratelimit.check(EventView.rate_group, HOOK, client)


async def _whole_body(receive: Receive) -> bytes | None:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body once more."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _answer(send: Send, headers: Headers, body: bytes, id: str) -> None:
    own = {b"content-length": str(len(body)).encode(), b"x-request-id": id.encode()}
    filled = [(name, own.get(name.lower(), value)) for name, value in headers]
    await send({"type": "http.response.start", "status": 200, "headers": filled})
    await send({"type": "http.response.body", "body": body})
