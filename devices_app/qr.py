"""Make a new device's pairing data, and write it as a QR code, URL or JSON (D43)."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import segno

from bridge_project.kernel.config import conf
from bridge_project.network import certificates, server_address, transport
from bridge_project.network.server_address import Address
from bridge_project.protocol.types import now_text
from devices_app import pairing
from devices_app.models import Device

LINK_VERSION = 1
QUIET_ZONE = 4  # modules, as in the QR standard; with fewer, some cameras do not find the code
SCALE = 8
WHITE_ON_BLACK, RESET = "\033[38;5;231;48;5;16m", "\033[0m"


@dataclass(frozen=True, slots=True)
class Invitation:
    """Hold the data with which a device pairs, in the order of D43's JSON.

    ``url``: the WebSocket's address; ``pin`` and ``fingerprint``: hex SHA-256 of the certificate's
    public key and of the certificate; ``expires_at``: ISO 8601, when the token is void unless it
    was used. ``base_url``, where the pairing page is, is in the link only.
    """

    v: int
    name: str
    url: str
    token: str
    pin: str
    fingerprint: str
    expires_at: str
    base_url: str

    @property
    def link(self) -> str:
        """Return the link for a phone's camera; what follows ``#`` stays in the browser."""
        return f"{self.base_url}/pair#v={self.v}&token={self.token}&url={self.url}&pin={self.pin}"

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can reach the address."""
        return transport.mode_of_url(self.base_url) == "local_only"


def bridge_address() -> Address:
    """Return the address that ``serve`` recorded, else the one it would have."""
    return server_address.recorded(conf) or server_address.current(
        conf, certificates.load_or_renew(conf)
    )


def invite(
    name: str, *, ttl: timedelta, lifetime: timedelta | None = None, device: Device | None = None
) -> tuple[Device, Invitation]:
    """Mint a token; return its device and the invitation that carries it.

    Raises ValueError when ``device`` was revoked, or devices would refuse the bridge's address.
    """
    here = bridge_address()
    if not here.base_url.startswith("https://"):
        raise ValueError(
            "BRIDGE_PUBLIC_URL is not an https address, so devices would be rejected."
            " Mend it and start the bridge again."
        )
    device, token, plain = pairing.mint(name, ttl=ttl, lifetime=lifetime, device=device)
    return device, Invitation(
        v=LINK_VERSION,
        name=device.name,
        url=here.ws_url,
        token=plain,
        pin=here.pin,
        fingerprint=here.fingerprint,
        expires_at=now_text(token.use_by),
        base_url=here.base_url,
    )


def terminal(invitation: Invitation, *, colour: bool) -> str:
    """Draw the QR code as text for a terminal.

    It draws the light modules in half blocks, two modules a character. ``colour`` makes them white
    on black; without it they suit a dark terminal.
    """
    out = io.StringIO()
    code = segno.make(invitation.link, error="L", micro=False)
    code.terminal(out, border=QUIET_ZONE, compact=True)
    if not colour:
        return out.getvalue()
    return "".join(f"{WHITE_ON_BLACK}{line}{RESET}\n" for line in out.getvalue().splitlines())


def _image(invitation: Invitation, **options: Any) -> bytes:
    out = io.BytesIO()
    code = segno.make(invitation.link, error="M", micro=False)
    code.save(out, border=QUIET_ZONE, scale=SCALE, light="white", **options)
    return out.getvalue()


def as_json(invitation: Invitation) -> bytes:
    fields = asdict(invitation)
    del fields["base_url"]
    return json.dumps(fields, ensure_ascii=False, indent=2).encode() + b"\n"


# Formats for a program or a file; ``terminal`` is for a person.
RENDERERS: Mapping[str, Callable[[Invitation], bytes]] = {
    "png": partial(_image, kind="png"),
    "svg": partial(_image, kind="svg", title="Pairing code"),
    "url": lambda invitation: invitation.link.encode() + b"\n",
    "json": as_json,
}
