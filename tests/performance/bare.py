"""A yardstick: asyncio and SQLite with nothing else, what Python can do when each event is stored
before its 200.

It takes the token, reads the JSON, stores the row (synchronous=FULL, one transaction for all that
wait), answers, and sends the event to every socket of the session; it has no other of the bridge's
duties. `python -m tests.performance.bare PORT CERT KEY DATABASE TOKEN`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sqlite3
import ssl
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
listeners: dict[str, set[asyncio.Transport]] = defaultdict(set)
Waiting = tuple["Connection", str, bytes]


class Store:
    """One thread writes; what comes while it does shares the next transaction."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.database.executescript(
            "PRAGMA journal_mode=wal; PRAGMA synchronous=FULL; CREATE TABLE events (id INTEGER PRIMARY KEY, session TEXT, body BLOB)"
        )
        self.thread, self.waiting, self.busy = ThreadPoolExecutor(1), list[Waiting](), False

    def put(self, event: Waiting) -> None:
        self.waiting.append(event)
        if not self.busy:
            self.busy = True
            asyncio.get_running_loop().create_task(self.write())

    async def write(self) -> None:
        while self.waiting:
            group, self.waiting = self.waiting, []
            await asyncio.get_running_loop().run_in_executor(self.thread, self.commit, group)
            for connection, session, body in group:
                connection.stored(session, body)
        self.busy = False

    def commit(self, group: list[Waiting]) -> None:
        self.database.execute("BEGIN IMMEDIATE")
        self.database.executemany(
            "INSERT INTO events (session, body) VALUES (?, ?)",
            [(session, body) for _, session, body in group],
        )
        self.database.execute("COMMIT")


class Connection(asyncio.Protocol):
    buffer = b""
    session = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        listeners[self.session].discard(self.transport)

    def data_received(self, data: bytes) -> None:
        if self.session:
            return  # a listener has nothing to say
        self.buffer += data
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.split(b"\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in lines)
        }
        if key := headers.get(b"sec-websocket-key"):
            self.session = first.split(b" ")[1].rpartition(b"/")[2].decode()
            listeners[self.session].add(self.transport)
            answer = base64.b64encode(hashlib.sha1(key + ACCEPT).digest())
            self.transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n"
                % answer
            )
        elif len(rest) >= int(headers[b"content-length"]):
            self.buffer = b""
            if headers.get(b"authorization") == TOKEN:
                store.put((self, json.loads(rest)["session_id"], rest))
            else:
                self.transport.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    def stored(self, session: str, body: bytes) -> None:
        text = b'{"type":"agent_event","payload":%b}' % body
        frame = b"\x81\x7e" + len(text).to_bytes(2, "big") + text
        for listener in listeners[session]:
            listener.write(frame)
        self.transport.write(
            b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{"received":true}'
        )


async def main(port: int, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    await (
        await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, ssl=context)
    ).serve_forever()


if __name__ == "__main__":
    TOKEN, store = b"Bearer " + sys.argv[5].encode(), Store(sys.argv[4])
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
