"""A picture is told by its bytes, and one that was cut is not given to a model (D70)."""

import pytest

from bridge_project.kernel.picture_files import is_whole, media_type_of, sides_of
from tests.conformance.test_attachments import png

PREVIEW = b"\xff\xe1\x00\x08\xff\xd8\xff\xd9\0\0"  # a whole picture in the head of another
SCAN = b"\xff\xda\x00\x04\0\0" + b"\x12\x34" * 50
WHOLE = {
    "image/png": png(),
    "image/jpeg": b"\xff\xd8" + PREVIEW + SCAN + b"\xff\xd9",
    "image/gif": b"GIF89a" + b"\x01" * 100 + b";",
    "image/webp": b"RIFF\x68\0\0\0WEBP" + b"\x01" * 100,
}


@pytest.mark.parametrize("media_type", WHOLE)
def test_a_picture_is_whole_until_it_is_cut(media_type: str) -> None:
    """What some cameras append changes nothing."""
    data = WHOLE[media_type]
    assert media_type_of(data) == media_type
    assert is_whole(data)
    assert is_whole(data + (b"" if media_type == "image/gif" else b"more"))
    cuts = [data[:length] for length in range(len(data))]
    assert not [cut for cut in cuts if is_whole(cut)]


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"<svg/>", b"RIFF\x68\0\0\0WAVE", b"%PDF"])
def test_nothing_else_is_a_picture(data: bytes) -> None:
    assert media_type_of(data) == "" and not is_whole(data)


SIDES = {
    "png": png(width=600, height=300),
    "screen": b"GIF89a\x58\2\x2c\1" + bytes(9),
    "frame": b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + b"!\xfe\2hi\0,\x50\2\0\0\x08\0\x2c\1",
    "canvas": b"RIFF\0\0\0\0WEBPVP8X\x0a" + bytes(7) + b"\x57\2\0\x2b\1\0",
    "lossless": b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f\x57\xc2\x4a\0",
    "lossy": b"RIFF\0\0\0\0WEBPVP8 " + bytes(7) + b"\x9d\x01\x2a\x58\2\x2c\1",
    "jpeg": b"\xff\xd8\xff\xe1\0\x08secret\xff\xff\xc2\0\x0b\x08\1\x2c\2\x58\3",
    # what looks like a length there is none to who draws it
    **{
        f"jpeg, {mark:02x}": b"\xff\xd8\xff%c\xff\xe1\0\x08secret\xff\xc2\0\x0b\x08\1\x2c\2\x58\3"
        % mark
        for mark in (0x00, 0x01, 0xD0, 0xD7)
    },
}


@pytest.mark.parametrize("kind", SIDES)
def test_the_sides_of_a_picture(kind: str) -> None:
    """None are known of one that is cut off before it says them."""
    data = SIDES[kind]
    assert sides_of(data) == (600, 300)
    assert {sides_of(data[:length]) for length in range(len(data))} <= {(0, 0), (600, 300)}
    assert sides_of(data[:9]) == (0, 0)
