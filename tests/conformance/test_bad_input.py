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
AT_ONCE = 50  # bodies of ten megabytes


def valid_text(session_id: str, payload: str, event: str = "UserPromptSubmit") -> str:
    """An event whose payload is the given JSON text."""
    head = json.dumps(hook(event, session_id, payload=...))
    return f'{head[:-1]}, "payload": {payload}}}'


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def post_raw(bridge: Bridge, body: str | bytes, path: str = EVENT) -> Response:
    data = body.encode() if isinstance(body, str) else body
    return bridge.https().post(path, token=bridge.hook_token, body=data)


# of an escape, not of an emoji
HALVES = ('"\\ud8zz"', '"\\ud8""  "', '"\\ud83\\ud83d"', '"\\ud83d" x')
NO_OBJECTS = [
    *(b"", b"not json", b'{"event": "Stop"', b"[]", b"null", b'"text"', b"{'event': 'Stop'}"),
    *(b'{"a": 1} {"b": 2}', b"\xff\xfe{}", b'{"event": "Stop\xff"}', b"\x00", b"\x1f\x8b\x08\x00"),
    *(b'{"x": NaN}', b'{"x": [{"y": -Infinity}]}', b"[" * 100_000, b'{"a":' * 50_000),
]


@pytest.mark.spec("code.HOOK_INVALID_PAYLOAD")
def test_what_is_no_json_object(shared: Bridge, sid: str) -> None:
    """D8: nor is what nests over 100 deep, or half an escape; half an emoji is read."""
    for path in (EVENT, BATCH):
        for body in NO_OBJECTS:
            assert_error(post_raw(shared, body, path), 400, "HOOK_INVALID_PAYLOAD")
    wrong = [f'{{"prompt": {text}}}' for text in HALVES]
    for payload in (*wrong, *map(nested, (100, 1000, 100_000))):
        answer = post_raw(shared, valid_text(sid, payload))
        assert_error(answer, 400, "HOOK_INVALID_PAYLOAD")
    assert not shared.knows(sid)
    texts = [valid_text(sid, nested(depth)) for depth in (99, 100)]  # each by itself in a batch
    answer = post_raw(shared, f'{{"events": [{", ".join(texts)}]}}', BATCH)
    assert [one["index"] for one in answer.json()["errors"]] == [1]
    for payload in (nested(98), '{"prompt": "\\\\ud83d\\ude00 \\\\\\ud83d"}'):
        assert post_raw(shared, valid_text(sid, payload)).status == 200


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
    hooks = dict.fromkeys((EVENT, BATCH, "/hooks/event"), shared.hook_token)
    for path, token in (hooks | {"/api/v1/sessions/x/events": shared.admin_token}).items():
        answer = shared.https().post(path, token=token, body=body.encode())
        assert_error(answer, 413, "PAYLOAD_TOO_LARGE")
    assert not shared.knows(sid)
    for path in ("/api/v1/health", "/api/v1/admin/reload-hooks", "/api/v1/nope", "/pair"):
        assert_error(shared.https().post(path, body=body.encode()), (401, 404, 405, 413))


def test_300_megabytes(public: Bridge) -> None:
    """D9: the 413 reaches a client that is still sending, and the body is never held in memory."""
    before, sent, piece = public.memory(), 0, b"x" * (256 * 1024)
    with closing(RawSocket(public.port)) as raw:
        raw.socket.sendall(head(public, "Transfer-Encoding: chunked"))
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):  # closed meanwhile
            while sent < 300 * MIB and not raw.buffer:
                raw.socket.settimeout(20)
                raw.socket.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent += len(piece)
                raw.socket.settimeout(0.001)
                with suppress(TimeoutError, ssl.SSLWantReadError):
                    raw.buffer += raw.socket.recv(65536)
        raw.socket.settimeout(20)
        assert_error(raw.response(), 413, "PAYLOAD_TOO_LARGE")
    assert sent < 150 * MIB, "refused while it was being sent"
    assert public.memory() - before < 60 * MIB


def test_a_body_cut_short_is_not_stored(shared: Bridge, sid: str) -> None:
    """The connection breaks in the middle of an otherwise complete event."""
    body = json.dumps(prompt(sid, 1)).encode()
    with closing(RawSocket(shared.port)) as client:
        client.socket.sendall(head(shared, f"Content-Length: {len(body) + 10}") + body)
    shared.accept(prompt(new_session(), 1))
    assert not shared.knows(sid)


@pytest.mark.slow
def test_bodies_of_ten_megabytes(make_bridge: Callable[..., Bridge], sid: str) -> None:
    """Whole events, read, parsed and refused for their age. Unbounded they cost over 320 MB."""
    bridge = make_bridge("bodies")
    payload = {"reason": "x" * (10 * MIB - 400)}
    body = json.dumps(hook("Stop", sid, payload, timestamp="2020-01-01T00:00:00Z")).encode()
    assert 9 * MIB < len(body) < 10 * MIB
    bridge.accept(prompt(sid, 0))
    before = peak(bridge)

    def large(_: int) -> None:
        client = Https(bridge.port, bridge.pin)
        answer = client.post(EVENT, token=bridge.hook_token, body=body)
        assert_error(answer, 400, "HOOK_STALE_TIMESTAMP")

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(large, range(AT_ONCE)))
    assert peak(bridge) - before < 265 * MIB, f"{(peak(bridge) - before) // MIB} MB more"
    bridge.accept(prompt(sid, 1))
