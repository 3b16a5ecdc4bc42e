"""Write the pairing link and its QR code in every format of D43."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import segno

from devices_app.invitation import Invitation

QUIET_ZONE = 4  # modules, as in the QR standard; with fewer, some cameras do not find the code
PNG_SCALE = 8
BLACK_ON_WHITE, RESET = "\033[38;5;16;48;5;231m", "\033[0m"
HALF_BLOCKS = {
    (False, False): " ",
    (True, False): "\N{UPPER HALF BLOCK}",
    (False, True): "\N{LOWER HALF BLOCK}",
    (True, True): "\N{FULL BLOCK}",
}


def terminal(invitation: Invitation, *, colour: bool) -> str:
    """Draw the code in half blocks, two modules a character.

    ``colour`` forces black on white; without it, light modules are drawn, for a dark terminal.
    """
    code = segno.make(invitation.link, error="L", micro=False)
    rows = [
        [bool(module) == colour for module in row] for row in code.matrix_iter(border=QUIET_ZONE)
    ]
    # the number of rows is odd: one more light row fills the last pair
    rows.append([not colour] * len(rows[0]))
    lines = (
        "".join(HALF_BLOCKS[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    )
    if colour:
        lines = (f"{BLACK_ON_WHITE}{line}{RESET}" for line in lines)
    return "\n".join(lines) + "\n"


def _image(kind: str, **options: Any) -> Callable[[Invitation], bytes]:
    def render(invitation: Invitation) -> bytes:
        out = io.BytesIO()
        segno.make(invitation.link, error="M", micro=False).save(
            out, kind=kind, border=QUIET_ZONE, **options
        )
        return out.getvalue()

    return render


def as_json(invitation: Invitation) -> bytes:
    fields = asdict(invitation)
    del fields["base_url"]
    return json.dumps(fields, ensure_ascii=False, indent=2).encode() + b"\n"


# Formats for a program or a file; ``terminal`` is for a person.
RENDERERS: Mapping[str, Callable[[Invitation], bytes]] = {
    "png": _image("png", scale=PNG_SCALE, light="white"),
    "svg": _image("svg", scale=PNG_SCALE, light="white", title="Pairing code"),
    "url": lambda invitation: invitation.link.encode() + b"\n",
    "json": as_json,
}
