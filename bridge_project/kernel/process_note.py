"""Read the note of the agent's process that a hook puts before its event (D65).

The note is `#1 PID WHO DIRECTORY`, the boot id, and two lines of /proc: of process 1 and of the
agent. WHO says how the agent was found: it named itself (`agent`), or the hook is its child
(`parent`), which may be a wrapper that ends with the hook. `@NAME` after it: which agent it is,
where that is not Claude Code, and `/EVENT` what the hook is of, where the event does not say it.
`:beside:NONCE` or `:away:NONCE` after that: the hook waits for an answer, beside a dialog or
because the owner is away (D66). DIRECTORY is where Claude Code's settings are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NOTE_MARK = "#1 "
# a process may have any 15 bytes between the parentheses; its start is the 22nd field
_STAT = re.compile(rb"(\d+) \(.{0,64}?\) [A-Za-z](?: -?\d+){18} (\d+)(?: -?\d+)*\n", re.DOTALL)
_FIRST = re.compile(
    rb"#1 (\d{1,10}) (agent|parent)(?:@([\w/-]{1,64}))?(?::(beside|away):(\w{8,32}))? ([^\n]*)\n"
)
_BOOT = re.compile(rb"([0-9a-f-]{36})\n")


class ProcessNote(NamedTuple):
    """Name the process of an agent.

    ``start``: ticks since the boot, None where the system does not tell; ``boot``: the boot's id,
    ``space``: the start of the namespace's first process, which tells pid namespaces apart; "" and
    None likewise. ``certain``: the agent has named it itself. ``home``: the directory of the
    agent's settings. ``nonce``: of the hook that waits for an answer, "" when none does;
    ``beside``: beside a dialog (D66). ``over``: it does not run the session any more (D67).
    ``agent``: its name, "" for Claude Code.
    """

    pid: int
    start: int | None
    boot: str
    space: int | None
    certain: bool
    home: str
    nonce: str = ""
    beside: bool = False
    over: bool = False
    agent: str = ""


def split_note(data: bytes) -> tuple[ProcessNote | None, bytes]:
    """Return a hook file's note, None if it has none, and the event after it."""
    first = _FIRST.match(data)
    if first is None:
        return None, data
    pid, at, boot = int(first[1]), first.end(), ""
    if found := _BOOT.match(data, at):
        boot, at = found[1].decode(), found.end()
    space, at = _start_of(1, data, at)
    start, at = _start_of(pid, data, at)
    note = ProcessNote(
        *(pid, start, boot, space, first[2] == b"agent"),
        home=first[6].decode("utf-8", "surrogateescape"),
        nonce=(first[5] or b"").decode(),
        beside=first[4] == b"beside",
        agent=(first[3] or b"").decode(),
    )
    return note, data[at:]


def _start_of(pid: int, data: bytes, at: int) -> tuple[int | None, int]:
    """Return a process's start from its line of /proc, and where the line ends."""
    found = _STAT.match(data, at)
    if found is None or int(found[1]) != pid:
        return None, at
    return int(found[2]), found.end()
