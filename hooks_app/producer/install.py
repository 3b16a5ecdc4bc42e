"""Add our hooks to the text of an agent's settings, or remove them (D43). Pure.

All other settings keep value and place; the layout becomes that of `json.dump(indent=2)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hooks_app.producer import shell_command


class SettingsError(ValueError):
    """Report a settings file that cannot be edited, in one sentence."""


def install(text: str, spool: str, *, answers: bool | None = None) -> str:
    """Return the settings with our hooks for ``spool``, once each.

    ``answers``: whether a permission request waits for a person's answer by the bridge (D66); None:
    as it is. An older version's command is replaced by the present one; other changes in our entry
    stay. If there is nothing to do, the text is returned unchanged.
    """
    if answers is None:
        answers = answering(text, spool)
    settings = _parse(text)
    hooks = settings.setdefault("hooks", {})
    for event in shell_command.HOOK_MATCHERS:
        wanted = shell_command.hook_entry(event, spool, answers=answers)
        found = next(_ours(hooks.get(event, []), spool), None)
        if found is None:
            hooks.setdefault(event, []).append(wanted)
        else:
            ours, new = found[1], wanted["hooks"][0]
            if _waits(ours) != _waits(new):  # a timeout that suits the other one does not suit it
                ours["timeout"] = new["timeout"]
            ours["command"] = new["command"]
    return _written(settings, text)


def remove(text: str, spool: str) -> str:
    """Return the settings without our hooks, and without lists that this empties."""
    settings = _parse(text)
    hooks = settings.get("hooks", {})
    for event, entries in list(hooks.items()):
        for entry, ours in list(_ours(entries, spool)):
            entry["hooks"] = [hook for hook in entry["hooks"] if hook is not ours]
            if not entry["hooks"]:
                entries[:] = [one for one in entries if one is not entry]
            if not entries:
                del hooks[event]
                if not hooks:
                    del settings["hooks"]
    return _written(settings, text)


def installed(text: str, spool: str) -> bool:
    """Return whether one of our hooks for ``spool`` is in the settings."""
    entries = _parse(text).get("hooks", {}).values()
    return any(True for listed in entries for _ in _ours(listed, spool))


def answering(text: str, spool: str) -> bool:
    """Return whether permission requests wait for an answer by the bridge (D66)."""
    asked = _parse(text).get("hooks", {}).get(shell_command.ANSWERED, [])
    return any(_waits(hook) for _, hook in _ours(asked, spool))


def _waits(hook: dict[str, Any]) -> bool:
    return shell_command.ANSWER_SCRIPT in str(hook["command"])


def _ours(entries: list[Any], spool: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each of our hook objects of an event, also the first version's."""
    places = (
        shell_command.quoted(f"{spool}/{shell_command.HOOK_SCRIPT}"),
        shell_command.quoted(f"{spool}/{shell_command.ANSWER_SCRIPT}"),
        (f"cd {shell_command.quoted(spool)}&&"),
    )
    for entry in entries:
        hooks = entry.get("hooks") if isinstance(entry, dict) else None
        for hook in hooks if isinstance(hooks, list) else []:
            command = str(hook.get("command")) if isinstance(hook, dict) else ""
            marked = command.endswith(shell_command.HOOK_MARK)
            if marked and any(place in command for place in places):
                yield entry, hook


def _parse(text: str) -> dict[str, Any]:
    """Parse the settings, which may be empty, and check them. Raises SettingsError."""
    try:
        settings = json.loads(text.removeprefix("\ufeff") or "{}")
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"it is not JSON: {error}") from None
    if isinstance(settings, dict):
        hooks = settings.get("hooks", {})
        if isinstance(hooks, dict) and all(isinstance(one, list) for one in hooks.values()):
            return settings
    raise SettingsError('it is no object whose "hooks" maps events to lists')


def _written(settings: dict[str, Any], text: str) -> str:
    """Return the settings as text; ``text`` itself where it means the same."""
    if settings == _parse(text):
        return text
    try:
        written = json.dumps(settings, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        written.encode()
    except ValueError:  # NaN, an infinity, half of a surrogate pair
        raise SettingsError("it has a value that cannot be written again") from None
    return written
