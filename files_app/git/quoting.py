"""Names as git writes them in text: in quotes, with escapes, where a name would not fit on a
line.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}


def unquoted(text: bytes) -> bytes:
    """The name itself; text that is not in quotes is one already."""
    if len(text) < 2 or not (text.startswith(b'"') and text.endswith(b'"')):
        return text
    return _ESCAPE.sub(
        lambda found: _LETTERS[found[1]] if found[1] in _LETTERS else _byte(found[1]), text[1:-1]
    )


def _byte(digits: bytes) -> bytes:
    return bytes([int(digits, 8) & 0xFF]) if len(digits) == 3 else digits
