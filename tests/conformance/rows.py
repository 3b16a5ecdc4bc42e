"""Every row of the contract in short words (rows.toml), and what is a client's own: tests say with
`@pytest.mark.spec(id, ...)` which of them they prove.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

from bridge_project.protocol.base import Payload
from bridge_project.protocol.catalogue import CATALOGUE


class Row(NamedTuple):
    """`later` is why nothing proves it yet."""

    id: str
    section: str
    says: str
    later: str = ""


# what a client does by itself, and nothing else: no test proves it
OF_CLIENTS = (
    "offline.client",
    "wscode.CONN_WEBSOCKET_CLOSED",
    "wscode.SYS_INTERNAL_ERROR",
    "connerror.CONN_TLS_HANDSHAKE_FAILED",
)
CLIENT = "a client's own affair; docs/clients.md says how"


def _fields_of(model: type[Payload]) -> str:
    answers = f"; answered by {' or '.join(model.reply)}" if model.reply else ""
    return f"{model.type}: {', '.join(model.model_fields) or 'a timestamp'}{answers}"


def _rows() -> dict[str, Row]:
    sections = tomllib.loads(Path(__file__).with_name("rows.toml").read_text(encoding="utf-8"))
    messages = {f"ws.{type_}": _fields_of(model) for type_, model in CATALOGUE.items()}
    sections["WebSocket operations"] = messages | sections["WebSocket operations"]
    found = [
        Row(id_, section, says, CLIENT if id_ in OF_CLIENTS else "")
        for section, rows in sections.items()
        for id_, says in rows.items()
    ]
    rows = {row.id: row for row in found}
    assert len(rows) == len(found) and set(OF_CLIENTS) <= set(rows)
    return rows


ROWS = _rows()
