"""Read the memory files (CLAUDE.md) that claude-code would read by itself (D57).

The program's own way (``--add-dir``) also reads what a link of the repository leads to outside it,
such as a private key. So the bridge reads the files, and appends them to the system prompt.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, default_jail
from bridge_project.kernel.text import printable

NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
RULES = ".claude/rules"
_PREFACE = (
    "What follows are the memory files of the user and of the project, each below its path. They "
    "are instructions for this work. `@path` in them names a further file, which is not included."
)


def write(directory: Path, file: Path) -> Path | None:
    """Write the CLAUDE.md texts to ``file`` and return it; None without any."""
    if conf.bridge_claude_memory == "off":
        return None
    left, texts = limits.CLAUDE_MEMORY_BYTES, []
    for path, data, size in _files(directory):
        kept = data[: min(limits.CLAUDE_MEMORY_FILE_BYTES, left)]
        left -= len(kept)
        text = kept.decode("utf-8", "replace").removeprefix("\ufeff").replace("\0", "").strip()
        cut = f"\n[cut: {size} bytes in all]" if size > len(kept) else ""
        if text:
            texts.append(f"# {printable(path)}\n\n{text}{cut}")
    if not texts:
        return None
    file.write_text("\n\n".join([_PREFACE, *texts]), encoding="utf-8")
    return file


def _files(directory: Path) -> Iterator[tuple[str, bytes, int]]:
    """Yield path, beginning and size of each file: the user's first, the nearest last."""
    own = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude", "CLAUDE.md")
    seen = {os.path.realpath(own)}
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO is not waited for
    # even behind a link
    with suppress(OSError), open(own, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield str(own), *_beginning(file.fileno())
    jail = default_jail()
    levels = _levels(jail, directory)
    for level in levels:
        for name in (*NAMES, *_rules(jail, level)):
            try:
                with jail.open_file(name, base=level) as opened:
                    # a link may lead elsewhere in the repository, and not out of it
                    inside = os.path.commonpath([opened.path, levels[0]]) == levels[0]
                    if inside and opened.path not in seen:
                        seen.add(opened.path)
                        yield os.path.join(level, name), *_beginning(opened.fd)
            except (BridgeError, OSError):
                continue  # it is not there, or not to be read


def _levels(jail: Jail, directory: Path) -> list[str]:
    """Return the directories from the repository's top down, inside the allowed roots."""
    levels: list[str] = []
    with suppress(BridgeError):  # above the allowed roots, or not there
        here = Path(jail.resolve(str(directory)))
        for level in (here, *here.parents):
            jail.resolve(str(level))
            levels.insert(0, str(level))
            with suppress(BridgeError):
                jail.resolve(".git", base=str(level))
                return levels
    return levels[-1:]  # no repository


def _rules(jail: Jail, level: str) -> list[str]:
    try:
        with jail.open_dir(RULES, base=level) as opened, os.scandir(opened.fd) as entries:
            names = [entry.name for entry in islice(entries, limits.CLAUDE_RULES)]
    except (BridgeError, OSError):
        return []
    return [f"{RULES}/{name}" for name in sorted(names) if name.endswith(".md")]


def _beginning(fd: int) -> tuple[bytes, int]:
    with open(fd, "rb", closefd=False) as file:
        return file.read(limits.CLAUDE_MEMORY_FILE_BYTES), os.fstat(fd).st_size
