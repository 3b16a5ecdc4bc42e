"""Our hooks into, and out of, the text of an agent's settings file; what is not ours keeps every byte (D43). Pure.

The text is edited, not written anew: somebody's own spacing, key order and numbers stay as they are.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

from hooks_app.producer import HOOK_EVENTS, HOOK_MARK, hook_entry, quoted_spool

_SPACE = re.compile(r"[ \t\n\r]*")


class SettingsError(ValueError):
    """The settings file cannot be edited; the text is one sentence."""


class _Part(NamedTuple):
    """A member of an object or an item of an array: where its key (an item: its value) begins, where its value begins and ends."""

    key: str
    start: int
    value: int
    end: int


def install(text: str, spool: str) -> str:
    """The settings with our hooks for ``spool`` in them, once each. Installing twice changes nothing. Raises SettingsError."""
    bom, text = _begin(text)
    if "hooks" not in _read(text):
        return bom + _insert(text, _root(text), {event: [hook_entry(event, spool)] for event in HOOK_EVENTS}, "hooks")
    for event in HOOK_EVENTS:
        hooks = _member(text, _root(text), "hooks")
        entries = next((part for part in reversed(_parts(text, hooks)) if part.key == event), None)
        if entries is None:
            text = _insert(text, hooks, [hook_entry(event, spool)], event)
        elif (ours := _ours(text, entries.value, spool)) is None:
            text = _insert(text, entries.value, hook_entry(event, spool))
        else:
            text = _renew(text, _parts(text, ours[1])[ours[2]], hook_entry(event, spool)["hooks"][0])
    return bom + text


def remove(text: str, spool: str) -> str:
    """The settings without our hooks for ``spool``, and without the lists and objects that this leaves empty. Raises SettingsError."""
    bom, text = _begin(text)
    settings = _read(text)
    for event in settings.get("hooks", {}):
        while (ours := _ours(text, _member(text, _member(text, _root(text), "hooks"), event), spool)) is not None:
            text = _remove_one(text, event, *ours)
            if event not in _read(text).get("hooks", {}):
                break
    return bom + text


def installed(text: str, spool: str) -> bool:
    """Whether any of our hooks for ``spool`` is in the settings. Raises SettingsError."""
    return remove(text, spool) != text


def _remove_one(text: str, event: str, entry: int, hooks_at: int, hook: int) -> str:
    text, left = _delete(text, hooks_at, hook)
    if left:
        return text
    text, left = _delete(text, _member(text, _member(text, _root(text), "hooks"), event), entry)
    if left:
        return text
    hooks = _member(text, _root(text), "hooks")
    text, left = _delete(text, hooks, _last(_parts(text, hooks), event))
    if left:
        return text
    return _delete(text, _root(text), _last(_parts(text, _root(text)), "hooks"))[0]


def _renew(text: str, part: _Part, wanted: dict[str, Any]) -> str:
    """An older version's command becomes the present one; whatever else somebody changed in the entry stays."""
    command = _member(text, part.value, "command")
    end = _DECODER.raw_decode(text, command)[1]
    current = json.loads(text[command:end])
    return text if current == wanted["command"] else text[:command] + json.dumps(wanted["command"], ensure_ascii=False) + text[end:]


def _ours(text: str, entries_at: int, spool: str) -> tuple[int, int, int] | None:
    """Where our hook is in an event's list: index of the entry, position of its ``hooks`` array, index in that array."""
    for index, entry in enumerate(_parts(text, entries_at)):
        value = _DECODER.raw_decode(text, entry.value)[0]
        hooks = value.get("hooks") if isinstance(value, dict) else None
        for number, hook in enumerate(hooks if isinstance(hooks, list) else []):
            command = hook.get("command") if isinstance(hook, dict) else None
            if isinstance(command, str) and command.endswith(HOOK_MARK) and f"cd {quoted_spool(spool)}&&" in command:
                return index, _member(text, entry.value, "hooks"), number
    return None


# -- reading ------------------------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)  # numbers are kept as text, so any will do


def _begin(text: str) -> tuple[str, str]:
    return (text[:1], text[1:]) if text.startswith("\ufeff") else ("", text)


def _read(text: str) -> dict[str, Any]:
    try:
        settings = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"it is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise SettingsError("it is JSON, but not an object")
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError('its "hooks" is not an object')
    for event, entries in hooks.items():
        if not isinstance(entries, list):
            raise SettingsError(f'its "hooks" has something other than a list for {json.dumps(event)}')
    return settings


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _root(text: str) -> int:
    return _skip(text, 0)


def _parts(text: str, at: int) -> list[_Part]:
    """The members or items of the object or array that begins at ``at``, in a text that is known to be JSON."""
    parts: list[_Part] = []
    in_object, at = text[at] == "{", _skip(text, at + 1)
    while text[at] not in "]}":
        start, key = at, ""
        if in_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        end = _DECODER.raw_decode(text, at)[1]
        parts.append(_Part(key, start, at, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return parts


def _last(parts: list[_Part], key: str) -> int:
    """Index of a key; of one that comes twice the last, which is the one that counts."""
    return max(index for index, part in enumerate(parts) if part.key == key)


def _member(text: str, at: int, key: str) -> int:
    parts = _parts(text, at)
    return parts[_last(parts, key)].value


# -- editing ------------------------------------------------------------------------------------------------------------------


def _unit(text: str) -> str | None:
    """One step of indentation, as the text's first member has it; None in a text without line breaks."""
    root = _root(text)
    parts = _parts(text, root)
    lead = text[root + 1 : parts[0].start] if parts else "\n  "
    return lead.rpartition("\n")[2] if "\n" in lead else None


def _insert(text: str, at: int, value: Any, key: str = "") -> str:
    """Append a member or an item to the container at ``at``, laid out as its neighbours are."""
    parts, unit = _parts(text, at), _unit(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if parts:
        lead = text[len(text[: parts[-1].start].rstrip(" \t\r\n")) : parts[-1].start]
        indent = lead.rpartition("\n")[2] if "\n" in lead else None
        return text[: parts[-1].end] + "," + lead + _write(key, value, unit, indent, newline) + text[parts[-1].end :]
    end = _DECODER.raw_decode(text, at)[1]
    if unit is None:
        return text[: at + 1] + _write(key, value, None, None, newline) + text[end - 1 :]
    line = text[text.rfind("\n", 0, at) + 1 : at]
    base = line[: len(line) - len(line.lstrip(" \t"))]
    return text[: at + 1] + newline + base + unit + _write(key, value, unit, base + unit, newline) + newline + base + text[end - 1 :]


def _write(key: str, value: Any, unit: str | None, indent: str | None, newline: str) -> str:
    layout = unit if unit is not None and indent is not None else None
    body = json.dumps(value, ensure_ascii=False, indent=layout).replace("\n", newline + (indent or ""))
    return f"{json.dumps(key, ensure_ascii=False)}: {body}" if key else body


def _delete(text: str, at: int, index: int) -> tuple[str, bool]:
    """Without that member or item; and whether the container still holds anything."""
    parts = _parts(text, at)
    if len(parts) == 1:
        return text[: at + 1] + text[_DECODER.raw_decode(text, at)[1] - 1 :], False
    if index == len(parts) - 1:
        return text[: parts[-2].end] + text[parts[-1].end :], True
    return text[: parts[index].start] + text[parts[index + 1].start :], True
