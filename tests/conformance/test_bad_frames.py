"""Messages and frames that nobody should send (spec, WebSocket errors; D3, D7, D9, D21, D27): a
clear error, the server lives on.
"""

import json
import secrets
import ssl
from contextlib import closing

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import strict_json
from tests.conformance.phone import Closed, Phone
from tests.conformance.raw import PING, PONG, TEXT, RawSocket
from tests.conformance.samples import now
from tests.conformance.test_bad_input import lives_on

__all__ = ["lives_on"]

MIB = 1024 * 1024
CHECK = {"timestamp": now(), "client_nonce": "n", "client_capabilities": []}
GOOD = json.dumps({"type": "health_check", "id": "x-1", "timestamp": now(), "payload": CHECK})
NO_MESSAGES = [
    *("", "hello", "[]", "{", "{}{}", "{}"),
    GOOD.replace('"n"', "NaN"),
    GOOD.replace('"n"', '{"a":' * 15_000 + "1" + "}" * 15_000),
    GOOD.replace('"n"', "9" * 10_000),
    GOOD.replace('"n"', '"cut \\ud83d"'),  # what JavaScript makes of half an emoji
]


@pytest.mark.spec("wscode.PROTO_INVALID_MESSAGE", "ws.error")
def test_what_is_no_message(phone: Phone, device: Phone) -> None:
    """PROTO_INVALID_MESSAGE, when ready and before auth; the connection stays open."""
    device.connect()
    for text in NO_MESSAGES:
        for connection in (phone, device):
            connection.send_raw(text)
            error = connection.expect("error")
            assert "x-1" not in text or error["id"] == "x-1", "D4: a reply carries the request's id"
            answer = error["payload"]
            assert answer["code"] == "PROTO_INVALID_MESSAGE" and answer["message"], answer
            assert len(json.dumps(answer)) < 20_000, "a large message is not sent back"
    phone.ping()
    assert device.auth()["type"] == "connection_ack"


def test_odd_ids(phone: Phone) -> None:
    """D7: an impossible session is a clear error. Ids of acknowledgements: tests/attack."""
    for odd in ("\x00", "\ud800", "x" * 100_000, "", "../../etc/passwd", "%s%n"):
        joining = {"agent": "a", "session_id": odd, "working_directory": "/", "resume": True}
        phone.send("session_start", joining)
        code = phone.expect("error")["payload"]["code"]
        assert code in ("SESS_NOT_FOUND", "PROTO_INVALID_MESSAGE")


def test_a_binary_frame(phone: Phone) -> None:
    """It is told, or closed as RFC 6455 has it (1003); never a crash (1011) or silence."""
    phone.send_raw(GOOD.encode())
    try:
        told = phone.receive()["payload"]["code"]
        phone.ping()
    except Closed as closed:
        told = closed.code
    assert told in ("PROTO_INVALID_MESSAGE", 1003)


@pytest.mark.spec("limit.max_message_size_mb")
def test_nine_megabytes_in_a_frame_are_read(phone: Phone) -> None:
    phone.send("nonsense", {"x": "x" * (9 * MIB)})
    assert phone.expect("error")["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    phone.ping()


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


def test_a_large_message_that_comes_compressed(shared: Bridge) -> None:
    """As browsers send it: the same error, and the close is orderly (D9, D58)."""
    phone = shared.phone()
    phone.compress = True
    own = phone.ready().send("nonsense", {"x": secrets.token_hex(11 * MIB // 2)})
    error = phone.expect("error")
    assert (error["id"], error["payload"]["code"]) == (own, "PAYLOAD_TOO_LARGE")
    assert phone.wait_closed() == 1009


def test_a_message_in_fragments(shared: Bridge) -> None:
    """RFC 6455: with a ping between its parts it is one message."""
    with closing(RawSocket(shared.port).ready(shared.device_token())) as raw:
        text = json.dumps({"type": "heartbeat_ping", "timestamp": now()}).encode()
        raw.frame(text[:10], TEXT, final=False)
        raw.frame(b"between", PING)
        raw.frame(text[10:], 0)
        seen = dict([raw.read_frame(), raw.read_frame()])
        assert seen[PONG] == b"between"
        assert strict_json(seen[TEXT])["type"] == "heartbeat_pong"
