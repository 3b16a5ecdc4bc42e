"""The hot path and the view, held against each other: the same request gets the same answer, byte
for byte (D8, D9, D17, D31).
"""

import asyncio
import json
import re
from typing import Any

import pytest

from bridge_project.http.request_threads import Handler
from bridge_project.kernel.config import conf
from bridge_project.network.transport import ConnectionMode, Transport
from bridge_project.protocol.types import now_text
from hooks_app.intake.fast_path import FastPath
from hooks_app.intake.group_commit import GroupWriter
from hooks_app.intake.store import Posted, Receipt
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

BRIDGE = Transport(
    secure=True,
    client="127.0.0.1",
    mode=ConnectionMode.LOCAL_ONLY,
    via_proxy=False,
    base_url="https://127.0.0.1:8443",
)
ENDS = {"client": ["127.0.0.1", 5000], "server": ["127.0.0.1", 8443], "bridge": BRIDGE}
CONNECTION = {"type": "http", "http_version": "1.1", "root_path": "", "scheme": "https"} | ENDS
VARYING = re.compile(rb'"(?:event_id|timestamp|request_id)":"[^"]*"')
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conf.__dict__, "bridge_rate_limits", "off")


def body(**changes: Any) -> bytes:
    event: dict[str, Any] = {"event": "UserPromptSubmit", "timestamp": now_text()}
    event |= {"session_id": "hot", "payload": {"prompt": "hello"}} | changes
    return json.dumps({key: value for key, value in event.items() if value is not ...}).encode()


async def call(
    application: Any,
    data: bytes,
    method: str = "POST",
    path: str = "/api/v1/hooks/event",
    query: bytes = b"",
    **headers: str | None,
) -> Answer:
    given: dict[str, str | None] = {
        "host": "127.0.0.1:8443",
        "authorization": f"Bearer {conf.secret('hook_token')}",
        "content-type": "application/json",
        "content-length": str(len(data)),
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = CONNECTION | {"method": method, "path": path, "raw_path": path.encode()}
    scope["query_string"] = query
    scope["headers"] = [
        (name.encode(), value.encode("latin-1"))
        for name, value in given.items()
        if value is not None
    ]
    half = len(data) // 2
    parts = [
        {"type": "http.request", "body": data[half:], "more_body": False},
        {"type": "http.request", "body": data[:half], "more_body": True},
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    headers_sent = [(bytes(name).lower(), bytes(value)) for name, value in sent[0]["headers"]]
    return sent[0]["status"], headers_sent, answer


def comparable(answer: Answer) -> Answer:
    status, headers, text = answer
    same = [(name, b"" if name == b"x-request-id" else value) for name, value in headers]
    return status, same, VARYING.sub(b"", text)


REQUESTS: dict[str, dict[str, Any]] = {
    "as producers send it": {},
    "without the prefix": {"path": "/hooks/event"},
    "with a request id": {"x_request_id": "from-the-client"},
    "with an insane request id": {"x_request_id": "x" * 200},
    "with a source": {"x_hook_source": "another-agent", "x_hook_version": "2"},
    "with a charset": {"content_type": "application/json; charset=utf-8"},
    "with another charset": {"content_type": "application/json; charset=latin-1"},
    "as a form": {"content_type": "application/x-www-form-urlencoded"},
    "without a type": {"content_type": None},
    "without a token": {"authorization": None},
    "with a wrong token": {"authorization": "Bearer " + "x" * 40},
    "with another scheme": {"authorization": "Basic abc"},
    "of a page": {"origin": "https://evil.example"},
    "under another name": {"host": "evil.example"},
    "with a query": {"query": b"a=1"},
    "with a slash": {"path": "/api/v1/hooks/event/"},
    "as GET": {"method": "GET"},
    "as OPTIONS": {"method": "OPTIONS"},
}


BODIES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{",
    "an array": b"[]",
    "NaN": b'{"event": NaN}',
    "deep": b"[" * 200 + b"]" * 200,
    "no event": body(event=...),
    "unknown event": body(event="Nothing"),
    "event_type alone": body(event=..., event_type="Stop"),
    "stale": body(timestamp="2020-01-01T00:00:00Z"),
    "no session": body(session_id=""),
    "no payload": body(payload=None),
    "wrong payload": body(event="PreToolUse", payload={"tool": 1}),
    "unknown fields": body(more={"a": [1, 2.5, None, "ü"]}),
    "a NUL": body(payload={"prompt": "a\x00b"}),
    "a lone surrogate": body(payload={"prompt": "\ud800"}),
}


async def test_every_kind_of_request_and_of_body_gets_the_same_answer() -> None:
    view = Handler()
    hot = FastPath(view)
    await call(hot, body())  # the first event teaches it the headers
    admin = {"authorization": f"Bearer {conf.secret('admin_token')}"}
    posts = [(body(), request) for request in (*REQUESTS.values(), admin)]
    for data, request in [*posts, *((data, {}) for data in BODIES.values())]:
        ours, theirs = await call(hot, data, **request), await call(view, data, **request)
        assert comparable(ours) == comparable(theirs), (request, data[:200])


async def test_one_event_that_cannot_be_stored_does_not_take_the_others_with_it() -> None:
    writer, unwritable = GroupWriter(), object()
    results = await asyncio.gather(
        *(writer.store(Posted(helpers.event(prompt=p))) for p in ("one", unwritable, "two")),
        return_exceptions=True,
    )
    assert [isinstance(result, Receipt) for result in results] == [True, False, True]
    assert await asyncio.to_thread(prompts) == ["one", "two"]


def prompts() -> list[str]:
    rows = helpers.read_all({helpers.session("s1").feed_id: 0})
    return [json.loads(row.frame)["payload"]["payload"]["prompt"] for row in rows]
