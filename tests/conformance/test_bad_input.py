"""Bodies that nobody should send (spec, Errors; D8, D9): a clear error, nothing half stored, the
server lives on.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.attack.test_large_files import peak
from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, Response, assert_error, strict_json
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import hook, new_session, prompt

MIB = 1024 * 1024
EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"


def valid_text(session_id: str, payload: str) -> str:
    """A UserPromptSubmit whose payload is the given JSON text."""
    head = json.dumps(hook("UserPromptSubmit", session_id, payload=...))
    return f'{head[:-1]}, "payload": {payload}}}'


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def post_raw(bridge: Bridge, body: str | bytes, path: str = EVENT) -> Response:
    data = body.encode() if isinstance(body, str) else body
    return bridge.https().post(path, token=bridge.hook_token, body=data)


@pytest.fixture(autouse=True)
def lives_on(shared: Bridge) -> Iterator[None]:
    """After each test here the shared bridge still takes and stores an event."""
    yield
    session_id = new_session()
    shared.accept(prompt(session_id, 1))
    assert shared.knows(session_id)


NO_OBJECTS = [
    *(b"", b"not json", b'{"event": "Stop"', b"[]", b"null", b'"text"', b"{'event': 'Stop'}"),
    *(b'{"a": 1} {"b": 2}', b"\xff\xfe{}", b'{"event": "Stop\xff"}', b"\x00", b"\x1f\x8b\x08\x00"),
    *(b'{"x": NaN}', b'{"x": [{"y": -Infinity}]}', b"[" * 100_000, b'{"a":' * 50_000),
]


@pytest.mark.parametrize("path", [EVENT, BATCH])
@pytest.mark.spec("code.HOOK_INVALID_PAYLOAD")
def test_what_is_no_json_object(shared: Bridge, path: str) -> None:
    for body in NO_OBJECTS:
        assert_error(post_raw(shared, body, path), 400, "HOOK_INVALID_PAYLOAD")


def test_nesting_over_100_is_refused(shared: Bridge, sid: str) -> None:
    assert post_raw(shared, valid_text(sid, nested(90))).status == 200
    deep = new_session()
    for depth in (102, 1000, 100_000):
        assert_error(post_raw(shared, valid_text(deep, nested(depth))), 400, "HOOK_INVALID_PAYLOAD")
    assert not shared.knows(deep)


ODD_STRINGS = [
    *('"nul \\u0000 inside"', '"\\ud800"', '"\\udc00\\ud800"', '"\\uffff\\ufffe"'),
    *('"\\u202e\\u2028\\u0085"', '"' + "x" * 100_000 + '"'),
]
ODD_VALUES = [
    *(*ODD_STRINGS, '{"\\u0000": 1}', '{"\\ud83d": 1}', "1e400", "-1e400", "1" * 5000),
    *("-" + "9" * 400, "1e-400", "0.1" + "0" * 500, str(2**63), str(2**64 + 1), "1E+2", "-0"),
]


@pytest.mark.usefixtures("database")
def test_odd_values(bridge: Bridge, device: Phone) -> None:
    """NULs, lone surrogates, huge numbers, in a payload and in a session id: a clear 400 and
    nothing stored, or the event arrives as it was sent.
    """
    device.ready().close()
    odd = [valid_text(new_session(), f'{{"prompt": "p", "odd": {text}}}') for text in ODD_VALUES]
    odd += [
        valid_text("", "{}").replace('""', f'"{new_session()}{text[1:]}') for text in ODD_STRINGS
    ]
    taken = []
    for body in odd:
        answer = post_raw(bridge, body)
        if answer.status == 200:
            sent = strict_json(body)
            taken.append((sent["session_id"], sent["payload"]))
        else:
            assert_error(answer, 400)
    bridge.accept(hook("SessionStart", after := new_session()))
    device.ready().expect("session_started", session_id=after)
    events = [m["payload"] for m in device.messages if m["type"] == "agent_event"]
    arrived = [(event["session_id"], event["payload"]) for event in events]
    assert taken and [one for one in arrived if one[0] != after] == taken


@pytest.mark.parametrize("character", ["\U0001f600", "\n"], ids=["emoji", "newline"])
@pytest.mark.spec("limit.max_message_size_mb")
def test_nine_megabytes_arrive_whole(
    shared: Bridge, sid: str, phone: Phone, character: str
) -> None:
    shared.watch(phone, sid)
    text = character * (9 * MIB // len(json.dumps(character, ensure_ascii=False).encode()[1:-1]))
    body = hook("UserPromptSubmit", sid, {"prompt": text, "number": 9})
    assert post_raw(shared, json.dumps(body, ensure_ascii=False)).status == 200
    (event,) = phone.wait_numbers(sid, [9], 30)
    assert event["payload"]["payload"]["prompt"] == text


@pytest.mark.spec("limit.max_message_size_mb", "code.PAYLOAD_TOO_LARGE")
def test_eleven_megabytes_are_too_large(shared: Bridge, sid: str) -> None:
    """D9: the 413 reaches a client that sends everything before it reads. The cap stands before any
    view: other paths, without a token, do not buffer it either.
    """
    body = valid_text(sid, '{"x": "' + "x" * (11 * MIB) + '"}')
    for path in (EVENT, BATCH, "/hooks/event"):
        assert_error(post_raw(shared, body, path), 413, "PAYLOAD_TOO_LARGE")
    assert not shared.knows(sid)
    for path in ("/api/v1/health", "/api/v1/admin/reload-hooks", "/api/v1/nope", "/pair"):
        assert_error(shared.https().post(path, body=body.encode()), (401, 404, 405, 413))


def flood(bridge: Bridge, *, chunked: bool, total: int) -> tuple[int, Response]:
    """Send a body far larger than the limit until an answer comes; the bytes sent, the answer."""
    raw = RawSocket(bridge.port)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {total}"
    raw.socket.sendall(
        f"POST {EVENT} HTTP/1.1\r\nHost: 127.0.0.1:{bridge.port}\r\n"
        f"Authorization: Bearer {bridge.hook_token}\r\n"
        f"Content-Type: application/json\r\n{length}\r\n\r\n".encode()
    )
    piece = b'{"x": "' + b"x" * (256 * 1024)
    framed = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    sent = 0
    try:
        while sent < total and not raw.buffer:
            raw.socket.settimeout(20)
            raw.socket.sendall(framed)
            sent += len(piece)
            raw.socket.settimeout(0.001)
            with suppress(TimeoutError, ssl.SSLWantReadError):
                raw.buffer += raw.socket.recv(65536)
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        pass  # it is closed while it still sends
    raw.socket.settimeout(20)
    answer = raw.response()
    raw.close()
    return sent, answer


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_300_megabytes(public: Bridge, chunked: bool) -> None:
    """D9: the 413 reaches a client that is still sending, and the body is never held in memory."""
    before = public.memory()
    sent, answer = flood(public, chunked=chunked, total=300 * MIB)
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")
    assert sent < 150 * MIB, "refused while it was being sent"
    assert public.memory() - before < 60 * MIB


def test_a_body_cut_short_is_not_stored(shared: Bridge, sid: str) -> None:
    """The connection breaks in the middle of an otherwise complete event."""
    body = json.dumps(prompt(sid, 1)).encode()
    connection: http.client.HTTPConnection = shared.https().open()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body) + 10),
        "Authorization": f"Bearer {shared.hook_token}",
    }
    connection.request("POST", EVENT, body, headers)
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    shared.accept(prompt(new_session(), 1))
    assert not shared.knows(sid)


AT_ONCE = 50


def test_bodies_of_ten_megabytes(make_bridge: Callable[..., Bridge], sid: str) -> None:
    """Whole events, read, parsed and refused for their age. Unbounded they cost over 320 MB."""
    bridge = make_bridge("bodies")
    payload = {"reason": "x" * (10 * MIB - 400)}
    body = json.dumps(hook("Stop", sid, payload, timestamp="2020-01-01T00:00:00Z")).encode()
    assert 9 * MIB < len(body) < 10 * MIB
    bridge.accept(prompt(sid, 0))
    before = peak(bridge)

    def large(_: int) -> None:
        client = Https(bridge.port, bridge.pin, timeout=120)
        answer = client.post(EVENT, token=bridge.hook_token, body=body)
        assert_error(answer, 400, "HOOK_STALE_TIMESTAMP")

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(large, range(AT_ONCE)))
    assert peak(bridge) - before < 265 * MIB, f"{(peak(bridge) - before) // MIB} MB more"
    bridge.accept(prompt(sid, 1))
