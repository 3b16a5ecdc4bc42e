"""The server under test as a process of its own, with a small ASGI application in place of Django.

What the application saw is told over HTTP (`/stats`), so that a test asks instead of guessing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from bridge_project.edge import http as http_edge
from bridge_project.edge import server
from bridge_project.http.transport_middleware import TransportMiddleware
from bridge_project.kernel import limits
from bridge_project.kernel.config import ConfError, load
from bridge_project.network import certificates

stats: dict[str, Any] = {
    "connected": 0,
    "disconnects": [],
    "received": 0,
    "started": 0,
    "stopped": 0,
    "drains": 0,
    "held": 0,
}
sockets: list[Any] = []
let_go = asyncio.Event()


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await websocket(scope, receive, send)
    else:
        await http(scope, receive, send)


def told(scope: dict[str, Any]) -> dict[str, Any]:
    bridge = scope["bridge"]
    return {
        "type": scope["type"],
        "scheme": scope["scheme"],
        "client": scope["client"],
        "server": scope["server"],
        "path": scope["path"],
        "root_path": scope["root_path"],
        "query": scope["query_string"].decode(),
        "secure": bridge.secure,
        "mode": bridge.mode,
        "via_proxy": bridge.via_proxy,
        "base_url": bridge.base_url,
        "bridge_client": bridge.client,
    }


async def http(scope: dict[str, Any], receive: Any, send: Any) -> None:
    size, path = 0, scope["path"]
    if scope.get("bridge.body") == "awaited" and path != "/unwanted":
        await send({"type": "http.response.start", "status": 100, "headers": []})
        return
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message["more_body"]:
            break
    if path == "/raise":
        raise RuntimeError("on purpose")
    if path == "/nothing":
        return
    if path == "/slow":
        stats["slow"] = "waiting"
        await asyncio.sleep(0.7)
    if path == "/hold":
        stats["held"] += 1
        await let_go.wait()
    if path == "/let-go":
        let_go.set()
    answer: dict[str, Any] = {"/scope": told(scope), "/stats": stats | wire()}.get(
        path, {"size": size}
    )
    body = json.dumps(answer).encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ],
        }
    )
    if path == "/half":
        await send({"type": "http.response.body", "body": body[:1], "more_body": True})
        raise RuntimeError("on purpose, after a part of the answer")
    await send({"type": "http.response.body", "body": body})


def wire() -> dict[str, Any]:
    if not sockets:
        return {}
    last = sockets[-1]
    now = time.monotonic()
    return {
        "buffered": last.buffered(),
        "stuck": now - last.last_progress,
        "silent": now - last.last_frame,
    }


async def websocket(scope: dict[str, Any], receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    path = scope["path"]
    if path == "/denied":
        assert "websocket.http.response" in scope["extensions"]
        await send(
            {
                "type": "websocket.http.response.start",
                "status": 401,
                "headers": [
                    (b"WWW-Authenticate", b"Bearer"),
                    (b"Content-Type", b"application/json"),
                ],
            }
        )
        await send(
            {"type": "websocket.http.response.body", "body": b'{"code": ', "more_body": True}
        )
        await send({"type": "websocket.http.response.body", "body": b'"AUTH_INVALID_TOKEN"}'})
        return
    if path == "/closed":
        await send({"type": "websocket.close"})
        return
    if path == "/raise":
        raise RuntimeError("on purpose")
    if path == "/mute":
        assert (await receive())["type"] == "websocket.disconnect"
        return
    if path == "/hesitant":
        await asyncio.sleep(0.05)
    await send({"type": "websocket.accept", "headers": [(b"X-Request-ID", b"abc")]})
    stats["connected"] += 1
    sockets.append(scope["bridge.socket"])
    if path != "/stranger":
        scope["bridge.socket"].authenticated()
    try:
        await conversation(scope, receive, send)
    finally:
        stats["connected"] -= 1


async def conversation(scope: dict[str, Any], receive: Any, send: Any) -> None:
    handle = scope["bridge.socket"]
    flood: asyncio.Task[None] | None = None
    while (message := await receive())["type"] != "websocket.disconnect":
        text = message.get("text") or ""
        stats["received"] += 1
        if text == "scope":
            await send({"type": "websocket.send", "text": json.dumps(told(scope))})
        elif text == "flood":
            flood = asyncio.create_task(pour(handle, send))
        elif text == "abort":
            handle.abort()
        elif text == "raise":
            raise RuntimeError("on purpose")
        elif text == "return":
            return
        elif text == "sleep":
            await asyncio.sleep(1.5)
        elif text.startswith("close "):
            await send({"type": "websocket.close", "code": int(text[6:]), "reason": "as asked"})
        else:
            await send(
                {
                    "type": "websocket.send",
                    "text": text[:100] or str(len(message.get("bytes") or b"")),
                }
            )
    stats["disconnects"].append(message["code"])
    if flood is not None:
        await flood


async def pour(handle: Any, send: Any) -> None:
    """What the consumer does: send while the socket takes it, wait while it does not."""
    for _ in range(500):
        await send({"type": "websocket.send", "text": "x" * 65536})
        stats["most_buffered"] = max(stats.get("most_buffered", 0), handle.buffered())
        if not await handle.drain():
            stats["flood"] = "gone"
            return
        stats["drains"] += 1
    stats["flood"] = "done"


async def on_start() -> None:
    asyncio.get_running_loop()
    stats["started"] += 1
    if "fail" in sys.argv:
        raise ConfError("BRIDGE_TEST: on_start failed")


async def on_stop() -> None:
    """Leaves a trace of how many sockets were open when it ran."""
    (Path(load().bridge_data_dir) / "stopped").write_text(str(stats["connected"]))


async def on_listening() -> None:
    sys.stdout.write("listening\n")
    sys.stdout.flush()


def main() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    if "hasty" in sys.argv:
        vars(limits).update(STOP_SECONDS=1, LINGER_SECONDS=1, PING_SECONDS=0.5, HANDSHAKE_SECONDS=1)
        vars(limits).update(DEFLATE_KEEP_SECONDS=0)
        http_edge.Factory.timeOut = 2
    try:
        conf = load()
        server.run(
            TransportMiddleware(application),
            conf=conf,
            certificates=certificates.load_or_renew(conf),
            on_start=on_start,
            on_stop=on_stop,
            on_listening=on_listening,
            certificate_check_seconds=0.1,
        )
    except ConfError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
