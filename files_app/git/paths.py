"""Translate file names between clients and git (D10).

A client's names are relative to the session's working directory, git's to the top of the work tree.
"""

import os
from collections.abc import Collection, Iterable

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import shown
from bridge_project.kernel.path_walk import names_of
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository

_NO_NAMES = frozenset(("", ".", ".."))
REPLACED = "\ufffd"  # shown for a byte that is no text


class Names:
    """Translate between a client's names and git's.

    A name that is not UTF-8 has surrogates here, and replacement characters at the client.
    """

    def __init__(self, place: Repository) -> None:
        self.place = place
        self.jail = place.jail
        # the working directory, below the top
        inner = os.path.relpath(place.directory, place.top)
        self.inner = "" if inner == "." else f"{inner}/"

    def to_git_name(self, name: str) -> str:
        """Translate a client's name into git's; ``.`` for the whole work tree.

        Like git, it only looks at the text: nothing has to exist. Raises BridgeError
        FILE_INVALID_PATH, FILE_ACCESS_DENIED outside the work tree.
        """
        size = len(name.encode("utf-8", "surrogatepass"))
        if not name or "\0" in name or size > limits.FILE_PATH_MAX_BYTES:
            raise BridgeError("FILE_INVALID_PATH")
        top = names_of(self.place.top)
        names = names_of(os.path.normpath(os.path.join(self.place.directory, name)))
        if names[: len(top)] != top and name.startswith("/"):
            with Ignoring("FILE_NOT_FOUND", "FILE_ACCESS_DENIED", "FILE_INVALID_PATH"):
                # behind links that lead into the work tree
                names = names_of(self.jail.resolve(os.path.dirname(name)))
                names = (*names, os.path.basename(name))
        if names[: len(top)] != top or self.jail.hides(names):
            text = "The path is outside this session's repository, or is hidden."
            raise BridgeError("FILE_ACCESS_DENIED", text)
        return "/".join(names[len(top) :]) or "."

    def to_client_name(self, name: str) -> str:
        """Translate git's name into a client's; a directory keeps its final slash."""
        if name.startswith(self.inner):
            return shown(name[len(self.inner) :] or "./")
        directory = name.endswith("/")
        return shown(os.path.relpath(f"/{name}", f"/{self.inner}") + "/" * directory)

    def hidden(self, name: str) -> bool:
        """Return whether a name leads out of the work tree, or to the bridge's own files.

        Git takes any name from an index, and reads what is there.
        """
        leads_out = not _NO_NAMES.isdisjoint(name.removesuffix("/").split("/"))
        return leads_out or self.jail.hides(names_of(f"{self.place.top}/{name}"))

    def secret(self, name: str) -> bool:
        """Return whether a name is hidden or hard-linked to a hidden file."""
        if self.hidden(name):
            return True
        try:
            return self.jail.forbids(os.lstat(f"{self.place.top}/{name}"))
        except OSError:
            return False


class Selection:
    """Select the files that a client has named; a directory means all in it."""

    def __init__(self, names: Names, asked: Iterable[str]) -> None:
        self.given = {names.to_git_name(name) for name in asked}
        self.everything = "." in self.given

    def __contains__(self, name: str) -> bool:
        return (
            self.everything
            or name.rstrip("/") in self.given
            or any(parent in self.given for parent in _parents(name))
        )

    def find(self, known: Collection[str]) -> list[str]:
        """Return those of the known names that are selected.

        A name with replacement characters selects the name that is shown so, unless another file
        has exactly that name.
        """
        for name in [name for name in self.given if REPLACED in name and name not in known]:
            alike = {other for other in known if shown(other) == name}
            if len(alike) == 1:
                self.given |= alike
        return [name for name in known if name in self]

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Return selected names that match none of the known ones."""
        met = {part for name in known for part in (name, *_parents(name))}
        return sorted(
            name
            for name in self.given
            if name not in met
            and name != "."
            and not (REPLACED in name and any(shown(one) == name for one in met))
        )


def tracked(git: Git) -> set[str]:
    """Return the names of all files in the index or in the last commit."""
    has_commit = git.done("rev-parse", "--verify", "--quiet", "HEAD", good=(0, 1)).code == 0
    found = git("ls-files", "-z", *(["--with-tree=HEAD"] if has_commit else []))
    return {os.fsdecode(name) for name in found.split(b"\0")[:-1]}


def _parents(name: str) -> list[str]:
    """Return the directories above a name: ``a/b/c`` → ``a/b``, ``a``."""
    parts = name.rstrip("/").split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
