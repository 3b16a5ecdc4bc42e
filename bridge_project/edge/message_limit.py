# ruff: noqa: N802 - the names are autobahn's
"""Refuse a message over the limit; send an `error` if its id has been read (D9)."""

from bridge_project.edge.handshake import Handshake  # isort: skip  installs the reactor: comes first
from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.parse import id_at_beginning

TOO_BIG = 1009


class MessageLimit(Handshake):
    """Run a WebSocket that closes on a message over the limit, found in a first frame.

    Of a plain one the beginning is awaited, in which clients put the id: the sender is told which
    it was.
    """

    authenticated = False
    _too_large = ""  # the reason for the close, while the beginning is awaited

    def _max_message_size_exceeded(self, size: int, most: int, reason: str) -> None:
        self._too_large = reason
        # no more will be inflated, and an earlier frame of the message had its beginning
        if self._isMessageCompressed or self.message_data or not self.authenticated:
            self._refuse_too_large()

    def onMessageFrameData(self, payload: bytes) -> None:
        super().onMessageFrameData(payload)
        if self._too_large and len(self._beginning()) == limits.MESSAGE_BEGINNING_BYTES:
            self._refuse_too_large()

    def _refuse_too_large(self) -> None:
        reason, self._too_large = self._too_large, ""
        id = id_at_beginning(self._beginning().decode(errors="ignore"))
        if id is not None and self.authenticated:
            most = self.maxMessagePayloadSize // 2**20
            error = BridgeError("PAYLOAD_TOO_LARGE", f"A message has at most {most} MB.")
            self.serverSend(encode(error_payload(error), id=id).text)
        self._fail_connection(TOO_BIG, reason)

    def _beginning(self) -> bytes:
        """Return the beginning of the message that is being received."""
        found = b""
        for piece in (*self.message_data, *(self.frame_data or ())):
            found += piece[: limits.MESSAGE_BEGINNING_BYTES - len(found)]
            if len(found) == limits.MESSAGE_BEGINNING_BYTES:
                break
        return found
