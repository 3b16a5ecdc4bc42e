"""Every row of the contract in short words, and what is not built yet: tests say with `@pytest.mark.spec(id, ...)` which of them they prove."""

from __future__ import annotations

from typing import NamedTuple

from tests.conformance import rows_of_data, rows_of_errors, rows_of_ways


class Row(NamedTuple):
    """`later` is why nothing proves it yet."""

    id: str
    section: str
    says: str
    later: str = ""


# id → why no test proves it: what is not built, and what a client does by itself
AGENTS = "sessions that the bridge runs are not built yet"
CLIENT = "a client's own affair; docs/clients.md says how"
LATER: dict[str, str] = {
    **dict.fromkeys(
        (
            "state.resume",
            "state.not_resumable",
            "state.grace",
            "state.reconnect",
            "state.grace_over",
            "state.order",
            "decision.forwarded",
            "ws.message",
            "ws.stream_start",
            "ws.stream_chunk",
            "ws.stream_end",
            "ws.session_interrupt",
            "ws.replay_buffer.reconnect",
            "wscode.AGENT_ERROR",
            "wscode.TOOL_ERROR",
            "wscode.SESS_NOT_RESUMABLE",
            "wscode.TOOL_TIMEOUT",
            "wscode.CIRCUIT_OPEN",
            "limit.max_sessions.enforced",
            "limit.grace",
            "limit.replay_buffer",
            "limit.tool_timeouts",
            "limit.circuit_breaker",
            "severity.critical",
            "retry.policy",
        ),
        AGENTS,
    ),
    **dict.fromkeys(
        ("offline.client", "limit.client_queue", "wscode.CONN_WEBSOCKET_CLOSED", "wscode.SYS_INTERNAL_ERROR", "connerror.CONN_TLS_HANDSHAKE_FAILED"), CLIENT
    ),
}


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
