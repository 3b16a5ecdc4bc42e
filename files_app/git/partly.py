"""Read a difference although some of its objects or files cannot be read (D63)."""

import os
import time
from collections.abc import Sequence
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from files_app.git.sandbox.git import Git

_SECONDS: Final = 5.0  # to look for what cannot be read; what is not reached counts as unreadable
RAW: Final = ("--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=dirty")


def readable(git: Git, command: Sequence[str], *raw: str) -> tuple[list[bytes], set[str]]:
    """Return what a ``git diff`` prints, in parts, and the names it cannot read.

    ``raw``: the call that lists the same changes and reads no content. Where ``command`` fails, it
    is asked again without the files whose objects are not there, and for ever fewer files, until
    none is left at which it fails.
    """
    try:
        return [git(*command, "--")], set()
    except BridgeError:
        names, bad = _present(git, raw)
    deadline = time.monotonic() + _SECONDS
    size = limits.GIT_PATHSPECS_MAX
    waiting = [names[at : at + size] for at in range(0, len(names), size)][::-1]
    printed = []
    while waiting:
        part = waiting.pop()
        try:
            if time.monotonic() > deadline:
                raise TimeoutError
            printed.append(git(*command, "--", *part))
        except (BridgeError, TimeoutError):
            half = len(part) // 2
            if half and time.monotonic() < deadline:
                waiting += [part[half:], part[:half]]
            else:
                bad.update(part)
    return printed, bad


def _present(git: Git, raw: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the changed names, and apart those of which an object is missing."""
    fields = git(*raw[:1], *RAW, *raw[1:], "--").split(b"\0")[:-1]
    changes = [
        (record.split(b" ")[2:4], os.fsdecode(name))
        for record, name in zip(fields[::2], fields[1::2], strict=True)
    ]
    objects = sorted({one for pair, _ in changes for one in pair if one.strip(b"0")})
    asked = b"".join(one + b"\n" for one in objects)
    # 128: one is damaged, at which this stops; those after it are found by trying
    checked = git.done("cat-file", "--batch-check", stdin=asked, good=(0, 128)) if asked else None
    said = checked.out if checked else b""
    missing = {line.split(b" ")[0] for line in said.splitlines() if line.endswith(b" missing")}
    bad = {name for pair, name in changes if not missing.isdisjoint(pair)}
    return [name for _, name in changes if name not in bad], bad
