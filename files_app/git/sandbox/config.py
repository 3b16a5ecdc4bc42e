"""What git is told of a repository's and of its user's configuration: a list of harmless keys. All
others it never hears of (D10).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from typing import Final

from bridge_project.kernel.errors import BridgeError

# key as git lists it (section and name in lower case, subsection as it is) → value
Setting = tuple[str, str]

# How the repository stores what it holds. None of these names a program or a place.
_REPOSITORY: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|ignorecase|precomposeunicode|symlinks|protecthfs|protectntfs|autocrlf|eol|trustctime|checkstat"
    r"|sparsecheckout|sparsecheckoutcone|sharedrepository|logallrefupdates)"
    r"|extensions\.(objectformat|compatobjectformat|refstorage|noop|preciousobjects)"
    r"|branch\..*\.(remote|merge)|remote\..*\.fetch"
    r"|(user|author|committer)\.(name|email)",
    re.DOTALL,
)
# Extensions that mean nothing for what is done here, or are dealt with; with any other the
# repository cannot be read rightly.
_LEFT_OUT: Final = frozenset(
    {"extensions.partialclone", "extensions.worktreeconfig", "extensions.relativeworktrees"}
)
# What a person expects of git whatever the repository: who he is, what he ignores, which line ends
# his system has.
_USER: Final = re.compile(
    r"core\.(autocrlf|eol|excludesfile|attributesfile)|(user|author|committer)\.(name|email)|user\.useconfigonly"
)
# What his own filters do to a file that is committed (git-lfs). They are not the repository's.
_USER_FILTERS: Final = re.compile(r"filter\..*\.(clean|smudge|process|required)", re.DOTALL)
_PATHS: Final = frozenset({"core.excludesfile", "core.attributesfile", "core.hookspath"})
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"}


def parse_list(data: bytes) -> list[Setting]:
    """The output of ``git config --list -z``; a key without a value means true."""
    records = [os.fsdecode(record).partition("\n") for record in data.split(b"\0")[:-1]]
    return [(key, value if equals else "true") for key, equals, value in records]


def parse_scoped(data: bytes) -> list[Setting]:
    """The system's and the user's settings in the output of ``git config --list -z
    --show-scope``.
    """
    parts = data.split(b"\0")[:-1]
    mine = [
        record
        for scope, record in zip(parts[::2], parts[1::2], strict=True)
        if scope in (b"system", b"global")
    ]
    return parse_list(b"".join(record + b"\0" for record in mine))


def of_repository(settings: Iterable[Setting]) -> list[Setting]:
    """What a repository may say. Raises BridgeError GIT_ERROR when it is of a kind that only other
    versions of git understand.
    """
    kept = []
    for key, value in settings:
        # others name a place
        known = _REPOSITORY.fullmatch(key) and (
            key != "extensions.refstorage" or value.lower() in ("files", "reftable")
        )
        if known:
            kept.append((key, value))
        elif key.startswith("extensions.") and key not in _LEFT_OUT:
            raise BridgeError(
                "GIT_ERROR",
                f"The repository uses an extension of git that the bridge does not know: {key.partition('.')[2][:64]}",
            )
    return kept


def of_user(settings: Iterable[Setting], home: str, *, filters: bool) -> list[Setting]:
    """What the bridge's user may say; ``filters``: his own filters too. Paths become absolute, or
    are left out.
    """
    kept: list[Setting] = []
    for key, value in settings:
        if key in _PATHS and _USER.fullmatch(key):
            path = absolute(value, home)
            kept += [(key, path)] if path else []
        elif _USER.fullmatch(key) or (
            key.endswith(".required") and filters and _USER_FILTERS.fullmatch(key)
        ):
            kept.append((key, value))
        elif filters and _USER_FILTERS.fullmatch(key):
            # git itself is given another home
            kept.append((key, f"HOME={shlex.quote(home)}; export HOME; {value}"))
    return kept


def absolute(path: str, home: str) -> str:
    """A path of a configuration that begins in the home directory or at the top; empty for one that
    begins elsewhere.
    """
    path = f"{home}/{path[2:]}" if path.startswith("~/") else path
    return path if path.startswith("/") else ""


def last(settings: Iterable[Setting], key: str) -> str | None:
    """The value that counts."""
    return next((value for name, value in reversed(list(settings)) if name == key), None)


def text(settings: Iterable[Setting]) -> bytes:
    """A configuration file that says this and no more."""
    return b"".join(_lines(key, value) for key, value in settings)


def _lines(key: str, value: str) -> bytes:
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    head = (
        f'[{section} "{_escaped(subsection, only_quotes=True)}"]' if subsection else f"[{section}]"
    )
    return os.fsencode(f'{head}\n\t{name} = "{_escaped(value)}"\n')


def _escaped(value: str, *, only_quotes: bool = False) -> str:
    return "".join(
        _ESCAPES[c] if c in _ESCAPES and (c in '\\"' or not only_quotes) else c for c in value
    )
