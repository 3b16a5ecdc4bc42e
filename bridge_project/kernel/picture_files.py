"""Tell by its bytes whether a file is a picture, how large, and whole. Pure."""

import hashlib
import struct
import uuid
from typing import Any, Final, NamedTuple

from bridge_project.kernel.limits import PICTURE_PIXELS

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
_ALONE: Final = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})  # markers without a length
_HEAD_BYTES: Final = 1 << 18  # a JPEG's size stands behind what its camera says
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # those that say its size


def media_type_of(data: bytes) -> str:
    """Return the media type of a picture by its first bytes; "" for anything else.

    A picture of more than PICTURE_PIXELS is none: to draw it takes all memory of a phone.
    """
    width, height = sides_of(data)
    return _type_of(data) if width * height <= PICTURE_PIXELS else ""


def _type_of(data: bytes) -> str:
    if data.startswith(_PNG):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return ""


def sides_of(data: bytes) -> tuple[int, int]:
    """Return width and height of a picture; zeros where its head says none."""
    data = data[:_HEAD_BYTES]
    try:
        match _type_of(data):
            case "image/png":
                return struct.unpack_from(">II", data, 16)
            case "image/jpeg":
                return _jpeg_sides(data)
            case "image/gif":
                return _gif_sides(data)
            case "image/webp":
                return _webp_sides(data)
    except (struct.error, IndexError):
        pass  # it is cut off before its size
    return 0, 0


def _jpeg_sides(data: bytes) -> tuple[int, int]:
    at = 2
    while data[at] == 0xFF:
        if data[at + 1] in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at = _jpeg_next(data, at)
    return 0, 0


def _jpeg_next(data: bytes, at: int) -> int:
    """Return where the next marker of a JPEG stands, as its decoders go on."""
    if data[at + 1] == 0xFF:  # it is filled up
        return at + 1
    if data[at + 1] in _ALONE:
        return at + 2
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def _gif_sides(data: bytes) -> tuple[int, int]:
    """Return the larger of screen and first frame, as browsers draw it."""
    width, height = struct.unpack_from("<HH", data, 6)
    at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)  # behind its colours
    while data[at] == 0x21:  # an extension: its kind, and blocks
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    if data[at] == 0x2C:
        left, top, wide, high = struct.unpack_from("<HHHH", data, at + 1)
        width, height = max(width, left + wide), max(height, top + high)
    return width, height


def _webp_sides(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            [width], [height] = (struct.unpack_from("<I", data, at) for at in (24, 26))
            return (width & 0xFFFFFF) + 1, (height >> 8) + 1
        case b"VP8L":
            [both] = struct.unpack_from("<I", data, 21)
            return (both & 0x3FFF) + 1, (both >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def is_whole(data: bytes) -> bool:
    """Return whether a picture's last part is there.

    More may follow it, as in some photos. A model that is given half a picture refuses each message
    of the conversation from then on.
    """
    match _type_of(data):
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
        at = _jpeg_next(data, at)
    return False
