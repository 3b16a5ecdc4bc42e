"""A text message as a frame of the WebSocket protocol (RFC 6455, 5.2): what a server sends is the
same for every socket, so it is made once.
"""

from __future__ import annotations

_FINAL_TEXT = 0x81


def text_frame(text: str) -> bytes:
    """The whole frame: final, text, unmasked as a server's frames are, and uncompressed."""
    payload = text.encode()
    size = len(payload)
    if size < 126:
        return bytes((_FINAL_TEXT, size)) + payload
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload
