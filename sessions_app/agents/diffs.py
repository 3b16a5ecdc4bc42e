"""Write an agent's changes to files as unified diffs. Pure."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import NamedTuple

_MAX_CHARS = 100_000
# of equal lines, by which comparing takes time: about 0.3 s, while everybody waits
_MAX_PAIRS = 100_000
_NO_NEWLINE = "\\ No newline at end of file"


class Change(NamedTuple):
    """Hold a file's text before and after."""

    path: str
    old: str
    new: str


def diff_of_texts(changes: Sequence[Change]) -> str | None:
    """Compare texts; each diff of several stands under its file's name.

    A text that takes long to compare has no diff.
    """
    parts = []
    for path, old, new in changes:
        # not splitlines(), to which a form feed ends a line
        before, after = StringIO(old).readlines(), StringIO(new).readlines()
        if len(old) + len(new) > _MAX_CHARS or _pairs(before, after) > _MAX_PAIRS:
            continue
        header = [f"--- {path}\n", f"+++ {path}\n"] if len(changes) > 1 else []
        parts += [
            line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n"
            for line in [*header, *list(difflib.unified_diff(before, after))[2:]]
        ]
    return "".join(parts) or None


def _pairs(before: list[str], after: list[str]) -> int:
    """Count the pairs of equal lines that difflib looks at.

    It passes over a line that is more than a hundredth of a long text.
    """
    counts, most = Counter(after), len(after) // 100 + 1 if len(after) >= 200 else len(after)
    return sum(count for line in before if (count := counts[line]) <= most)


def diff_of_result(result: object) -> str | None:
    """Return the diff in claude-code's structured result (tool_result.py), if any."""
    if not isinstance(result, Mapping):
        return None
    path, content = result.get("filePath"), result.get("content")
    named = isinstance(path, str)
    if named and result.get("type") == "create" and isinstance(content, str):
        lines = content.removesuffix("\n").split("\n")
        added = [f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines)]
        end = [] if content.endswith("\n") else [_NO_NEWLINE]
        return "\n".join(["--- /dev/null", f"+++ {path}", *added, *end, ""]) if content else None
    hunks = result.get("structuredPatch")
    parts = [f"--- {path}", f"+++ {path}"] if named else []
    for hunk in hunks if isinstance(hunks, list) else ():
        changed = hunk.get("lines") if isinstance(hunk, Mapping) else None
        if not isinstance(changed, list) or not changed:
            return None
        counts = (hunk.get(name, 0) for name in ("oldStart", "oldLines", "newStart", "newLines"))
        parts += ["@@ -{},{} +{},{} @@".format(*counts), *map(str, changed)]
    return "\n".join([*parts, ""]) if hunks and isinstance(hunks, list) else None
