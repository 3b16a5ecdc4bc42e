"""Messages and frames that nobody should send (spec, WebSocket errors; D3, D8, D9, D38)."""

import json
import secrets
import ssl
import zlib
from typing import Any

import pytest

from tests.conformance.approvals import ask, assert_recorded, assert_refused, decision_of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.raw import CLOSE, TEXT, RawSocket, encoded
from tests.conformance.samples import now
from tests.conformance.test_bad_input import ODD_VALUES
from tests.servers import PATIENCE

MIB = 1024 * 1024
CHECK = {"timestamp": now(), "client_nonce": "n", "client_capabilities": []}
GOOD = json.dumps({"type": "health_check", "id": "x-1", "timestamp": now(), "payload": CHECK})
NO_MESSAGES: list[str | bytes] = [
    GOOD.encode(),  # in a binary frame
    *("", "hello", "[]", "{", "{}{}", "{}"),
    GOOD.replace('"n"', "NaN"),
    GOOD.replace('"n"', '{"a":' * 15_000 + "1" + "}" * 15_000),
    GOOD.replace('"n"', "9" * 10_000),
]


@pytest.mark.spec("wscode.PROTO_INVALID_MESSAGE", "ws.error")
def test_what_is_no_message(phone: Phone, device: Phone) -> None:
    """PROTO_INVALID_MESSAGE, when ready and before auth; the connection stays open."""
    device.connect()
    for text in NO_MESSAGES:
        for connection in (phone, device):
            connection.send_raw(text)
            error = connection.expect("error")
            if isinstance(text, str) and "x-1" in text:
                assert error["id"] == "x-1", "D4: a reply carries the request's id"
            answer = error["payload"]
            assert answer["code"] == "PROTO_INVALID_MESSAGE" and answer["message"], answer
            assert len(json.dumps(answer)) < 20_000, "a large message is not sent back"
    phone.ping()
    assert device.auth()["type"] == "connection_ack"


@pytest.mark.parametrize("framing", ["one frame", "fragments"])
@pytest.mark.spec("limit.max_message_size_mb")
def test_which_message_was_too_large_is_said(shared: Bridge, framing: str) -> None:
    """D9: an `error` with its id, then the close 1009; nothing of it is acted on."""
    raw = RawSocket(shared.port).ready(shared.device_token())
    head = b'{"type": "message", "id": "the-large-one", "payload": {"id": "inner", "content": "'
    try:
        if framing == "one frame":
            raw.frame(head + b"x" * (11 * MIB) + b'"}}', TEXT)
        else:
            for number in range(44):
                data = b"x" * (256 * 1024) if number else head
                raw.frame(data, 0 if number else TEXT, final=False)
    except (ConnectionError, ssl.SSLError):
        pass  # it is closed while it still sends
    [error], code = raw.until_closed()
    raw.close()
    assert (error["type"], error["id"], code) == ("error", "the-large-one", 1009)
    assert error["payload"]["code"] == "PAYLOAD_TOO_LARGE"
    assert error["payload"]["recoverable"] is False


@pytest.mark.parametrize("random", [11 * MIB, 5 * MIB, 0])
def test_a_large_message_that_comes_compressed(shared: Bridge, random: int) -> None:
    """As browsers send it: the same error, and the close is orderly (D9, D58); whether it is over
    the limit as it comes, or comes in many pieces, or in one.
    """
    phone = shared.phone(compress=True)
    own = phone.ready().send("nonsense", {"x": secrets.token_hex(random).ljust(11 * MIB)})
    error = phone.expect("error")
    assert (error["id"], error["payload"]["code"]) == (own, "PAYLOAD_TOO_LARGE")
    assert phone.wait_closed() == 1009


@pytest.mark.usefixtures("database")
@pytest.mark.spec("record.modifications")
def test_odd_modifications(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D38: taken or refused, on every database; the question stays open while they are refused."""
    for text in ODD_VALUES:
        call_id = ask(bridge, joined, sid, {"odd": text[:40]})
        fields = f'"session_id": "{sid}", "tool_call_id": "{call_id}", "decision": "modified"'
        head = f'"type": "approval_response", "id": "odd", "timestamp": "{now()}"'
        joined.send_raw(f'{{{head}, "payload": {{{fields}, "modifications": {{"odd": {text}}}}}}}')
        answer = joined.until(lambda message: message["id"] == "odd", text[:40])
        if answer["type"] == "error":
            assert_refused(answer, "PROTO_INVALID_MESSAGE", True)
        else:
            assert_recorded(answer, sid, call_id, "modified")


@pytest.mark.usefixtures("database")
def test_odd_words_of_a_client(bridge: Bridge, sid: str, joined: Phone) -> None:
    """NULs in ids: unknown or no message, on every database."""
    for odd in ("\x00", "a\x00b", "x" * 100_000):
        requests: list[tuple[str, dict[str, Any]]] = [
            ("approval_response", decision_of(sid, odd, "approved")),
            ("replay_request", {"session_id": sid, "after_id": odd}),
            ("git_commit", {"session_id": sid, "message": odd, "files": [odd]}),
            ("session_end", {"session_id": sid, "reason": odd}),
            ("replay_request", {"session_id": odd}),
            ("session_start", {"session_id": odd, "agent": "a", "resume": True}),
        ]
        for type_, fields in requests:
            code = joined.request(type_, fields)["payload"].get("code")
            assert code not in ("STORAGE_UNAVAILABLE", "BRIDGE_ERROR"), (type_, code)
        joined.ack(odd)


def test_a_compressed_message_that_is_too_large_and_broken(shared: Bridge) -> None:
    """Its beginning is no more than looked at: the close is the same, and nothing escapes."""
    raw = RawSocket(shared.port, timeout=PATIENCE)
    raw.upgrade(headers={"Sec-WebSocket-Extensions": "permessage-deflate"})
    device = {"token": shared.device_token(), "client_version": "1.2.3", "platform": "android"}
    raw.send("auth", device)
    raw.read_frame()
    good = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    data = good.compress(b'{"id": "one"') + good.flush(zlib.Z_SYNC_FLUSH) + b"\x07" + b"\xff" * 9000
    raw.socket.sendall(encoded(data.ljust(11 * MIB), reserved=4)[: 2**14])
    while (frame := raw.read_frame())[0] != CLOSE:
        pass
    assert int.from_bytes(frame[1][:2]) == 1009
