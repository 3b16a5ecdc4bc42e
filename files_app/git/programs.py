"""Find the programs that a repository brings to a commit or a push (D63).

A program is the repository's when it, or what its links lead to, lies in the work tree or the git
directory, or when the repository's own configuration names it. All that an operation could run are
listed, whether or not this one needs them. What is the user's own is none of them.
"""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, get_args

from bridge_project.kernel.path_jail import shown
from bridge_project.protocol.resources import GitProgram
from files_app.git import settings
from files_app.git.sandbox.git import home
from files_app.git.settings import Effective
from sessions_app.working_directory import Repository

Use = Literal["commit", "push", "work tree"]
USES: Final = get_args(Use)
_HOOKS: Final[dict[Use, tuple[str, ...]]] = {
    "commit": (
        *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"),
        *("reference-transaction", "post-index-change", "pre-auto-gc"),
    ),
    "push": ("pre-push", "reference-transaction"),
    "work tree": ("post-checkout", "reference-transaction", "post-index-change"),
}
# setting → kind of program, and what runs it
_NAMED: Final = [
    (re.compile(pattern, re.DOTALL), kind, uses)
    for pattern, kind, *uses in (
        (r"filter\..*\.(?:clean|process)", "filter", "commit", "work tree"),
        (r"filter\..*\.smudge", "filter", "work tree"),
        (r"gpg\.(?:.*\.)?(?:program|defaultkeycommand)", "signature", "commit", "push"),
        (r"merge\..*\.driver", "merge driver", "commit"),  # by rerere, also after a commit
        (r"core\.fsmonitor", "monitor", "commit", "work tree"),
        (r"gc\.recentobjectshook", "hook", "commit"),
        (r"hook\..*\.command", "hook", *USES),
    )
]
# programs that bring the objects of a partial clone
_FETCHED_BY: Final = re.compile(
    r"remote\..*\.(?:uploadpack|vcs)|core\.(?:sshcommand|askpass|gitproxy|alternaterefscommand)"
    r"|credential\.(?:.*\.)?helper",
    re.DOTALL,
)
_PROMISOR: Final = re.compile(r"extensions\.partialclone|remote\..*\.promisor", re.DOTALL)
_FALSE: Final = frozenset({"false", "no", "off", "0", ""})
_BOOLEANS: Final = _FALSE | {"true", "yes", "on", "1"}
_BYTES_MAX: Final = 64 * 1024 * 1024  # of one program's file; more is a program of its own kind


class Programs(NamedTuple):
    """Hold a repository's programs, and what tells them from any others."""

    repository: str
    digest: str
    programs: list[GitProgram]

    @property
    def names(self) -> list[str]:
        """Return kind and name of each."""
        return [f"{one.kind} {one.name}" for one in self.programs]


def find(place: Repository, use: Use, *more: str) -> Programs:
    """Return the programs that this use could run; ``more`` goes into the digest too."""
    found = settings.effective(place)
    pairs = [*_hooks(place, use, found), *_named(place, use, found)]
    parts = [(one.model_dump(), seen) for one, seen in pairs]
    text = json.dumps([place.top, place.git_dir, parts, more], sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Programs(place.top, digest, [one for one, _ in pairs])


def hooks_of(place: Repository) -> str:
    """Return the directory of the hooks that run at the top of the work tree."""
    where = settings.ask(place, "rev-parse", "--git-path", "hooks")  # it knows `~user` too
    return os.path.join(place.top, os.fsdecode(where).removesuffix("\n"))


Pair = tuple[GitProgram, list[list[str]]]


def _hooks(place: Repository, use: Use, found: list[Effective]) -> Iterator[Pair]:
    named = [one for one in found if one.key == "core.hookspath"][-1:]
    directory = hooks_of(place)
    own = bool(named) and named[0].own
    for name in _HOOKS[use]:
        path = f"{directory}/{name}"
        if (
            os.path.isfile(path)
            and os.access(path, os.X_OK)
            and (own or settings.is_inside(place, path))
        ):
            yield GitProgram(kind="hook", name=name, path=shown(path)), _look([path])


def _named(place: Repository, use: Use, found: list[Effective]) -> Iterator[Pair]:
    partial = any(_PROMISOR.fullmatch(one.key) for one in found)
    signs = settings.last(found).get(f"{use}.gpgsign", "false").lower() not in _FALSE
    for one in found:
        kinds = [
            kind for pattern, kind, uses in _NAMED if use in uses and pattern.fullmatch(one.key)
        ]
        if partial and (_FETCHED_BY.fullmatch(one.key) or _is_command_url(one)):
            kinds = ["transport"]
        if not kinds or one.value.lower() in _BOOLEANS or (kinds == ["signature"] and not signs):
            continue
        files = _files(place, one.value)
        inside = [path for path in files if settings.is_inside(place, path)]
        if one.own or inside:
            program = GitProgram(
                kind=kinds[0],
                name=shown(one.key),
                command=shown(one.value),
                path=shown(inside[0]) if inside else None,
            )
            yield program, _look(files)


def _is_command_url(one: Effective) -> bool:
    """Return whether a remote's address, or what replaces a part of it, is a command."""
    remote = one.key.startswith("remote.") and one.key.endswith("url") and "::" in one.value
    return remote or (one.key.startswith("url.") and "::" in one.key)


def _files(place: Repository, command: str) -> list[str]:
    """Return the files that the words of a command name, from the work tree's top."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    paths = (os.path.join(place.top, _expanded(word)) for word in words)
    return [path for path in paths if "\0" not in path and os.path.isfile(path)]


def _expanded(path: str) -> str:
    return f"{home()}/{path[2:]}" if path.startswith("~/") else path


def _look(paths: list[str]) -> list[list[str]]:
    """Return each file's path, where its links lead, and its content's digest."""
    found = []
    for path in paths:
        real = os.path.realpath(path)
        try:
            with open(real, "rb") as file:
                content = hashlib.sha256(file.read(_BYTES_MAX)).hexdigest()
        except OSError as error:
            content = str(error.errno)
        found.append([path, real, content])
    return found
