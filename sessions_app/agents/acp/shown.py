"""Find what a call's parameters do not show of the files that it changes. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge_project.protocol.risk import PATH_NAMES, paths_in
from sessions_app.agents.diffs import Change

# the names that agents give a text before and after
_TEXTS = (
    (None, "content"),
    *(("oldText", "newText"), ("old_text", "new_text"), ("old_str", "new_str")),
    *(("old_string", "new_string"), ("oldString", "newString")),
)
# the names that agents give a change in a form of their own
_PATCHES = ("diff", "patch", "unified_diff", "changes", "edits", "input")
_Edit = tuple[str | None, str]  # the text before, None: whatever it was, and after


def unnamed(
    params: Mapping[str, Any], changes: Sequence[Change], paths: Sequence[str]
) -> dict[str, Any]:
    """Return a call's files that its parameters do not name, to be shown as well."""
    named = tuple(paths_in(params))

    def is_new(path: str) -> bool:
        return not any(is_same(path, name) for name in named)

    shown = _parts(params)
    shown_edits = [*_edits(shown), *_edits(_listed(shown))]
    patches = [part.get(name) for part in shown for name in _PATCHES]

    def is_shown(change: Change) -> bool:
        edits = [edit for name, edit in shown_edits if is_same(change.path, name)]
        if not edits:  # of a patch in some form of its own nobody can tell
            return not is_new(change.path) and any(_may_contain(one, change) for one in patches)
        if not change.new:  # some say what they delete, as "content"
            gone = _edits([part for part in shown if part.get("type") == "delete"])
            edits += [(old, "") for name, (_, old) in gone if is_same(change.path, name)]
        return _leads_to(change, edits)

    more = [shown_change(change) for change in changes if not is_shown(change)]
    changed = {path for path, _, _ in changes}
    others = [path for path in paths if is_new(path) and path not in changed]
    more = [*_more(params), *more] if more else []  # what is listed already stays
    return ({"more": more} if more else {}) | ({"paths": others} if others else {})


def is_same(path: str, name: str) -> bool:
    """Return whether a path is that of a name, which may be relative."""
    return path == name or path.endswith("/" + name.removeprefix("./"))


def shown_change(change: Change) -> dict[str, str]:
    """Return a change as parameters: an edit has both texts, a new file its content."""
    if change.old:
        return {"file_path": change.path, "old_string": change.old, "new_string": change.new}
    return {"file_path": change.path, "content": change.new}


def _leads_to(change: Change, edits: Sequence[_Edit]) -> bool:
    """Return whether these edits of the old text make the new one."""
    once = everywhere = change.old
    for old, new in edits:
        if _equal(change.new, new) and (old is None or _equal(change.old, old)):  # whole texts
            return True
        if old:
            once, everywhere = once.replace(old, new, 1), everywhere.replace(old, new)
    return _equal(change.new, once) or _equal(change.new, everywhere)  # also of no change


def _more(params: Mapping[str, Any]) -> list[Any]:
    more = params.get("more")
    return more if isinstance(more, list) else []


def _parts(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a call's parameters, and those of the further changes that it lists."""
    return [part for part in (params, *_more(params)) if isinstance(part, Mapping)]


def _edits(shown: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, _Edit]]:
    for part in shown:
        path = next((one for name in PATH_NAMES if isinstance(one := part.get(name), str)), None)
        if path is None:
            continue
        for before, after in _TEXTS:
            old, new = part.get(before) if before else None, part.get(after)
            if (isinstance(old, str) or not before) and isinstance(new, str):
                yield path, (old, new)


def _may_contain(patch: Any, change: Change) -> bool:
    """Return whether a patch, as far as it can be read, has each line that changes."""
    if not isinstance(patch, str):
        return bool(patch)
    changed = set(change.old.splitlines()) ^ set(change.new.splitlines())
    return bool(patch) and all(line.strip() in patch for line in changed)


def _listed(shown: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the edits of calls that list several of one file, as calls of their own."""
    return [
        {name: part[name] for name in PATH_NAMES if name in part} | edit
        for part in shown
        if isinstance(part.get("edits"), list)
        for edit in part["edits"]
        if isinstance(edit, dict)
    ]


def _equal(one: str, other: str) -> bool:
    # whatever their line ends
    return one.replace("\r\n", "\n").rstrip("\n") == other.replace("\r\n", "\n").rstrip("\n")
