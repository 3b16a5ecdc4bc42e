"""Files as a phone sees them in a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import session_in
from tests.conformance.samples import new_id


class Reader:
    """A joined session that works in a directory of this test alone, and what its phone reads
    there.
    """

    def __init__(self, bridge: Bridge, phone: Phone) -> None:
        self.place = bridge.root / f"place ü {new_id()[:8]}"
        self.place.mkdir()
        self.phone, self.sid = phone, session_in(bridge, phone, self.place)

    def write(self, name: str, data: bytes) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def ask(self, type_: str, path: Any, **more: Any) -> Message:
        fields = (
            {"session_id": self.sid, "path": str(path)}
            | ({"offset": 0, "limit": 10_000_000} if type_ == "file_read" else {})
            | more
        )
        return self.phone.request(
            type_, {name: value for name, value in fields.items() if value is not ...}, 30
        )

    def read(self, path: Any, **more: Any) -> dict[str, Any]:
        answer = self.ask("file_read", path, **more)
        assert answer["type"] == "file_read_response", str(answer)[:1000]
        payload = dict(answer["payload"])
        assert set(payload) >= {"session_id", "path", "content", "size", "lines"}
        assert payload["session_id"] == self.sid
        assert isinstance(payload["path"], str)
        assert type(payload["size"]) is int
        assert type(payload["lines"]) is int
        return payload

    def list(self, path: Any) -> dict[str, dict[str, Any]]:
        answer = self.ask("file_list", path)
        assert answer["type"] == "file_list_response", answer
        assert set(answer["payload"]) >= {"session_id", "path", "entries"}
        assert answer["payload"]["session_id"] == self.sid
        entries = {entry["name"]: entry for entry in answer["payload"]["entries"]}
        assert len(entries) == len(answer["payload"]["entries"])
        return entries

    def refused(self, type_: str, path: Any, *codes: str) -> None:
        """An error with one of these codes, recoverable (D12); the connection lives."""
        answer = self.ask(type_, path)
        assert answer["type"] == "error" and answer["payload"]["code"] in codes, str(answer)[:1000]
        assert_refused(answer, answer["payload"]["code"], True, self.sid)
