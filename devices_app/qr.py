"""Write the pairing link and its QR code in every format of D43."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import segno

from devices_app.invitation import Invitation

QUIET_ZONE = 4  # modules, as in the QR standard; with fewer, some cameras do not find the code
SCALE = 8
WHITE_ON_BLACK, RESET = "\033[38;5;231;48;5;16m", "\033[0m"


def terminal(invitation: Invitation, *, colour: bool) -> str:
    """Draw the code's light modules in half blocks, two modules a character.

    ``colour`` makes them white on black; without it they suit a dark terminal.
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
