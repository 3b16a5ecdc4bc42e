"""A program in a terminal or at a pipe, spoken to as a person or a script would: say a line, wait
until something is shown.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

from tests.conformance.bridge import REPOSITORY
from tests.faults.quick import nursery
from tests.servers import PATIENCE, Running, stop_process, wait_until

CONTROLS = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78()][A-Z0-9]?|[\x07\x08]"
)
WHERE = b"\x1b[6n"  # asks a terminal where its cursor is
ROWS, COLUMNS = 40, 160
# What is forked comes with nothing at its input: the file that is to be there is handed over as its
# standard error.
FORKED = """
import os, runpy, sys
os.dup2(2, 0)
os.dup2(1, 2)
sys.stdin = open(0, closefd=False)
os.environ |= {"TERM": sys.argv[1], "NO_COLOR": "1"}
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TERM = "xterm-256color"


Ends = tuple[int, int, int]


def _started(environment: dict[str, str], arguments: list[str], ends: Ends) -> Running:
    files: Any = dict(zip(("stdin", "stdout", "stderr"), ends, strict=True))
    environment = environment | {"TERM": TERM, "NO_COLOR": "1"}
    command = [sys.executable, *arguments]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, start_new_session=True, **files
    )


def _forked(environment: dict[str, str], arguments: list[str], ends: Ends) -> Running:
    with open(ends[1], "wb", closefd=False) as output, open(ends[0], "rb", closefd=False) as given:
        return nursery.spawn(["-c", TERM, *arguments], environment, output, given, FORKED)


class Program:
    """`python manage.py ARGUMENTS`, its standard input and output at a pipe, or all three at a
    terminal of its own.

    ``cold``: a process as a user starts it, not one that is forked from what has everything
    imported (tests/faults/nursery.py).
    """

    def __init__(
        self, environment: dict[str, str], *arguments: str, terminal: bool, cold: bool = False
    ) -> None:
        self._shown = b""
        self.seen = 0  # how much of what was shown has been waited for
        if terminal:
            self._ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            self.modes = termios.tcgetattr(theirs)
            # kept, so that the modes can be looked at when the program has ended
            self._theirs = os.dup(theirs)
            ends, self._writes = (theirs, theirs, theirs), self._ours
        else:
            theirs, self._writes = os.pipe()
            self._ours, output = os.pipe()
            ends, self._theirs = (theirs, output, output), -1
        self.process = (_started if cold else _forked)(environment, ["manage.py", *arguments], ends)
        for end in set(ends):
            os.close(end)
        self._terminal = terminal
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # a terminal that nobody has open any more
                    raise
                return
            if not data:
                return
            if WHERE in data:
                os.write(self._writes, f"\x1b[{ROWS};1R".encode())
            self._shown += data

    @property
    def shown(self) -> str:
        return CONTROLS.sub(b"", self._shown).decode(errors="replace").replace("\r", "")

    def say(self, text: str, end: str = "\n") -> None:
        os.write(self._writes, (text + ("\r" if end == "\n" and self._terminal else end)).encode())

    def until(self, *words: str) -> str:
        """Wait until all these words have been shown since the last time; what was shown from there
        to the end of the last of them.
        """

        def there() -> bool:
            return all(word in self.shown[self.seen :] for word in words)

        try:
            wait_until(there, str(words))
        except AssertionError as error:
            raise AssertionError(f"{error}; shown: {self.shown[-3000:]}") from None
        shown = self.shown
        found = shown[self.seen :]
        self.seen = max(shown.index(word, self.seen) + len(word) for word in words)
        return found

    def ask(self, line: str, *words: str) -> str:
        """Say a line and wait for words of its answer."""
        self.say(line)
        return self.until(*words)

    def end_of_input(self) -> None:
        if self._terminal:
            self.say("\x04", end="")
        else:
            os.close(self._writes)

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def modes_now(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        stop_process(self.process)
        if self._terminal:
            os.close(self._theirs)
        self._reader.join(PATIENCE)
        os.close(self._ours)
