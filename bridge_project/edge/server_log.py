"""Log the server's requests, sockets and errors, without query strings."""

import logging
from typing import Any
from urllib.parse import quote

from bridge_project.edge.request import raw_response  # isort: skip  sets the reactor
from twisted.logger import LogLevel

from bridge_project.http import error_body
from bridge_project.kernel.errors import BridgeError
from bridge_project.network.transport import Transport

log = logging.getLogger("bridge.server")
access = logging.getLogger("bridge.access")


class ServerLog:
    """Log what daphne's protocols and ours report to the server."""

    def log_failure(self, error: BaseException, request_id: str) -> None:
        log.error("The application failed (request_id %s): %s", request_id, error, exc_info=error)

    def log_action(self, protocol: str, action: str, details: dict[str, Any]) -> None:
        """Log what daphne reports, without query strings: they may hold a token."""
        client = str(details.get("client") or "-").rpartition(":")[0]
        path = str(details["path"]).encode()
        if action == "complete":
            method, status = details["method"].encode(), details["status"]
            size, seconds = details["size"], details["time_taken"]
            self.log_access(method, path, status, client, size, seconds)
        elif action in ("connected", "disconnected"):
            who = {"client": client, "code": "WebSocket"}
            access.info("WebSocket %s %s %s", _printable(path), action, client, extra=who)

    def log_access(
        self,
        method: bytes,
        path: bytes,
        status: int,
        client: str,
        size: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Log a request that was answered.

        Not a refusal, which is logged where it is made, with its code. Not an accepted event, which
        is in the database; a line for each would cost a fifth of what serving it does.
        """
        if 400 <= status < 500 or (status < 300 and b"/hooks/" in path):
            return
        who = {"client": client, "code": str(status)} if status < 500 else {}
        what = (_printable(method), _printable(path), status, client, size, seconds * 1000)
        access.info("%s %s %d %s %d bytes %.0f ms", *what, extra=who)

    def error_response(
        self,
        error: BridgeError,
        request_id: str,
        status: int,
        bridge: Transport,
        method: bytes,
        path: bytes,
    ) -> bytes:
        """Make the response of an error that the edge answers, and log it."""
        if status >= 500:  # an exception is in the log already
            self.log_access(method, path, status, bridge.client)
        else:
            where = {"path": _printable(path)[:200], "client": bridge.client}
            where |= {"method": _printable(method), "request_id": request_id}
            error_body.log_error(error.code, status=status, **where)
        answer = error_body.error_answer(error, request_id, bridge.base_url, status=status)
        headers = {**answer.headers, "Cache-Control": "no-store"}
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        return raw_response(status, named, answer.body)


def _printable(text: bytes) -> str:
    return quote(text.partition(b"?")[0], safe="/-._~!$&'()*+,;=:@%")


def forward_failures(event: dict[str, Any]) -> None:
    """Forward only unhandled failures from twisted's log to ours."""
    if event.get("log_level") is LogLevel.critical:
        failure = event.get("log_failure")
        log.error(
            "Unhandled error in the server: %s",
            failure.getErrorMessage() if failure else event.get("log_format"),
            exc_info=failure and failure.value,
        )
