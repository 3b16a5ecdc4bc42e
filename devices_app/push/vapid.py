"""Keep the key that signs the bridge's pushes, and sign with it (D56; RFC 8292)."""

import time
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02
from py_vapid.utils import b64urldecode, b64urlencode

from bridge_project.kernel.config import conf
from bridge_project.network.authority import PRIVATE_DOMAINS
from bridge_project.network.transport import parse_address

SIGNED_SECONDS: Final = 12 * 3600  # a service takes at most 24 hours
# Apple refuses a contact whose host it cannot know, as `.local`; so a bridge without a public name
# has one in the domain that is nobody's.
NO_CONTACT: Final = "mailto:bridge@example.com"


@cache
def _key() -> Vapid02:
    """Make the key of the data directory's secret, which is as random as a key."""
    encoded, curve = conf.secret("push_key").encode("ascii"), ec.SECP256R1()
    secret = int.from_bytes(b64urldecode(encoded))
    return Vapid02(ec.derive_private_key(secret % (curve.group_order - 1) + 1, curve))


@cache
def public_key() -> str:
    """Return the key with which browsers subscribe: uncompressed, in base64url."""
    point = _key().public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return str(b64urlencode(point))


def authorization(origin: str) -> str:
    """Return the header that identifies the bridge to a push service."""
    host = urlsplit(conf.bridge_public_url).hostname or ""
    private = host.endswith(tuple(f".{name}" for name in PRIVATE_DOMAINS if name != "ts.net"))
    named = "." in host and not private and parse_address(host) is None
    contact = f"https://{host}" if named else NO_CONTACT
    claims = {"aud": origin, "exp": int(time.time()) + SIGNED_SECONDS, "sub": contact}
    return str(_key().sign(claims)["Authorization"])
