"""Tell by a file's bytes whether it is a picture, and a whole one. Pure."""

import hashlib
import uuid
from typing import Any, Final, NamedTuple

EXTENSIONS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
}
"""The media types that count as pictures (D70)."""


class Picture(NamedTuple):
    """Hold a picture with its media type."""

    media_type: str
    data: bytes

    @property
    def attachment_id(self) -> str:
        """Return the id under which an agent's picture is kept, made of its bytes."""
        return str(uuid.uuid5(_IDS, hashlib.sha256(self.data).hexdigest()))

    @property
    def name(self) -> str:
        return f"picture{EXTENSIONS[self.media_type]}"

    def block(self) -> dict[str, Any]:
        """Return what stands in the place of an agent's picture (D70)."""
        about = {"attachment_id": self.attachment_id, "media_type": self.media_type}
        return {"type": "image", **about, "size": len(self.data)}


def picture_of(data: bytes) -> Picture | None:
    """Return the picture that a file is, by its first bytes; None for anything else."""
    kind = media_type_of(data)
    return Picture(kind, data) if kind else None


_IDS: Final = uuid.UUID("6f1c2a4e-6a53-4f0e-9d53-6c1b1d0f7a70")
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG_END: Final = b"\xff\xd9"
_SCAN: Final = 0xDA  # the marker after which a JPEG's picture itself comes


def media_type_of(data: bytes) -> str:
    """Return the media type of a picture by its first bytes; "" for anything else."""
    if data.startswith(_PNG):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return ""


def is_whole(data: bytes) -> bool:
    """Return whether a picture's last part is there.

    More may follow it, as in some photos. A model that is given half a picture refuses each message
    of the conversation from then on.
    """
    match media_type_of(data):
        case "image/png":
            return _png_ends(data)
        case "image/jpeg":
            return _jpeg_ends(data)
        case "image/gif":
            return data.rstrip(b"\0").endswith(b";")
        case "image/webp":
            return int.from_bytes(data[4:8], "little") <= len(data) - 8
    return False


def _png_ends(data: bytes) -> bool:
    at = len(_PNG)
    while at + 12 <= len(data):
        if data[at + 4 : at + 8] == b"IEND":
            return True
        at += 12 + int.from_bytes(data[at : at + 4], "big")  # its length, name and checksum
    return False


def _jpeg_ends(data: bytes) -> bool:
    """Return whether an end follows the scan: a preview in the head has one too."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        if data[at + 1] == _SCAN:
            return data.find(_JPEG_END, at) > 0
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False
