"""Add our hooks to the text of an agent's settings, or remove them (D43). Pure.

All other settings keep value and place; the layout of JSON becomes that of
`json.dump(indent=2)`, and TOML is only added to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import tomllib

from hooks_app.producer import shell_command
from hooks_app.producer.agents import AGENTS, CLAUDE, HookedAgent

_CLAUDE = AGENTS[CLAUDE]
_ASKING = ("default", "acceptEdits", "plan")  # modes in which it asks somebody
ASKS_NOBODY = (
    "Newer Claude Codes decide by themselves, and ask nobody, until {} has"
    ' "permissions": {{"defaultMode": "default"}}.'
)


class SettingsError(ValueError):
    """Report a settings file that cannot be edited, in one sentence."""


def install(
    text: str, spool: str, *, answers: bool | None = None, agent: HookedAgent = _CLAUDE
) -> str:
    """Return the settings with our hooks for ``spool``, once each.

    ``answers``: whether what asks waits for a person's answer by the bridge (D66); None: as it is.
    An older version's command is replaced by the present one; other changes in our entry stay. If
    there is nothing to do, the text is returned unchanged.
    """
    if answers is None:
        answers = answering(text, spool, agent=agent)
    settings = _parse(text, agent)
    if agent.form == "toml":
        return _checked(_cut(text, spool) + shell_command.toml_hooks(agent, spool), agent)
    if agent.form == "copilot":
        settings.setdefault("version", 1)
    hooks = settings.setdefault("hooks", {})
    for event in agent.events:
        wanted = shell_command.hook_entry(event, spool, answers=answers, agent=agent)
        found = next(_ours(hooks.get(event, []), spool), None)
        if found is None:
            hooks.setdefault(event, []).append(wanted)
            continue
        ours, new = found[1], wanted.get("hooks", [wanted])[0]
        if _waits(ours) != _waits(new):  # a time-out that suits the other one does not suit it
            ours |= new
        ours |= {name: new[name] for name in _COMMANDS if name in new}
    return _written(settings, text, agent)


def remove(text: str, spool: str, *, agent: HookedAgent = _CLAUDE) -> str:
    """Return the settings without our hooks, and without lists that this empties."""
    settings = _parse(text, agent)
    if agent.form == "toml":
        return _checked(_cut(text, spool), agent)
    hooks = settings.get("hooks", {})
    for event, entries in list(hooks.items()):
        for entry, ours in list(_ours(entries, spool)):
            if entry is not ours:
                entry["hooks"] = [hook for hook in entry["hooks"] if hook is not ours]
            if entry is ours or not entry["hooks"]:
                entries[:] = [one for one in entries if one is not entry]
            if not entries:
                del hooks[event]
                if not hooks:
                    del settings["hooks"]
    return _written(settings, text, agent)


def installed(text: str, spool: str, *, agent: HookedAgent = _CLAUDE) -> bool:
    """Return whether one of our hooks for ``spool`` is in the settings."""
    hooks = _parse(text, agent).get("hooks", {})
    lists = [hooks] if isinstance(hooks, list) else hooks.values()
    return any(True for listed in lists for _ in _ours(listed, spool))


def answering(text: str, spool: str, *, agent: HookedAgent = _CLAUDE) -> bool:
    """Return whether what asks waits for an answer by the bridge (D66)."""
    settings = _parse(text, agent)
    asked = settings.get("hooks", {}).get(agent.answers, []) if agent.answers else []
    return any(_waits(hook) for _, hook in _ours(asked, spool))


def asks_somebody(text: str) -> bool:
    """Return whether Claude Code's settings have it ask before it acts."""
    permissions = _parse(text, _CLAUDE).get("permissions")
    return isinstance(permissions, dict) and permissions.get("defaultMode") in _ASKING


_COMMANDS = ("command", "bash")  # what agents call a hook's command


def _command(hook: dict[str, Any]) -> str:
    return str(next((hook[name] for name in _COMMANDS if name in hook), ""))


def _waits(hook: dict[str, Any]) -> bool:
    return shell_command.ANSWER_SCRIPT in _command(hook)


def _ours(entries: list[Any], spool: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each of our hooks of an event with its entry, which may be itself.

    Also those of the first version.
    """
    places = (
        shell_command.quoted(f"{spool}/{shell_command.HOOK_SCRIPT}"),
        shell_command.quoted(f"{spool}/{shell_command.ANSWER_SCRIPT}"),
        (f"cd {shell_command.quoted(spool)}&&"),
    )
    for entry in entries:
        hooks = entry.get("hooks", [entry]) if isinstance(entry, dict) else None
        for hook in hooks if isinstance(hooks, list) else []:
            command = _command(hook) if isinstance(hook, dict) else ""
            marked = command.endswith(shell_command.HOOK_MARK)
            if marked and any(place in command for place in places):
                yield entry, hook


# -- the text --------------------------------------------------------------------------------------


def is_empty(text: str, agent: HookedAgent = _CLAUDE) -> bool:
    """Return whether settings say nothing, so that their file may go."""
    return not (text.strip() if agent.form == "toml" else _parse(text, agent).keys() - {"version"})


def _parse(text: str, agent: HookedAgent) -> dict[str, Any]:
    """Parse the settings, which may be empty, and check them. Raises SettingsError."""
    toml, text = agent.form == "toml", text.removeprefix("\ufeff")
    settings: Any = None
    try:
        settings = tomllib.loads(text) if toml else json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"it is not {'TOML' if toml else 'JSON'}: {error}") from None
    if isinstance(settings, dict):
        hooks = settings.get("hooks", [] if toml else {})
        lists = [hooks] if toml else hooks.values() if isinstance(hooks, dict) else [None]
        if all(isinstance(one, list) for one in lists):
            return settings
    raise SettingsError('it is no object whose "hooks" maps events to lists')


def _written(settings: dict[str, Any], text: str, agent: HookedAgent) -> str:
    """Return the settings as text; ``text`` itself where it means the same."""
    if settings == _parse(text, agent):
        return text
    try:
        written = json.dumps(settings, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        written.encode()
    except ValueError:  # NaN, an infinity, half of a surrogate pair
        raise SettingsError("it has a value that cannot be written again") from None
    return written


# TOML has no writer that keeps comments and layout: our hooks are lines at the end, between marks.


def _cut(text: str, spool: str) -> str:
    """Return the text without our lines, ready for them at its end."""
    begin, end = shell_command.toml_marks(spool)
    before, found, rest = text.partition(begin)
    if not found:
        return text if not text or text.endswith("\n") else f"{text}\n"
    _, closed, after = rest.partition(end)
    if not closed:
        raise SettingsError(
            f"the line {end.strip()!r} is not there any more: take ours out by hand"
        )
    return before + after


def _checked(text: str, agent: HookedAgent) -> str:
    """Return the text if it can still be read. Raises SettingsError."""
    try:
        _parse(text, agent)
    except SettingsError as error:
        raise SettingsError(f"hooks cannot be added at its end: {error}") from None
    return text
