"""Find how a directory spells a name that may be spelled in several ways (D77).

macOS's usual file systems ignore case and the ways to compose a letter.
"""

import os
import unicodedata


def real_name(directory: int, name: str, found: os.stat_result) -> str:
    """Return a name as the open directory has it. ``found``: what it has led to."""
    if not any(_leads(directory, other, found) for other in _spellings(name) - {name}):
        return name
    same = _fold(name)
    with os.scandir(directory) as entries:
        names = [one.name for one in entries if _fold(one.name) == same]
    # a name that is there is itself: two hard links may differ in case alone
    others = (one for one in names if _leads(directory, one, found))
    return name if name in names else next(others, name)


def real_path(path: str) -> str:
    """Return an absolute path without links as its directories spell it."""
    parts: list[str] = []
    for name in path.split("/")[1:]:
        try:
            held = os.open("/" + "/".join(parts), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # it may be passed through, but not read: nobody can tell
            parts.append(name)
            continue
        try:
            stat = os.stat(name, dir_fd=held, follow_symlinks=False)
            parts.append(real_name(held, name, stat))
        except OSError:  # what is not there has no other spelling
            parts.append(name)
        finally:
            os.close(held)
    return "/" + "/".join(parts)


def _spellings(name: str) -> set[str]:
    return {name.swapcase(), *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))}


def _fold(name: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _leads(directory: int, name: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), found)
    except (OSError, ValueError):  # ValueError: it cannot be a name here
        return False
