"""Pictures and files of a session: sent, kept, given back, and refused (D70)."""

import base64
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.agent_tools import Script, http_say, quick_bridge
from tests.conformance.agents import begin, end, say, words
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge, query
from tests.conformance.https import Response, assert_error, is_uuid
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, prompt
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import wait_until

MB = 2**20


def png(size: int = 8192, width: int = 1, height: int = 1) -> bytes:
    """A whole picture of about this size, which says these sides."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\1\2\3")) + chunk(b"teXt", b"x" * size)
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


PNG = png()


HEADERS = {
    "name": "X-File-Name",
    "client_id": "X-Client-Id",
    "type": "Content-Type",
    "coding": "Content-Encoding",
}


def upload(bridge: Bridge, session_id: str, data: bytes = PNG, **more: str) -> Response:
    headers = {HEADERS[key]: value for key, value in more.items() if key != "token"}
    where = f"/api/v1/sessions/{quote(session_id, safe='')}/attachments"
    token = more.get("token", bridge.admin_token)
    return bridge.https().post(where, token=token, body=data, headers=headers)


def sent(bridge: Bridge, session_id: str, data: bytes = PNG, **more: str) -> dict[str, Any]:
    answer = upload(bridge, session_id, data, **more)
    assert answer.status == 201, answer
    return dict(answer.json())


def fetch(bridge: Bridge, session_id: str, attachment_id: str, token: str = "") -> Response:
    where = f"/api/v1/sessions/{session_id}/attachments/{attachment_id}"
    return bridge.get(where, token or bridge.admin_token)


def kept(bridge: Bridge) -> list[Path]:
    return [path for path in (bridge.data / "attachments").rglob("*") if path.is_file()]


@pytest.mark.spec("http.attachments.upload http.attachment.get")
def test_an_attachment_comes_back_as_it_was_sent(
    shared: Bridge, session: str, device: Phone
) -> None:
    """By devices and the administrator; its directory is closed to others."""
    for token in (device.token, shared.admin_token):
        body = sent(shared, session, name="a%20b.png", type="text/html", token=token)
        assert is_uuid(body["attachment_id"])
        digest = hashlib.sha256(PNG).hexdigest()
        known = {"name": "a b.png", "type": "image/png", "size": len(PNG), "sha256": digest}
        assert body == known | {"attachment_id": body["attachment_id"]}
        answer = fetch(shared, session, body["attachment_id"], token)
        assert (answer.status, answer.body) == (200, PNG)
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["content-disposition"] == 'inline; filename="a b.png"'
    (path,) = [path for path in kept(shared) if path.name == body["attachment_id"]]
    modes = [one.stat().st_mode & 0o777 for one in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    hook = fetch(shared, session, body["attachment_id"], shared.hook_token)
    assert_error(hook, 403, "AUTH_INSUFFICIENT_SCOPE")
    assert_error(upload(shared, session, token=shared.hook_token), 403, "AUTH_INSUFFICIENT_SCOPE")
    assert_error(upload(shared, session, token="x"), 401, "AUTH_INVALID_TOKEN")


TYPES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + bytes(20),
    "image/gif": b"GIF89a" + bytes(20),
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "application/octet-stream": b"%PDF-1.7",
}
NO_PICTURES = (
    b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    b"<!doctype html><script>alert(1)</script>",
    b"RIFF\x10\0\0\0WAVE",
    b"",
    png(width=30_000, height=30_000),  # drawn, it takes gigabytes
    b"GIF89a=1;alert(1)//",  # a script too
)


@pytest.mark.spec("http.attachment.type http.attachment.headers")
def test_its_type_is_that_of_its_first_bytes(shared: Bridge, session: str) -> None:
    """What the sender says counts nothing; what is no picture is only saved, never shown."""
    cases = [*TYPES.items(), *[("application/octet-stream", data) for data in NO_PICTURES]]
    for type_, data in cases:
        body = sent(shared, session, data, type="image/png", name="cat.png")
        assert body["type"] == type_
        answer = fetch(shared, session, body["attachment_id"])
        assert answer.body == data and answer.headers["content-type"] == type_
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        shown = answer.headers["content-disposition"].partition(";")[0]
        assert shown == ("inline" if type_.startswith("image/") else "attachment"), data


NAMES = {
    "": "picture.png",
    "..": "picture.png",
    "/etc/passwd": "passwd",
    "..%2f..%2Fx.png": "x.png",
    "C:\\photos\\cat.png": "cat.png",
    "%E2%80%AEgnp.exe": "gnp.exe",
    "a%0D%0ASet-Cookie:%20b%00.png": "a Set-Cookie: b .png",
    quote("Großes Bild 会话.png"): "Großes Bild 会话.png",
    "x" * 300 + ".png": "x" * 251 + ".png",
    quote("ü" * 200): "ü" * 127,
    "%ff.png": "\N{REPLACEMENT CHARACTER}.png",
}


@pytest.mark.spec("http.attachment.name")
def test_names_are_made_usable(shared: Bridge, session: str) -> None:
    for given, usable in NAMES.items():
        body = sent(shared, session, name=given)
        assert body["name"] == usable
        answer = fetch(shared, session, body["attachment_id"])
        assert answer.status == 200 and "set-cookie" not in answer.headers


@pytest.mark.spec("http.attachments.idempotence")
def test_what_is_sent_twice_is_kept_once(shared: Bridge, session: str) -> None:
    """The same id and bytes; another id, other bytes, or no id, is another one."""
    own = new_id()
    first = sent(shared, session, client_id=own, name="one.png")
    before = len(kept(shared))
    assert sent(shared, session, client_id=own, name="two.png") == first
    assert len(kept(shared)) == before
    others = [
        sent(shared, session, client_id=own, data=PNG + b"x"),
        sent(shared, session, client_id=new_id()),
        *[sent(shared, session) for _ in range(2)],
    ]
    assert len({one["attachment_id"] for one in (first, *others)}) == 5
    for bad in ("x" * 129, "a\x80b"):
        assert_error(upload(shared, session, client_id=bad), 400, "VALIDATION_ERROR")


@pytest.mark.spec("http.attachments.refused")
def test_where_none_is_taken(shared: Bridge, phone: Phone, sid: str) -> None:
    """Of no session, an observed one, a closed one: whose attachments are still there."""
    assert_error(upload(shared, sid), 404, "SESSION_NOT_FOUND")
    assert_error(fetch(shared, sid, new_id()), 404, "SESSION_NOT_FOUND")
    shared.accept(prompt(sid, 1))
    assert_error(upload(shared, sid), 409, "SESSION_CLOSED")
    session, other = begin(shared, phone), begin(shared, phone)
    attachment_id = sent(shared, session)["attachment_id"]
    for wrong in (new_id(), "x", "..", "%00", "%2e%2e%2f1"):
        assert_error(fetch(shared, session, wrong), 404)
    assert_error(fetch(shared, other, attachment_id), 404, "NOT_FOUND")
    end(phone, session)
    assert_error(upload(shared, session), 409, "SESSION_CLOSED")
    assert fetch(shared, session, attachment_id).body == PNG
    form = upload(shared, other, type="multipart/form-data; boundary=x")
    for wrong_kind in (form, upload(shared, other, coding="gzip")):
        assert_error(wrong_kind, 415, "UNSUPPORTED_MEDIA_TYPE")
    end(phone, other)


@pytest.mark.spec("http.attachments.size")
def test_ten_megabytes_and_one_byte(shared: Bridge, session: str) -> None:
    body = sent(shared, session, bytes(10 * MB))
    assert fetch(shared, session, body["attachment_id"]).body == bytes(10 * MB)
    before = len(kept(shared))
    assert_error(upload(shared, session, bytes(10 * MB + 1)), 413, "PAYLOAD_TOO_LARGE")
    assert len(kept(shared)) == before


def test_an_upload_that_is_cut(shared: Bridge, session: str) -> None:
    """Nothing of it is kept."""
    before = set(kept(shared))
    where = f"/api/v1/sessions/{session}/attachments"
    head = f"POST {where} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
    with shared.https().stream() as connection:
        connection.sendall(f"{head}Authorization: Bearer {shared.admin_token}\r\n\r\n".encode())
        connection.sendall(PNG)
    body = sent(shared, session)
    assert {path.name for path in set(kept(shared)) - before} == {body["attachment_id"]}


def prompt_of(phone: Phone, session_id: str, attached: list[str]) -> dict[str, Any]:
    """Send a message with attachments; what the devices are shown of it."""
    body = {"session_id": session_id, "content": "Look.", "role": "user", "attachments": attached}
    phone.send("message", body)
    event = phone.expect("agent_event", session_id=session_id, event="UserPromptSubmit")
    return dict(event["payload"]["payload"])


def about(body: dict[str, Any], given: str | None, **more: str) -> dict[str, Any]:
    names = ("attachment_id", "name", "type", "size")
    return {name: body[name] for name in names} | {"given": given} | more


@pytest.mark.spec("message.attachments message.given")
def test_an_agent_is_given_what_is_attached(shared: Bridge, phone: Phone, session: str) -> None:
    """A picture as one, if it is not too large; a copy of any other file, whose path it is told."""
    large, half = png(4_000_000), PNG[:-20]
    small, big = sent(shared, session, name="s.png"), sent(shared, session, large, name="b.png")
    note = sent(shared, session, b"A note.", name="no te.txt")
    cut = sent(shared, session, half, name="half.png")
    tall = sent(shared, session, png(height=8001), name="tall.png")
    every = [small, big, note, cut, tall]
    shown = prompt_of(phone, session, [one["attachment_id"] for one in every])
    assert shown["attachments"] == [
        about(small, "picture"),
        about(big, "file"),
        about(note, "file"),
        about(cut, None, reason="The picture is cut off."),
        about(tall, "file"),
    ]
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    said = words(phone.messages)
    assert said.endswith(" [image/png, 8 KB]")
    copies = [Path(line) for line in said.removesuffix(" [image/png, 8 KB]").splitlines()[-3:]]
    assert [path.name for path in copies] == ["b.png", "no te.txt", "tall.png"]
    assert [path.read_bytes() for path in copies] == [large, b"A note.", png(height=8001)]
    end(phone, session)
    wait_until(lambda: not any(path.exists() for path in copies), "the copies end with the agent")


@pytest.mark.spec("http.session.attachments")
def test_what_is_said_over_http_has_attachments(shared: Bridge, phone: Phone, session: str) -> None:
    """As over the socket; refused whole where one is not there."""
    picture = sent(shared, session, name="a.png")
    said = {"type": "user_message", "content": "Look.", "attachments": [picture["attachment_id"]]}
    assert http_say(shared, session, said).status == 202
    shown = phone.expect("agent_event", session_id=session, event="UserPromptSubmit")["payload"]
    assert shown["payload"]["attachments"] == [about(picture, "picture")]
    for wrong in ([new_id()], [new_id()] * 11, "x"):
        answer = http_say(shared, session, said | {"attachments": wrong})
        assert_error(answer, 400, "VALIDATION_ERROR")


@pytest.mark.spec("message.attachments.refused")
def test_a_message_whose_attachment_is_not_there(
    shared: Bridge, phone: Phone, session: str
) -> None:
    """Refused whole: nothing is shown of it, and nothing is given."""
    good, gone = (sent(shared, session)["attachment_id"] for _ in range(2))
    [path] = [path for path in kept(shared) if path.name == gone]
    path.unlink()
    other = begin(shared, phone)
    foreign = sent(shared, other)["attachment_id"]
    message = {"session_id": session, "content": "Look.", "role": "user"}
    for bad in (new_id(), "..", foreign, gone):
        answer = phone.request("message", message | {"attachments": [good, bad]})
        assert answer["payload"]["code"] == "PROTO_INVALID_MESSAGE", answer
        assert answer["payload"]["violations"][0]["field"] == "attachments[1]"
    for wrong in ([good] * 11, "x", [1], ["x" * 37], [""]):
        answer = phone.request("message", message | {"attachments": wrong})
        assert answer["payload"]["code"] == "PROTO_INVALID_MESSAGE", answer
    assert prompt_of(phone, session, [good])["attachments"][0]["given"] == "picture"
    end(phone, other)


SHOWS = """/do picture = {{'type': 'image', 'data': '{data}', 'mimeType': 'image/png'}}
update('agent_message_chunk', content=picture)
say(' and ')
say('data:image/png;base64,{data}.')
content = [{{'type': 'content', 'content': picture}}]
about = {{'title': 'Look', 'kind': 'read', 'status': 'completed', 'content': content}}
update('tool_call', toolCallId='c', **about)"""


@pytest.mark.spec("stream.pictures result.pictures")
def test_pictures_of_agents_are_kept(tmp_path: Path) -> None:
    """D70: of an answer and a result, once each; where they stand is a label."""
    script, picture, name = Script(tmp_path, "plain"), PNG, "[image/png, 8 KB]"
    with quick_bridge(tmp_path / "b", script) as bridge, bridge.phones() as [phone]:
        session = begin(bridge, phone, agent="plain")
        say(phone, session, SHOWS.format(data=base64.b64encode(picture).decode()))
        phone.expect("stream_end", session_id=session, finish_reason="stop")
        chunks = [one["payload"] for one in of(phone, "stream_chunk", session)]
        assert words(phone.messages) == f"{name} and {name}."
        blocks = [block for chunk in chunks for block in chunk.get("pictures", ())]
        [result] = [one["payload"]["result"] for one in of(phone, "tool_result", session)]
        assert result["content"] == name
        assert [*blocks, *result["pictures"]] == [blocks[0]] * 3
        known = {"type": "image", "media_type": "image/png", "size": len(picture)}
        assert blocks[0] == known | {"attachment_id": blocks[0]["attachment_id"]}
        assert fetch(bridge, session, blocks[0]["attachment_id"]).body == picture
        assert len(kept(bridge)) == 1
        end(phone, session)


BOUNDS = with_limits(ATTACHMENTS_SESSION_BYTES=MB, ATTACHMENTS_TOTAL_BYTES=3 * MB // 2)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[QuickBridge]:
    with QuickBridge(tmp_path, first=BOUNDS) as bridge:
        bridge.pin = bridge.pairing().pin
        yield bridge


@pytest.mark.spec("http.attachments.kept")
def test_the_oldest_make_room(small: QuickBridge) -> None:
    """In their session, and in all; a forgotten session's go with it."""
    quarter = bytes(MB // 4)
    with small.phones() as [phone]:
        one, two = begin(small, phone), begin(small, phone)
        of_one = [sent(small, one, quarter)["attachment_id"] for _ in range(5)]
        assert [fetch(small, one, each).status for each in of_one] == [404, 200, 200, 200, 200]
        of_two = [sent(small, two, quarter)["attachment_id"] for _ in range(3)]
        assert [fetch(small, one, each).status for each in of_one] == [404, 404, 200, 200, 200]
        assert [fetch(small, two, each).status for each in of_two] == [200, 200, 200]
        assert {path.name for path in kept(small)} == {*of_one[2:], *of_two}
        end(phone, one)
    left = small.data / "attachments" / "9" / "left-by-a-crash"
    left.parent.mkdir()
    left.touch()
    for path in kept(small):
        os.utime(path, (0, 0))
    old = "UPDATE sessions_app_session SET last_activity_at = '2020-01-01' WHERE closed_at NOTNULL"
    query(small.data / "bridge.sqlite3", old)
    small.manage("prune")
    assert {path.name for path in kept(small)} == {*of_two}
