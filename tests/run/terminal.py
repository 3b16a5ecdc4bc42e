"""A program in a terminal or at a pipe: say a line, wait until something is shown."""

import errno
import fcntl
import os
import pty
import re
import struct
import termios
import threading
from typing import Self

from tests.faults.quick import nursery
from tests.servers import PATIENCE, stop_process, wait_until

CONTROLS = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78()][A-Z0-9]?|[\x07\x08]"
)
ROWS, COLUMNS = 40, 160
# What is forked comes with nothing at its input: the file that is to be there is handed over as its
# standard error.
FORKED = """
import os, runpy, sys
os.dup2(2, 0)
os.dup2(1, 2)
sys.stdin = open(0, closefd=False)
os.environ |= {"TERM": "xterm-256color", "NO_COLOR": "1"}
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Program:
    """`python manage.py ARGUMENTS`, in a terminal of its own or at two pipes."""

    def __init__(self, environment: dict[str, str], *arguments: str, terminal: bool) -> None:
        self._shown = b""
        self.seen = 0  # how much of what was shown has been waited for
        if terminal:
            self._ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            self.modes = termios.tcgetattr(theirs)
            # kept, so that the modes can be looked at when the program has ended
            self._theirs = os.dup(theirs)
            given, output, self._writes = theirs, theirs, self._ours
        else:
            given, self._writes = os.pipe()
            self._ours, output = os.pipe()
            self._theirs = -1
        with open(given, "rb", closefd=False) as input_, open(output, "wb", closefd=False) as out:
            words = ["-c", "manage.py", *arguments]
            self.process = nursery.spawn(words, environment, out, input_, FORKED)
        for end in {given, output}:
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
            self._shown += data

    @property
    def shown(self) -> str:
        return CONTROLS.sub(b"", self._shown).decode(errors="replace").replace("\r", "")

    def say(self, text: str, end: str = "\n") -> None:
        os.write(self._writes, (text + ("\r" if end == "\n" and self._terminal else end)).encode())

    def until(self, *words: str) -> str:
        """Wait until all these words have been shown since the last time; what was shown since."""

        def there() -> bool:
            return all(word in self.shown[self.seen :] for word in words)

        wait_until(there, lambda: f"{words}; shown: {self.shown[-3000:]}")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stop_process(self.process)
        if self._terminal:
            os.close(self._theirs)
        self._reader.join(PATIENCE)
        os.close(self._ours)
