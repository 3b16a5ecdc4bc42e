"""The HTTP error body (spec, Errors; D9, D14, D18): six fields and the right status."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.agents import ask, begin, end, words
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge, query
from tests.conformance.https import assert_error, is_uuid
from tests.conformance.repositories import Reader
from tests.conformance.samples import hook, prompt

# address → the kinds of tokens that open it (D14)
OPEN_TO = {
    "GET /api/v1/health": "hook admin device",
    "GET /api/v1/info": "hook admin device",
    "GET /api/v1/sessions": "admin device",
    "GET /api/v1/sessions/x": "admin device",
    "GET /api/v1/ws": "hook admin device",
    "GET /api/v1/files/tree": "admin device",
    "GET /api/v1/files/content": "admin device",
    "POST /api/v1/hooks/event": "hook",
    "POST /hooks/event": "hook",
    "POST /api/v1/hooks/batch": "hook",
    "POST /hooks/batch": "hook",
    "POST /api/v1/sessions/x/events": "admin device",
    "POST /api/v1/admin/reload-hooks": "admin",
    "GET /metrics": "admin",
}


def assert_documented(bridge: Bridge, body: dict[str, Any]) -> None:
    """D9: the address is absolute and opens a page about that code, without a token."""
    own, url = f"https://127.0.0.1:{bridge.port}/", body["documentation_url"]
    assert url.startswith(own) and "#" not in url, url
    page = bridge.get("/" + url.removeprefix(own))
    assert page.status == 200 and page.headers["content-type"].startswith("text/html"), page
    assert body["code"].encode() in page.body


@pytest.mark.spec("error.http.*", "code.other", "versioning.prefix")
def test_unknown_paths(shared: Bridge) -> None:
    """D2: the endpoints of the spec are only under /api/v1, the hooks' aside."""
    unknown = "/api/v2/health /health /api/v1/hooks /api/v1/HEALTH /api/v1/%00 /%ff"
    for path in (*unknown.split(), "/api/v1/health/deeper", "/api/v1/sessions/x/y/z"):
        code = "SESSION_NOT_FOUND" if "sessions/" in path else "NOT_FOUND"
        assert_documented(shared, assert_error(shared.get(path, shared.admin_token), 404, code))
        assert_error(shared.get(path), (401, 404))
        posted = shared.https().post(path, token=shared.admin_token, json_body={})
        assert_error(posted, (404, 405))


@pytest.mark.parametrize("address", OPEN_TO)
@pytest.mark.spec(
    "auth.required auth.device auth.hook auth.admin auth.scope code.AUTH_INSUFFICIENT_SCOPE"
)
def test_who_may(shared: Bridge, address: str) -> None:
    """Any other valid token is 403 AUTH_INSUFFICIENT_SCOPE; at /hooks/* 401, as no token is."""
    method, path = address.split()
    hooks = "/hooks/" in path
    refused = (401, "HOOK_AUTH_FAILED") if hooks else (403, "AUTH_INSUFFICIENT_SCOPE")
    tokens = {"hook": shared.hook_token, "admin": shared.admin_token}
    for kind, token in (tokens | {"device": shared.device_token()}).items():
        body: Any = ... if method == "GET" else {}
        answer = shared.https().request(method, path, token=token, json_body=body)
        if kind in OPEN_TO[address].split():
            assert answer.status not in (401, 403), (kind, answer)
        else:
            assert_error(answer, *refused)
    if not path.endswith("/ws"):
        nobody = shared.https().request(method, path)
        code = refused[1] if hooks else "AUTH_INVALID_TOKEN"
        assert_documented(shared, assert_error(nobody, 401, code))


@pytest.mark.parametrize("address", OPEN_TO)
@pytest.mark.spec("error.http.*", "code.other")
def test_wrong_methods(shared: Bridge, address: str) -> None:
    """405 METHOD_NOT_ALLOWED, with Allow (RFC 9110)."""
    right, path = address.split()
    token = shared.hook_token if "hooks/" in path else shared.admin_token
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {right}:
        answer = shared.https().request(method, path, token=token)
        assert_error(answer, 405, "METHOD_NOT_ALLOWED")
        assert right in answer.headers.get("allow", "")
    if right == "POST":
        assert shared.https().request("HEAD", path, token=token).status == 405


@pytest.mark.spec(
    "auth.required auth.invalid code.AUTH_INVALID_TOKEN code.HOOK_AUTH_FAILED auth.hook.wrong",
    "event_post.order event_post.unauthorized",
)
def test_malformed_tokens(shared: Bridge) -> None:
    """They are looked at before a body is."""
    codes = dict.fromkeys(("/api/v1/health", "/api/v1/sessions"), "AUTH_INVALID_TOKEN")
    codes["/api/v1/hooks/event"] = "HOOK_AUTH_FAILED"
    wrong = ("", "Bearer", "Basic YTpi", "Bearer nope", "Bearer a,b", "Bearer \x80\xff", "token")
    for authorization in (*wrong, "Bearer a b c", f"Bearer {'x' * 6000}"):
        headers = {"Authorization": authorization}
        for path, code in codes.items():
            method = "POST" if "hooks" in path else "GET"
            assert_error(shared.https().request(method, path, headers=headers), 401, code)
    query = f"token={shared.hook_token}&access_token={shared.hook_token}"
    assert_error(shared.get(f"/api/v1/health?{query}"), 401, "AUTH_INVALID_TOKEN")


