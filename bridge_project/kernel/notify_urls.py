"""Read the addresses of BRIDGE_NOTIFY_URLS, whose parts are secrets (D74)."""

import re
from typing import Final
from urllib.parse import unquote, urlsplit

_WITH_HOST: Final = ("ntfy", "ntfys", "gotify", "gotifys", "mailto", "mailtos")
# of the others the part where a host would be is a token too
SCHEMAS: Final = (*_WITH_HOST, "slack", "discord", "tgram", "pover")
_FILES: Final = re.compile(r"[?&](attach|pgp\w*)=", re.IGNORECASE)
_SHORTEST_PART: Final = 12  # tokens have more; a name of a user would be found in many a path


def check(text: str) -> str:
    """Check addresses with white space between them.

    Raises ValueError, which repeats none of them.
    """
    for number, url in enumerate(text.split(), 1):
        if url.partition("://")[0].lower() not in SCHEMAS or not url.partition("://")[2]:
            known = ", ".join(f"{schema}://" for schema in SCHEMAS)
            raise ValueError(f"address {number} must begin with one of {known}")
        if _FILES.search(url):
            raise ValueError(f"address {number} must name no file to attach, and no key")
        try:
            host_of(url)
        except ValueError:
            raise ValueError(f"address {number} has a [ that is not written %5B") from None
    return text


def name_of(url: str) -> str:
    """Return what may be shown of an address: schema, and host if it is no secret."""
    schema, host = url.partition("://")[0].lower(), host_of(url)
    return f"{schema}://{host}" if host else f"{schema}://…"


def host_of(url: str) -> str:
    """Return an address's host, or "" where a token or a topic stands in its place."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme.lower() not in _WITH_HOST or not re.search(r"[.:]|^localhost$", host):
        return ""
    return host


def secrets_of(url: str) -> list[str]:
    """Return by what an address would be known: itself, password, long parts."""
    rest, parts = url.partition("://")[2], urlsplit(url)
    found = [url, rest, parts.password or ""]
    if not parts.scheme.lower().startswith("mailto"):
        split = re.split(r"[/:@?&=#,+]", rest)
        found += [part for part in split if len(part) >= _SHORTEST_PART and part != host_of(url)]
    return [secret for one in found if one for secret in dict.fromkeys((one, unquote(one)))]
