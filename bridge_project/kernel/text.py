"""Clean text for database, terminal and lock screen; list names of secret fields."""

import ipaddress
import re
import unicodedata
from typing import Final

# Names of fields whose values are shown to nobody.
SECRET_KEYS: Final = frozenset(
    {
        *("token", "device_token", "hook_token", "admin_token", "access_token"),
        *("authorization", "password", "secret", "api_key"),
    }
)
# controls, and what turns text round; joiners stay, which emoji and words of Persian need
_CONTROLS: Final = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str, *, keep: str = "") -> str:
    """Replace control characters by spaces; NULs fit into no database column."""
    return "".join(c if c.isprintable() or c in keep else " " for c in text).strip()


def valid(text: str) -> str:
    """Join the halves of a character (surrogates), and replace one alone by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean(text: str) -> str:
    """Make a text valid and free of NULs, which a database cannot hold."""
    return valid(text).replace("\x00", "\ufffd")


def terminal_safe(text: str, *, keep: str = "") -> str:
    """Replace characters that move a terminal's cursor or change its colours."""
    return "".join(
        c if c in keep or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )


def without_controls(text: str) -> str:
    """Return text with U+FFFD for control characters and bidirectional marks."""
    return _CONTROLS.sub("\ufffd", text)


def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address or IPv6 /64."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