@pytest.mark.spec("error.http.request_id")
def test_request_ids(shared: Bridge) -> None:
    """D9: request_id echoes a sane X-Request-ID, otherwise it is a UUID."""

    sane = ("A1_b2.c3-d4", "3fa85f64-5717-4562-b3fc-2c963f66afa6")
    insane = ("", "x" * 1000, "a b", "<script>alert(1)</script>", "\xfc\xf6", "${jndi:ldap://x}")
    for given in (*sane, *insane):
        headers = {"X-Request-ID": given}
        answer = shared.get("/api/v1/nope", shared.admin_token, headers=headers)
        answered = assert_error(answer, 404)["request_id"]
        assert answered == given if given in sane else is_uuid(answered), given


def test_hosts(shared: Bridge) -> None:
    """D18: the bridge's own names are ALLOWED_HOSTS, whatever the port."""
    own = ("localhost", "LOCALHOST:8443", "localhost.:8443", "127.0.0.1:9", "[::1]:8443")
    other = ("evil.example:443", "localhost.evil.example", "localhost@evil.example", "[")
    for host in (*own, *other, "localhost, x"):
        answer = shared.get("/api/v1/health", shared.admin_token, headers={"Host": host})
        if host in own:
            assert answer.status == 200, answer
        else:
            assert_error(answer, 400)


@pytest.mark.spec("code.other", "event_post.headers")
def test_media_types(shared: Bridge, sid: str) -> None:
    """415 unless it is JSON, in any case and with parameters; what is accepted does not matter."""
    other = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for content_type in (*other, "x", "application/json; charset=utf-8", "APPLICATION/JSON"):
        headers = {"Content-Type": content_type, "Accept": "text/html"}
        answer = shared.post_hook(hook("Stop", sid), headers=headers)
        if "json" in content_type.lower():
            assert answer.status == 200, answer
        else:
            assert_error(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
            assert not shared.knows(sid)


def test_a_chunked_body(shared: Bridge, sid: str) -> None:
    said: dict[str, Any] = {"type": "user_message", "content": "hello"}
    for path, token, body, status in (
        ("/hooks/event", shared.hook_token, prompt(sid, 1), 200),
        (f"/api/v1/sessions/{sid}/events", shared.admin_token, said, 202),
    ):
        pieces: Any = iter([b"{", json.dumps(body)[1:].encode()])  # no length
        assert shared.https().post(path, token=token, body=pieces).status == status, path


# the operating system's own open is broken for one name
BROKEN = """
import os
honest = os.open
def broken(path, *rest, **more):
    if isinstance(path, (str, bytes)) and b"provoked" in os.fsencode(path):
        raise ZeroDivisionError("a secret detail")
    return honest(path, *rest, **more)
os.open = broken
"""


@pytest.fixture(scope="module")
def broken(make_bridge: Callable[..., Bridge]) -> Iterator[Bridge]:
    bridge = make_bridge("broken", first=BROKEN)
    for name in ("provoked", "other"):
        (bridge.root / f"{name}.txt").write_text("1")
    yield bridge
    bridge.stop()


@pytest.mark.spec("wscode.BRIDGE_ERROR", "code.INTERNAL_ERROR", "severity.error")
@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "BRIDGE_ERROR"])
def test_a_fault(broken: Bridge, code: str) -> None:
    """D51: the devices are told, once, with the id that is in the log; no answer has details."""
    contents, token = "/api/v1/files/content?path=", broken.admin_token
    with broken.phones(2) as (phone, other):
        reader, ids = Reader(broken, phone), []
        for _ in range(5):
            if code == "BRIDGE_ERROR":
                answer = reader.ask("file_read", broken.root / "provoked.txt")
                said = assert_refused(answer, code, True)
                ids.append(answer["id"])
            else:
                said = assert_error(broken.get(f"{contents}provoked.txt", token), 500, code)
                ids.append(said["request_id"])
            assert "secret" not in str(said) and "ZeroDivision" not in str(said)
        for told in (phone, other):
            notice = told.expect("notification", notification_type="error")["payload"]
            assert notice["data"] == {"code": code, "reference": ids[0]}
            assert ids[0] in notice["body"]
            broken.fence(told)
            notices = [m["payload"] for m in told.messages if m["type"] == "notification"]
            assert [notice["data"].get("code") for notice in notices].count(code) == 1
        assert reader.read(broken.root / "other.txt")["content"] == "1"
    assert broken.get(f"{contents}other.txt", token).status == 200
    logged = "".join(path.read_text() for path in (broken.data / "logs").glob("*"))
    assert ids[0] in logged and "ZeroDivisionError" in logged


def test_a_fault_that_the_database_finds(broken: Bridge) -> None:
    """D46: only a database that is away is to be tried again; anything else is a fault (D51)."""
    database = broken.data / "bridge.sqlite3"
    with broken.phones(1) as (phone,):
        session_id = begin(broken, phone)
        fails = "BEGIN SELECT RAISE(ABORT, 'a row that must not be'); END"
        query(database, f"CREATE TRIGGER fails BEFORE INSERT ON sessions_app_command {fails}")
        sent = phone.send("message", {"session_id": session_id, "content": "one", "role": "user"})
        assert_refused(phone.answer_to(sent), "BRIDGE_ERROR", True)
        query(database, "DROP TRIGGER fails")
        assert "two" in words(ask(phone, session_id, "two"))
        end(phone, session_id)
    (logged,) = [one for one in broken.logged() if one.get("id") == sent]
    assert logged["event"] == "handler_failed" and "IntegrityError" in logged["exception"]
