"""Names of files: relative to the session's working directory for clients, to the top of the work
tree for git (D10).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, identity, shown
from sessions_app.working_directory import Place

REPLACED = "\ufffd"  # what stands for a byte that is no text


class Names:
    """Between a client's names and git's. A name that is not UTF-8 has surrogates here, and
    replacement characters at the client.
    """

    def __init__(self, place: Place, jail: Jail) -> None:
        self.place = place
        self.jail = jail
        self.forbidden = jail.forbidden_identities()
        inner = (
            ""
            if place.directory == place.top
            else place.directory.removeprefix(place.top.rstrip("/")).lstrip("/") + "/"
        )
        self.inner = inner  # the working directory, below the top

    def asked(self, name: str) -> str:
        """Git's name of what a client names, relative or absolute; ``.`` for the whole work tree.

        By the letters alone, as git does it: nothing has to be there. Raises BridgeError
        FILE_INVALID_PATH, FILE_ACCESS_DENIED outside the work tree.
        """
        if (
            not name
            or "\0" in name
            or len(name.encode("utf-8", "surrogatepass")) > limits.FILE_PATH_MAX_BYTES
        ):
            raise BridgeError("FILE_INVALID_PATH")
        top, names = (
            _parts(self.place.top),
            _parts(os.path.normpath(os.path.join(self.place.directory, name))),
        )
        if names[: len(top)] != top and name.startswith("/"):
            names = self._real(name)
        if names[: len(top)] != top or self.jail.hides(names):
            raise BridgeError(
                "FILE_ACCESS_DENIED",
                "The path is outside the repository of this session, or of what may be seen.",
            )
        return "/".join(names[len(top) :]) or "."

    def _real(self, name: str) -> tuple[str, ...]:
        """A path that leads here by a link."""
        try:
            return (*_parts(self.jail.resolve(os.path.dirname(name))), os.path.basename(name))
        except BridgeError:
            return _parts(name)

    def told(self, name: str) -> str:
        """A client's name of what git names; a directory keeps its slash at the end."""
        if name.startswith(self.inner):
            return shown(name[len(self.inner) :] or "./")
        directory = name.endswith("/")
        return shown(os.path.relpath(f"/{name}", f"/{self.inner}") + "/" * directory)

    def hidden(self, name: str) -> bool:
        """Whether it is one of the bridge's own places, which nothing shows."""
        return self.jail.hides(_parts(f"{self.place.top}/{name}"))

    def secret(self, name: str) -> bool:
        """Whether it is in one of the bridge's own places, or is a hard link to what is."""
        if self.hidden(name):
            return True
        try:
            return identity(os.lstat(f"{self.place.top}/{name}")) in self.forbidden
        except OSError:
            return False


class Selection:
    """The files that a client has named; a directory means all in it."""

    def __init__(self, names: Names, asked: Iterable[str]) -> None:
        self.given = {names.asked(name) for name in asked}
        self.everything = "." in self.given

    def __contains__(self, name: str) -> bool:
        return (
            self.everything
            or name.rstrip("/") in self.given
            or any(parent in self.given for parent in _parents(name))
        )

    def find(self, known: Collection[str]) -> list[str]:
        """Which of the known names are meant. A name with replacement characters means the one that
        would be shown so, if it is no other's.
        """
        for name in [name for name in self.given if REPLACED in name and name not in known]:
            alike = {other for other in known if shown(other) == name}
            if len(alike) == 1:
                self.given |= alike
        return [name for name in known if name in self]

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Which of the names mean none of the known ones."""
        met = {part for name in known for part in (name, *_parents(name))}
        return sorted(
            name
            for name in self.given
            if name not in met
            and name != "."
            and not (REPLACED in name and any(shown(one) == name for one in met))
        )


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _parents(name: str) -> list[str]:
    """``a/b/c`` → ``a/b``, ``a``."""
    parts = name.rstrip("/").split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
