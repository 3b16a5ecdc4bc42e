"""Files as a phone sees them in a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_types
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import session_in
from tests.conformance.samples import new_id


class Reader:
    """A joined session in a directory of this test alone, and what its phone reads there."""

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
        """Ask for all lines of a file, unless `more` says which; `...` leaves a field out."""
        fields = {"session_id": self.sid, "path": str(path)}
        whole = {"offset": 0, "limit": 10_000_000} if type_ == "file_read" else {}
        asked = {name: value for name, value in (fields | whole | more).items() if value is not ...}
        return self.phone.request(type_, asked, 30)

    def read(self, path: Any, **more: Any) -> dict[str, Any]:
        answer = self.ask("file_read", path, **more)
        assert answer["type"] == "file_read_response", str(answer)[:1000]
        payload = dict(answer["payload"])
        assert_types(payload, session_id=str, path=str, content=str, size=int, lines=int)
        assert payload["session_id"] == self.sid
        return payload

    def list(self, path: Any) -> dict[str, dict[str, Any]]:
        answer = self.ask("file_list", path)
        assert answer["type"] == "file_list_response", answer
        payload = answer["payload"]
        assert payload["session_id"] == self.sid and isinstance(payload["path"], str)
        entries = {entry["name"]: entry for entry in payload["entries"]}
        assert len(entries) == len(payload["entries"])
        return entries

    def refused(self, type_: str, path: Any, *codes: str) -> None:
        """An error with one of these codes, recoverable (D12)."""
        answer = self.ask(type_, path)
        assert answer["payload"].get("code") in codes, str(answer)[:1000]
        assert_refused(answer, answer["payload"]["code"], True, self.sid)
