"""Make, digest and identify bearer tokens (D14, D15)."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Literal

from django.utils import timezone

from bridge_project.kernel.config import conf
from devices_app.models import Device, Token

Kind = Literal["device", "hook", "admin"]

PREFIX = "bridge_device_"
RANDOM_BYTES = 32  # 256 bits (D15)
# longer than any token that could be configured; a longer text is refused unhashed
MAX_BEARER_CHARS = 4096
# a code stays good when the clock is set back by at most this much
SET_BACK = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Principal:
    """Identify who sends a request; it is ``request.user``."""

    kind: Kind
    device: Device | None = None
    token: Token | None = None

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def rate_key(self) -> str:
        """Return the key of rate limits (D17); a new token does not change it."""
        return f"device:{self.device.pk}" if self.device is not None else self.kind


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def digest(token: str) -> str:
    """Return the hex SHA-256 under which a token is kept and compared."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def bearer_of(header: str | None) -> str | None:
    """Return the one ASCII token of an ``Authorization`` header (RFC 6750), or None."""
    if not header or len(header) > MAX_BEARER_CHARS:
        return None
    found = re.fullmatch(r"[ \t]*bearer +([!-~]+)[ \t]*", header, re.IGNORECASE | re.ASCII)
    return found and found[1]


def identify(bearer: str) -> Principal | None:
    """Return whose token this is; None when it is unknown or no longer valid.

    It costs one query, none for the hook and the admin token. Every comparison runs in constant
    time over digests, so that the time of an answer does not help to guess a token.
    """
    found = digest(bearer)
    is_hook, is_admin = (hmac.compare_digest(found, known) for known in _configured())
    if is_hook:
        return Principal("hook")
    if is_admin:
        return Principal("admin")
    token = Token.objects.select_related("device").filter(digest=found).first()
    if token is None or not hmac.compare_digest(token.digest, found):
        return None
    return Principal("device", token.device, token) if is_valid(token, timezone.now()) else None


def is_hook(bearer: str) -> bool:
    """Return whether this is the hook token, without a database query."""
    return hmac.compare_digest(digest(bearer), _configured()[0])


def is_valid(token: Token, now: datetime) -> bool:
    """Return whether a token may be used: not revoked, replaced, expired or void.

    D15, D62. Void: a pairing code that was not used within its time, or before which the clock was
    set back.
    """
    if token.revoked_at or token.replaced_at or token.device.revoked_at:
        return False
    if token.expires_at is not None and token.expires_at <= now:
        return False
    in_time = token.minted_at - SET_BACK <= now < token.use_by
    return bool(token.used_at or token.replaces_id) or in_time


@cache
def _configured() -> tuple[str, str]:
    """Return digests of hook and admin token, which stay while the bridge runs."""
    return digest(conf.secret("hook_token")), digest(conf.secret("admin_token"))
