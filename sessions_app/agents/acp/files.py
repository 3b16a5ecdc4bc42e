"""Read and write files for an ACP agent, inside the allowed roots (D12, D45)."""

import asyncio
import os
import secrets
import stat
from contextlib import suppress
from io import StringIO
from pathlib import Path

from bridge_project.kernel import limits, threads
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import Jail, default_jail
from bridge_project.kernel.path_walk import Opened, join, translate_os_errors

_NEW_FILE = 0o644  # whatever the bridge's own umask, which is for its data
_NEW_DIRECTORY = 0o755
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


async def read(
    path: str, directory: Path, line: int | None = None, limit: int | None = None
) -> str:
    """Return a file's text from ``line`` (first: 1), at most ``limit`` lines.

    Raises BridgeError with the codes of D12, TimeoutError after the spec's time for reading; its
    thread then goes on, unheeded.
    """
    async with asyncio.timeout(limits.TOOL_TIMEOUT_READ_SECONDS):
        where = str(directory / path)
        return await threads.disk.run(where, _read, path, str(directory), line, limit)


async def write(path: str, directory: Path, content: str, real: str) -> str | None:
    """Write a whole file and its directories; return the old text, or None.

    A reader sees the old text or the new. Raises BridgeError with the codes of D12, also when the
    path does not lead to ``real`` any more, TimeoutError after the spec's time for editing; its
    thread then goes on, unheeded.
    """
    async with asyncio.timeout(limits.TOOL_TIMEOUT_EDIT_SECONDS):
        return await threads.disk.run(real, _write, path, str(directory), content, real)


def _read(path: str, directory: str, line: int | None, limit: int | None) -> str:
    with default_jail().open_file(path, base=directory) as opened, translate_os_errors():
        text = _content(opened).decode("utf-8", "replace")
    if line is None and limit is None:
        return text
    first = max(0, (line or 1) - 1)
    end = None if limit is None else first + max(0, limit)
    return "".join(StringIO(text).readlines()[first:end])


def _content(opened: Opened) -> bytes:
    with open(opened.fd, "rb", closefd=False) as file:
        data = file.read(conf.max_message_bytes + 1)
    if len(data) > conf.max_message_bytes:
        raise BridgeError("FILE_TOO_LARGE")
    return data


def _write(path: str, directory: str, content: str, real: str) -> str | None:
    data = content.encode("utf-8", "replace")
    if len(data) > conf.max_message_bytes:
        raise BridgeError("FILE_TOO_LARGE")
    jail = default_jail()
    before, mode, target = None, _NEW_FILE, os.path.join(directory, path)
    with (
        Ignoring("FILE_NOT_FOUND"),
        jail.open_file(path, base=directory) as opened,
        translate_os_errors(),
    ):
        target, mode = opened.path, stat.S_IMODE(opened.stat.st_mode)
        if opened.stat.st_size <= conf.max_message_bytes:
            with suppress(UnicodeDecodeError):
                before = _content(opened).decode()
    name = os.path.basename(target)
    if name in ("", ".", ".."):
        raise BridgeError("FILE_INVALID_PATH")
    with _directory(jail, os.path.dirname(target)) as parent, translate_os_errors():
        if jail.hides((*parent.names, name)):
            raise BridgeError("FILE_ACCESS_DENIED")
        check_place(join((*parent.names, name)), real)  # not through a broken link, either
        _replace(parent.fd, name, data, mode)
    return before


def check_place(path: str, real: str) -> None:
    """Raise FILE_ACCESS_DENIED unless the place found is the one that was approved."""
    if path != real:
        text = "A link on the way leads elsewhere than when a person was asked, or nowhere."
        if "\0" in real:
            text = "Its disk does not answer."
        raise BridgeError("FILE_ACCESS_DENIED", text)


def _directory(jail: Jail, path: str) -> Opened:
    """Open a directory; make missing ones on the way, each below the one before."""
    try:
        return jail.open_dir(path)
    except BridgeError as error:
        if error.code != "FILE_NOT_FOUND" or path in ("/", ""):
            raise
    name = os.path.basename(path)
    if name in ("", ".", ".."):
        raise BridgeError("FILE_INVALID_PATH")
    with _directory(jail, os.path.dirname(path)) as above, translate_os_errors():
        # somebody else may make it, or it is a broken link, at which the next step fails
        with suppress(FileExistsError):
            os.mkdir(name, _NEW_DIRECTORY, dir_fd=above.fd)
            made = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above.fd
            )
            try:
                os.fchmod(made, _NEW_DIRECTORY)
            finally:
                os.close(made)
        return jail.below(above, [name])


def _replace(directory: int, name: str, data: bytes, mode: int) -> None:
    draft = f".{name[:100]}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, _DRAFT, 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
        os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(draft, dir_fd=directory)
        raise
