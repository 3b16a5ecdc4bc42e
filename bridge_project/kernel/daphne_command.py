"""Read the command line of a bridge started by `daphne` instead of `serve` (D61)."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000  # daphne's, when one of the two is given
EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


class Endpoint(NamedTuple):
    """Hold an address that daphne listens on; an empty `interface` means all."""

    kind: str
    port: str
    interface: str


@cache
def arguments() -> argparse.Namespace | None:
    """Return daphne's options, or None when another program runs this process."""
    program = sys.argv[0].removesuffix(os.sep + "__main__.py")  # `python -m daphne`
    if os.path.basename(program) != "daphne":
        return None
    from daphne.cli import CommandLineInterface  # anywhere else it would install its reactor

    found: argparse.Namespace = CommandLineInterface().parser.parse_args(sys.argv[1:])
    return found


def is_running() -> bool:
    """Return whether daphne's own command runs this process."""
    return arguments() is not None


def is_tls(server: Sequence[Any] | None) -> bool:
    """Return whether only TLS endpoints can have accepted at `scope["server"]`."""
    host, port = map(str, server[:2]) if server else ("", "")
    accepting = {*EVERY_INTERFACE, host}
    found = [one for one in _endpoints() if one.port == port and one.interface in accepting]
    return {one.kind for one in found} == {"ssl"}


def use_its_address() -> None:
    """Set BRIDGE_PORT and BRIDGE_HOST from daphne's TLS endpoint, if it has only one."""
    found = [endpoint for endpoint in _endpoints() if endpoint.kind == "ssl"]
    if len(found) == 1:
        os.environ["BRIDGE_PORT"] = found[0].port
        if found[0].interface not in EVERY_INTERFACE:
            os.environ["BRIDGE_HOST"] = found[0].interface


@cache
def _endpoints() -> tuple[Endpoint, ...]:
    given = arguments()
    if given is None:
        return ()
    found = [_parse(description) for description in given.socket_strings]
    if given.host or given.port is not None:
        port = DEFAULT_PORT if given.port is None else given.port
        found.append(Endpoint("tcp", str(port), given.host or DEFAULT_HOST))
    return tuple(found)


def _parse(description: str) -> Endpoint:
    """Parse twisted's `kind:port:option=value`; a backslash escapes a character."""
    words = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|[^:\\])+", description)]
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    positional = [word for word in words[1:] if "=" not in word]
    port = options.get("port") or next(iter(positional), "")
    return Endpoint(words[0].lower() if words else "", port, options.get("interface", ""))
