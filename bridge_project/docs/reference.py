"""Write settings, error codes and messages as tables for the pages and docs/."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from bridge_project.docs import asyncapi
from bridge_project.kernel.config import SECRET_FIELDS, Conf
from bridge_project.kernel.errors import ERRORS, ErrorCode
from bridge_project.protocol.catalogue import CATALOGUE


def sent_as(row: ErrorCode) -> str:
    """Describe where a client meets a code."""
    if row.never_sent:
        return f"never sent: {row.never_sent}"
    places = [f"HTTP {row.status}"] if row.status else []
    if row.close:
        places.append(f"{row.within or '`connection_error`'} and close {row.close}")
    elif row.recoverable is not None:
        places.append(row.within or "`error`")
    return "; ".join(places)


def retry(row: ErrorCode) -> str:
    return {None: "", True: "yes", False: "no"}[row.recoverable]


_HEAD: Final = """\
# {title}

<!-- Made by `python manage.py generate_docs` from `{source}`: edit that. -->

"""
_SETTINGS: Final = """\
Every setting comes from the environment or from `.env` in the data directory; the environment wins.
A bad value stops the start with one line that names the setting. Secrets can be read from a file
instead:
{secrets}.
Names are in capitals: one in other letters is not read, and named at the start and by `doctor`, as
is a `BRIDGE_…` in `.env` that is no setting.

"""
_ERRORS: Final = """\
Every HTTP error has the fields `error`, `message`, `code`, `request_id`, `timestamp` and
`documentation_url`; the last opens the page of its code on the bridge itself. Over the WebSocket a
code comes in `error` or, when the connection cannot go on, in `connection_error`, which a close
follows. Recoverable: the same connection can go on. Severity: how grave it is for whoever runs the
bridge.

"""
_MESSAGES: Final = """\
The {count} message types of the WebSocket at `{address}`, each with an example. The same as an
AsyncAPI document: `/api/v1/asyncapi` on any bridge. How to write a client:
[clients.md](clients.md).
"""


def settings_markdown() -> str:
    """Return ``docs/settings.md``: every setting, in the order of ``Conf``."""
    rows = []
    for name, field in Conf.model_fields.items():
        default = "" if field.default in (None, [], {}) else field.default
        default = str(int(default) if isinstance(default, bool) else default)
        description = " ".join((field.description or "").split())
        rows.append((f"`{name.upper()}`", default and f"`{default}`", description))
    files = [f"`{name.upper()}_FILE`" for name in SECRET_FIELDS]
    return (
        _HEAD.format(title="Settings", source="bridge_project/kernel/config.py")
        + _SETTINGS.format(secrets=textwrap.fill(", ".join(files), 99))
        + _table(("Setting", "Default", "Meaning"), rows)
    )


def errors_markdown() -> str:
    rows = [
        (f"`{row.code}`", sent_as(row), retry(row), row.severity, row.message, row.remedy)
        for row in ERRORS.values()
    ]
    return (
        _HEAD.format(title="Error codes", source="bridge_project/kernel/errors.py")
        + _ERRORS
        + _table(("Code", "Sent as", "Recoverable", "Severity", "Meaning", "What to do"), rows)
    )


def messages_markdown() -> str:
    parts = [_MESSAGES.format(count=len(CATALOGUE), address=asyncapi.ADDRESS)]
    for message in asyncapi.messages():
        model = message.model
        way = "client to bridge" if message.from_client else "bridge to client"
        answers = " or ".join(f"`{reply}`" for reply in message.reply)
        about = [f"## {model.type} ({way})", model.documentation(), message.rule]
        about += [f"Answered by {answers}."] if answers else []
        rows = [(f"`{name}`", type, "yes" if must else "") for name, type, must in message.fields]
        about += [_table(("Field", "Type", "Required"), rows).rstrip()] if rows else []
        about += [f"```json\n{message.example}\n```"]
        parts.append("\n\n".join(filter(None, about)) + "\n")
    return _HEAD.format(title="Messages", source="bridge_project/protocol/") + "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
