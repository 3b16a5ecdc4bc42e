"""Every row of the contract in short words, and what is a client's own: tests say with
`@pytest.mark.spec(id, ...)` which of them they prove.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.conformance import rows_of_data, rows_of_errors, rows_of_ways


class Row(NamedTuple):
    """`later` is why nothing proves it yet."""

    id: str
    section: str
    says: str
    later: str = ""


# id → why no test proves it: what a client does by itself, and nothing else
CLIENT = "a client's own affair; docs/clients.md says how"
LATER: dict[str, str] = dict.fromkeys(
    (
        "offline.client",
        "wscode.CONN_WEBSOCKET_CLOSED",
        "wscode.SYS_INTERNAL_ERROR",
        "connerror.CONN_TLS_HANDSHAKE_FAILED",
    ),
    CLIENT,
)


def _rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for sections in (rows_of_data.SECTIONS, rows_of_ways.SECTIONS, rows_of_errors.SECTIONS):
        for section, rows in sections.items():
            for id_, says in rows.items():
                assert id_ not in found, f"two rows are called {id_}"
                found[id_] = Row(id_, section, says, LATER.get(id_, ""))
    assert set(LATER) <= set(found), set(LATER) - set(found)
    return found


ROWS = _rows()
