"""The change that an edit of claude-code made, as a unified diff. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def unified_diff(result: object) -> str | None:
    """Of the structured result of a tool: None when it changed no text file, or does not say
    how.
    """
    if not isinstance(result, Mapping) or not isinstance(result.get("filePath"), str):
        return None
    path, content = result["filePath"], result.get("content")
    if result.get("type") == "create" and isinstance(content, str):
        return (
            "\n".join(["--- /dev/null", f"+++ {path}", *_created(content), ""]) if content else None
        )
    hunks = result.get("structuredPatch")
    if not isinstance(hunks, list) or not hunks or not all(map(_is_hunk, hunks)):
        return None
    return "\n".join(
        [f"--- {path}", f"+++ {path}", *(line for hunk in hunks for line in _lines(hunk)), ""]
    )


def _is_hunk(hunk: object) -> bool:
    return isinstance(hunk, Mapping) and isinstance(hunk.get("lines"), list)


def _lines(hunk: Mapping[str, Any]) -> Iterator[str]:
    old, old_count, new, new_count = (
        hunk.get(name, 0) for name in ("oldStart", "oldLines", "newStart", "newLines")
    )
    yield f"@@ -{old},{old_count} +{new},{new_count} @@"
    yield from map(str, hunk["lines"])


def _created(content: str) -> Iterator[str]:
    """A file that was not there has no hunks: all of it is new."""
    lines = content.split("\n")
    ends = lines[-1] == ""
    lines = lines[:-1] if ends else lines
    yield f"@@ -0,0 +1,{len(lines)} @@"
    yield from (f"+{line}" for line in lines)
    if not ends:
        yield "\\ No newline at end of file"
