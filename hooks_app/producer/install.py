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


def install(text: str, spool: str) -> str:
    """Return the settings with our hooks for ``spool``, once each.

    An older version's command is replaced by the present one; other changes in our entry stay. If
    there is nothing to do, the text is returned unchanged.
    """
    settings = _parse(text)
    hooks = settings.setdefault("hooks", {})
    for event in shell_command.HOOK_EVENTS:
        wanted = shell_command.hook_entry(event, spool)
        found = next(_ours(hooks.get(event, []), spool), None)
        if found is None:
            hooks.setdefault(event, []).append(wanted)
        else:
            found[1]["command"] = wanted["hooks"][0]["command"]
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


def _ours(entries: list[Any], spool: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield our hook objects of an event, in either format, each after its entry."""
    first_form = f"cd {shell_command.quoted(spool)}&&"
    for entry in entries:
        hooks = entry.get("hooks") if isinstance(entry, dict) else None
        for hook in hooks if isinstance(hooks, list) else []:
            command = hook.get("command") if isinstance(hook, dict) else None
            if command == shell_command.hook_command(spool) or (
                isinstance(command, str)
                and command.endswith(shell_command.HOOK_MARK)
                and first_form in command
            ):
                yield entry, hook


def _parse(text: str) -> dict[str, Any]:
    """Parse the settings, which may be empty, and check what is edited. Raises SettingsError."""
    try:
        settings = json.loads(text.removeprefix("\ufeff") or "{}", parse_constant=_refuse)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SettingsError(f"it is not JSON: {error.msg} ({where})") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"it is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise SettingsError("it is JSON, but not an object")
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError('its "hooks" is not an object')
    for event, entries in hooks.items():
        if not isinstance(entries, list):
            raise SettingsError(f'its "hooks" has no list for {json.dumps(event)}')
    return settings


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _written(settings: dict[str, Any], text: str) -> str:
    """Return the settings as text; ``text`` itself where it means the same."""
    if settings == _parse(text):
        return text
    try:
        written = json.dumps(settings, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        written.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(settings, indent=2) + "\n"
    except ValueError:
        raise SettingsError("it has a number that is too large to be written again") from None
    return written
