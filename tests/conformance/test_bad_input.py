"""Bodies that nobody should send (spec, Errors; D8, D9): a clear error, nothing half stored."""

import json
import re
import ssl
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest

from tests.attack.test_large_files import peak
from tests.conformance.bridge import BATCH, EVENT, Bridge
from tests.conformance.https import Https, Response, assert_error, strict_json
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket, head
from tests.conformance.samples import hook, new_session, prompt

MIB = 1024 * 1024


def valid_text(session_id: str, payload: str, event: str = "UserPromptSubmit") -> str:
    """An event whose payload is the given JSON text."""
    head = json.dumps(hook(event, session_id, payload=...))
    return f'{head[:-1]}, "payload": {payload}}}'


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def post_raw(bridge: Bridge, body: str | bytes, path: str = EVENT) -> Response:
    data = body.encode() if isinstance(body, str) else body
    return bridge.https().post(path, token=bridge.hook_token, body=data)


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


def test_half_an_escape_is_no_json(shared: Bridge, sid: str) -> None:
    """Half an emoji is read (D8), what only looks like it is not."""
    for text in ('"\\ud8zz"', '"\\ud8""  "', '"\\ud83\\ud83d"', '"\\ud83d" x'):
        body = valid_text(sid, f'{{"prompt": {text}}}')
        assert_error(post_raw(shared, body), 400, "HOOK_INVALID_PAYLOAD")
    good = '{"prompt": "\\\\ud83d\\ude00 \\\\\\ud83d"}'
    assert post_raw(shared, valid_text(sid, good)).status == 200


def test_nesting_over_100_is_refused(shared: Bridge, sid: str) -> None:
    assert post_raw(shared, valid_text(sid, nested(98))).status == 200
    deep = new_session()
    for depth in (100, 1000, 100_000):
        assert_error(post_raw(shared, valid_text(deep, nested(depth))), 400, "HOOK_INVALID_PAYLOAD")
    assert not shared.knows(deep)


ODD_STRINGS = [
    *('"nul \\u0000 inside"', '"\\ud800"', '"\\udc00\\ud800"', '"\\uffff\\ufffe"'),
    *('"\\u202e\\u2028\\u0085"', '"' + "x" * 100_000 + '"'),
]
ODD_VALUES = [
    *(*ODD_STRINGS, '{"\\u0000": 1}', '{"\\ud83d": 1}', "1e400", "-1e400", "1" * 5000),
    *("-" + "9" * 400, "1e-400", "0.1" + "0" * 500, str(2**63), str(2**64 + 1), "1E+2", "-0"),
    *(nested(60), '[{"a": []}, [[]]]', '{"": {"": ""}}'),
]
CALL = '"tool": "Bash", "tool_call_id": "x", "params": {"odd": %s}'
ODD_PAYLOADS = {
    "UserPromptSubmit": '{"prompt": "p", "odd": %s}',
    "PreToolUse": f'{{{CALL}, "risk_level": "low", "requires_approval": false}}',
    "PostToolUse": '{"tool": "Bash", "params": {}, "result": %s, "success": true}',
}


@pytest.mark.usefixtures("database")
@pytest.mark.spec("record.params")
def test_odd_values(bridge: Bridge, device: Phone) -> None:
    """NULs, lone surrogates, huge numbers, in payloads, in parameters and results of a tool, and in
    session ids: a clear 400 and nothing stored, or the event arrives as it was sent; but that
    half an emoji, which JavaScript leaves of a text that it cuts, is U+FFFD.
    """
    device.ready().close()
    odd = [
        valid_text("", "{}").replace('""', f'"{new_session()}{text[1:]}') for text in ODD_STRINGS
    ]
    for event, payload in ODD_PAYLOADS.items():
        odd += [valid_text(new_session(), payload % text, event) for text in ODD_VALUES]
    taken = []
    for body in odd:
        answer = post_raw(bridge, body)
        if answer.status == 200:
            whole = re.sub(r"\\ud8(3d|00)|\\udc00", r"\\ufffd", body)  # D8: half an emoji
            sent = strict_json(whole)
            taken.append((sent["session_id"], sent["payload"]))
        else:
            assert_error(answer, 400)
    bridge.accept(hook("SessionStart", after := new_session()))
    device.ready().expect("session_started", session_id=after)
    arrived: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for message in device.messages:
        arrived[message["type"]].append((message["payload"].get("session_id"), message["payload"]))
    events = [(sid, event["payload"]) for sid, event in arrived["agent_event"] if sid != after]
    assert taken and events == taken
    assert "\ufffd" in json.dumps(taken, ensure_ascii=False)
    called = [(sid, sent["params"]) for sid, sent in taken if "risk_level" in sent]
    assert called and [(sid, call["params"]) for sid, call in arrived["tool_call"]] == called
    contents = [result["result"]["content"] for _, result in arrived["tool_result"]]
    assert contents and {type(content) for content in contents} == {str}


@pytest.mark.spec("limit.max_message_size_mb", "code.PAYLOAD_TOO_LARGE")
def test_eleven_megabytes_are_too_large(shared: Bridge, sid: str) -> None:
    """D9: the 413 reaches a client that sends everything before it reads, at every path."""
    body = valid_text(sid, '{"x": "' + "x" * (11 * MIB) + '"}')
    for path in (EVENT, BATCH, "/hooks/event"):
        assert_error(post_raw(shared, body, path), 413, "PAYLOAD_TOO_LARGE")
    assert not shared.knows(sid)
    for path in ("/api/v1/health", "/api/v1/admin/reload-hooks", "/api/v1/nope", "/pair"):
        assert_error(shared.https().post(path, body=body.encode()), (401, 404, 405, 413))


def flood(bridge: Bridge, total: int) -> tuple[int, Response]:
    """Send chunks far over the limit until an answer comes; the bytes sent, the answer."""
    raw = RawSocket(bridge.port)
    raw.socket.sendall(head(bridge, "Transfer-Encoding: chunked"))
    piece = b'{"x": "' + b"x" * (256 * 1024)
    sent = 0
    try:
        while sent < total and not raw.buffer:
            raw.socket.settimeout(20)
            raw.socket.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
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


def test_300_megabytes(public: Bridge) -> None:
    """D9: the 413 reaches a client that is still sending, and the body is never held in memory."""
    before = public.memory()
    sent, answer = flood(public, 300 * MIB)
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")
    assert sent < 150 * MIB, "refused while it was being sent"
    assert public.memory() - before < 60 * MIB


def test_a_body_cut_short_is_not_stored(shared: Bridge, sid: str) -> None:
    """The connection breaks in the middle of an otherwise complete event."""
    body = json.dumps(prompt(sid, 1)).encode()
    with closing(RawSocket(shared.port)) as client:
        client.socket.sendall(head(shared, f"Content-Length: {len(body) + 10}") + body)
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
