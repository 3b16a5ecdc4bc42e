"""Count the lines of untracked files, and show them in a difference."""

import os
import stat as st
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_walk import Opened, names_of, translate_os_errors
from files_app.git.sandbox.git import Git

_BINARY_LOOK: Final = 8000  # bytes in which git looks for a NUL


@dataclass(frozen=True, slots=True)
class New:
    """Hold an untracked file's mode and content; ``cut``: there is more."""

    mode: str
    content: bytes
    cut: bool = False

    @property
    def binary(self) -> bool:
        return b"\0" in self.content[:_BINARY_LOOK]

    @property
    def lines(self) -> int:
        """Return the number of lines, 0 if it is binary."""
        if self.binary or not self.content:
            return 0
        return self.content.count(b"\n") + (not self.content.endswith(b"\n"))

    def hunk(self) -> Iterator[bytes]:
        """Yield the lines that git's patch would have for it as a new file."""
        yield b"@@ -0,0 +1 @@" if self.lines == 1 else b"@@ -0,0 +1,%d @@" % self.lines
        for line in BytesIO(self.content):
            yield b"+" + line.removesuffix(b"\n")
        if not self.content.endswith(b"\n"):
            yield b"\\ No newline at end of file"


def listed(git: Git, *pathspecs: str) -> list[str]:
    """List untracked files that are not ignored, as many as the bridge reads.

    A nested repository ends in a slash.
    """
    found = git.done("ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs).out
    return [os.fsdecode(name) for name in found[: found.rfind(b"\0") + 1].split(b"\0") if name]


def count(git: Git, names: Iterable[str]) -> dict[str, int]:
    """Count lines of untracked files, and of those in directories, up to the limits."""
    found = dict.fromkeys(names, 0)
    directories = [name for name in found if name.endswith("/")]
    files = [(name, name) for name in found if not name.endswith("/")]
    if directories:
        asked = directories if len(directories) <= limits.GIT_PATHSPECS_MAX else ["."]
        for name in listed(git, *asked):
            parts = name.rstrip("/").split("/")
            above = ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
            files += [(name, parent) for parent in above if parent in found]
    room = limits.GIT_COUNT_MAX_BYTES
    for name, owner in files[: limits.GIT_COUNT_MAX_FILES]:
        new = read(git, name, room)
        if new is not None and not new.cut:
            room -= len(new.content)
            found[owner] += new.lines
    return found


def read(git: Git, name: str, most: int = limits.GIT_COUNT_MAX_BYTES) -> New | None:
    """Read a file, up to ``most`` bytes; None for a file that clients may not see.

    A link's content is its target's path, as for git.
    """
    try:
        with _parent(git, name) as directory, translate_os_errors():
            last = name.rpartition("/")[2]
            stat = os.stat(last, dir_fd=directory.fd, follow_symlinks=False)
            if st.S_ISLNK(stat.st_mode):
                return New("120000", os.fsencode(os.readlink(last, dir_fd=directory.fd)))
            with git.place.jail.below(directory, [last], "file") as file:
                data = bytearray()
                while len(data) <= most and (chunk := os.read(file.fd, limits.MB)):
                    data += chunk
                mode = "100755" if file.stat.st_mode & 0o100 else "100644"
                return New(mode, bytes(data[:most]), len(data) > most)
    except BridgeError:
        return None


def exists(git: Git, name: str) -> bool:
    """Return whether there is anything of that name, without following links."""
    try:
        with _parent(git, name) as directory, translate_os_errors():
            os.stat(name.rpartition("/")[2] or ".", dir_fd=directory.fd, follow_symlinks=False)
    except BridgeError:
        return False
    return True


def _parent(git: Git, name: str) -> Opened:
    """Open the directory of a name; FILE_NOT_FOUND behind a link, as for git."""
    names = names_of(f"{git.place.top}/{name}".rpartition("/")[0])
    directory = git.place.jail.at(names)
    if directory.names != names:
        directory.close()
        raise BridgeError("FILE_NOT_FOUND")
    return directory
