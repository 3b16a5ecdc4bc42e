"""Select the configuration keys that git may know: harmless ones only (D10)."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from bridge_project.kernel import limits
from files_app.git.sandbox import git
from files_app.git.sandbox.error_text import git_error

# key as git lists it (section and name in lower case, subsection as it is) → value
Setting = tuple[str, str]

# How the repository stores its content. None of these names a program or a path.
_REPOSITORY: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|ignorecase|precomposeunicode|symlinks|protecthfs"
    r"|protectntfs|autocrlf|eol|trustctime|checkstat|sparsecheckout|sparsecheckoutcone"
    r"|sharedrepository|logallrefupdates)"
    r"|extensions\.(objectformat|compatobjectformat|noop|preciousobjects)"
    r"|branch\..*\.(remote|merge)|remote\..*\.fetch"
    r"|(user|author|committer)\.(name|email)",
    re.DOTALL,
)
# Extensions that do not matter here, or are handled; with any other the repository cannot be read
# correctly.
_LEFT_OUT: Final = frozenset(
    {"extensions.partialclone", "extensions.worktreeconfig", "extensions.relativeworktrees"}
)
# other kinds of reference storage name a path in the value
_REFERENCE_STORAGE: Final = {("extensions.refstorage", kind) for kind in ("files", "reftable")}
# What a person expects of git in any repository: his name, ignored files, his system's line ends.
_USER: Final = re.compile(
    r"core\.(autocrlf|eol|excludesfile|attributesfile)"
    r"|(user|author|committer)\.(name|email)|user\.useconfigonly"
)
_PATHS: Final = frozenset({"core.excludesfile", "core.attributesfile"})
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})


def read_file(name: str, data: bytes, directory: str) -> list[Setting]:
    """Parse a configuration file; git reads its bytes and follows no path in it."""
    done = git.run(
        ["config", "--file", "-", "--no-includes", "--list", "-z"],
        cwd=directory,
        environment=git.reading_environment(directory) | {"GIT_DIR": f"{directory}/none"},
        stdin=data,
        max_bytes=2 * limits.GIT_CONFIG_MAX_BYTES + 1,
    )
    if done.code or done.cut:
        raise git_error(f"git cannot read the repository's configuration ({name}).")
    return _parse(done.out.split(b"\0")[:-1])


def read_user(more: Mapping[str, str]) -> list[Setting]:
    """Return the system's and the user's settings that apply to a repository.

    ``more`` tells git which repository it is in: settings may be included for some of them only.
    """
    done = git.run(
        ["config", "--list", "-z", "--show-scope", "--includes"],
        cwd="/",
        environment={**git.user_environment(), **more},
        max_bytes=2 * limits.GIT_CONFIG_MAX_BYTES,
    )
    if done.code or done.cut:
        raise git_error("git cannot read the configuration of the bridge's user.")
    parts = done.out.split(b"\0")[:-1]
    scoped = zip(parts[::2], parts[1::2], strict=True)
    return _parse(record for scope, record in scoped if scope in (b"system", b"global"))


def _parse(records: Iterable[bytes]) -> list[Setting]:
    parts = (os.fsdecode(record).partition("\n") for record in records)
    return [(key, value if equals else "true") for key, equals, value in parts]


def of_repository(settings: Iterable[Setting]) -> list[Setting]:
    """Select the settings that a repository may make.

    Raises BridgeError GIT_ERROR for a repository format that this git does not understand.
    """
    kept = []
    for key, value in settings:
        if _REPOSITORY.fullmatch(key) or (key, value.lower()) in _REFERENCE_STORAGE:
            kept.append((key, value))
        elif key.startswith("extensions.") and key not in _LEFT_OUT:
            name = key.partition(".")[2][:64]
            text = f"The repository uses an extension of git that the bridge does not know: {name}"
            raise git_error(text)
    return kept


def of_user(settings: Iterable[Setting]) -> list[Setting]:
    """Select the allowed settings of the user."""
    kept: list[Setting] = []
    for key, value in settings:
        if key in _PATHS:
            kept += [(key, path)] if (path := absolute(value)) else []
        elif _USER.fullmatch(key):
            kept.append((key, value))
    return kept


def absolute(path: str) -> str:
    """Return an absolute path, also for ``~/…``; empty for a relative one."""
    path = f"{git.home()}/{path[2:]}" if path.startswith("~/") else path
    return path if path.startswith("/") else ""


def text(settings: Iterable[Setting]) -> bytes:
    """Return these settings as the bytes of a configuration file."""
    lines = ""
    for key, value in settings:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        if subsection:
            quoted = subsection.replace("\\", "\\\\").replace('"', '\\"')
            section = f'{section} "{quoted}"'
        lines += f'[{section}]\n\t{name} = "{value.translate(_ESCAPES)}"\n'
    return os.fsencode(lines)
