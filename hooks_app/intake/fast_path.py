"""Store plain POST /hooks/event requests without Django's request cycle.

Django's cycle, in a thread with every middleware, costs four times as much as storing the event. So
this application stands in front of it. A request that is ordinary in every respect (the hook token,
plain JSON, one of our names, no query, no Origin) is parsed, counted and stored here, on the event
loop and in the one thread of `group_commit`. Everything else, and everything that is refused, goes
to the view.

The view defines how events are answered. Parser, limits and store are the same functions, and
HEADERS are those that the middlewares give to the view's answer. tests/hooks/test_fast_path.py
sends the same requests to both and compares the answers, headers too.
"""

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime

from bridge_project.http import ratelimit
from bridge_project.http.asgi_types import Application, Message, Receive, Scope, Send
from bridge_project.http.error_body import JSON_TYPE, request_id
from bridge_project.http.errors import as_bridge_error
from bridge_project.http.json import check_media_type
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers
from bridge_project.network.own_names import host_allowed, own_names
from bridge_project.protocol import jsontext
from bridge_project.protocol.hooks import HookInvalid, parse_hook_body
from devices_app import tokens
from hooks_app.intake.group_commit import GroupWriter
from hooks_app.intake.store import Posted, Receipt
from hooks_app.views import EventView

LARGE = 64 * 1024  # bytes; a larger body is parsed in a thread, for it may take a second
LARGE_AT_ONCE = 2  # a large event takes many times its size in memory until it is stored
# headers that the view reads
UNUSUAL = frozenset({b"origin", b"content-encoding", b"x-hook-behind"})
PATHS = frozenset({"/hooks/event", "/api/v1/hooks/event"})
HOOK = tokens.Principal("hook")
# of the view's 200 to a request without Origin; besides, Content-Length and X-Request-ID
HEADERS = (
    (b"content-type", JSON_TYPE.encode()),
    (b"allow", b"POST, OPTIONS"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"vary", b"origin"),
    (b"cache-control", b"no-store"),
)

Headers = dict[bytes, bytes]


class FastPath:
    """Answer ordinary hook events; pass all other requests on."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._writer = GroupWriter()
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers_of(scope)
        asked = scope.get("bridge.body") == "awaited"  # only whether a large body may come
        ours = scope["path"] in PATHS and scope["method"] == "POST" and not asked
        if not ours or not _is_plain(scope, headers):
            await self.application(scope, receive, send)
            return
        if "bridge.connection" in scope:
            scope["bridge.connection"].authenticated = True
        if (body := await _whole_body(receive)) is None:
            return  # the client is gone, and nothing was accepted
        outcome = await self._store(scope, headers, body)
        if isinstance(outcome, Receipt):
            await _answer(send, outcome, headers.get(b"x-request-id"))
        else:
            again = {**scope, "bridge.refusal": outcome}
            await self.application(again, _replay(body, receive), send)

    async def _store(
        self, scope: Scope, headers: Headers, body: bytes
    ) -> Receipt | BridgeError | None:
        """Store the event; else return what the view must answer, or None."""
        large, now = len(body) > LARGE, datetime.now(UTC)
        counted = scope.get("bridge.body") == "admitted"  # when it asked
        rate = EventView.rate_group, HOOK.rate_key, scope["bridge"].client
        source = headers.get(b"x-hook-source", b"").decode("latin-1")
        try:
            async with self._large if large else nullcontext():
                if large:
                    event = await asyncio.to_thread(parse_hook_body, body, now=now)
                else:
                    event = parse_hook_body(body, now=now)
                if conf.rate_limits_on and not counted:
                    if conf.redis_url:
                        await readers.run(ratelimit.check, *rate)
                    else:
                        ratelimit.check(*rate)
                return await self._writer.store(Posted(event, source))
        except HookInvalid:
            return None
        except BridgeError as refusal:
            return refusal
        except STORAGE_ERRORS as error:
            # not tried again by the view: the commit may have happened although its answer was lost
            return as_bridge_error(error)


def _headers_of(scope: Scope) -> Headers:
    """Return each header once; a repeated one leaves the request to the view."""
    headers: Headers = {}
    for name, value in scope["headers"]:
        headers[name] = b"\x00" if name in headers else value
    return headers


def _is_plain(scope: Scope, headers: Headers) -> bool:
    """Return whether the request needs nothing of the view."""
    bearer = tokens.bearer_of(headers.get(b"authorization", b"").decode("latin-1"))
    if bearer is None or not tokens.is_hook(bearer):
        return False
    if scope["query_string"] or not UNUSUAL.isdisjoint(headers):
        return False
    try:
        check_media_type(headers.get(b"content-type", b"").decode("latin-1"))
    except BridgeError:
        return False
    return host_allowed(own_names(scope), headers.get(b"host", b"").decode("latin-1"))


async def _answer(send: Send, receipt: Receipt, given: bytes | None) -> None:
    body = jsontext.dumps(receipt.body()).encode()
    id_ = request_id(given.decode("latin-1") if given else None).encode()
    own = (b"content-length", str(len(body)).encode()), (b"x-request-id", id_)
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *own]})
    await send({"type": "http.response.body", "body": body})


async def _whole_body(receive: Receive) -> bytes | None:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body once more."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again
