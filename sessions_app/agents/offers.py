"""Hold what an agent offers, without what would change how it asks (D69). Pure."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.text import valid, without_controls
from bridge_project.protocol import jsontext
from bridge_project.protocol.resources import SessionChoice, SessionCommand, SessionOption
from sessions_app.approvals.tool_call import usable_id

PLAN: Final = "plan"  # the id of the option that has an agent plan first
ON, OFF = "on", "off"
NOT_OFFERED: Final = "The agent does not offer this choice, or not any more."

# Words in the names of commands, options and values that change how an agent asks, of whichever
# agent. One that only sounds so is refused too.
_CHANGE_ASKING: Final = re.compile(
    r"""
      permission | approv | yolo | bypass | unattended | dangerous | autopilot | autonom
    | full[ _-]?access | allow(?:[ _-]|ed|$) | accept[ _-]?edits | auto[ _-]?(?:accept|edit|run)
    | (?:^|[ :._-])(?:modes?|config|settings?|trust|sandbox|hooks?|add[ _-]?dir)(?:$|[ :._-])
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Some agents trim more than white space, and take blanks after the sign.
_COMMAND: Final = re.compile(r"[\s\ufeff\u200b-\u200f\u2060-\u2064]*/[\s/]*([^\s/]+)(?=\s|$)")
_NAME: Final = re.compile(r"[^\s/]{1,100}")


@dataclass(frozen=True, slots=True)
class Offers:
    """Hold a session's options and commands, fit to be sent."""

    options: tuple[SessionOption, ...] = ()
    commands: tuple[SessionCommand, ...] = ()

    def with_options(self, options: Iterable[SessionOption]) -> "Offers":
        """Take other options, but several with one id, or one without a choice."""
        given = [fit for one in options if (fit := _option(one)) is not None]
        times = Counter(one.id for one in given)
        kept = [one for one in given if times[one.id] == 1]
        return replace(self, options=tuple(kept[: limits.AGENT_OPTIONS]))

    def with_commands(self, commands: Iterable[SessionCommand]) -> "Offers":
        """Take other commands, each name once."""
        found: dict[str, SessionCommand] = {}
        for one in commands:
            if len(found) == limits.AGENT_COMMANDS:
                break
            name = one.name.removeprefix("/")
            shown = _NAME.fullmatch(name) and name.isprintable() and not name.startswith("_")
            if shown and not changes_asking(name):
                about = {"description": _words(one.description), "hint": _words(one.hint)}
                found.setdefault(name, SessionCommand(name=name, **about))
        return replace(self, commands=tuple(found.values()))

    def find(self, option_id: str, value: str) -> SessionOption | None:
        """Return the option if it offers this value."""
        known = (one for one in self.options if one.id == option_id)
        return next((one for one in known if any(c.value == value for c in one.choices)), None)

    def words_of_lost(self, before: SessionOption) -> str:
        """Return what a person is told of an option whose value was another, else nothing."""
        now = next((one for one in self.options if one.id == before.id), before)
        was, is_ = _name_of(before), _name_of(now)
        if not before.value or was == is_:
            return ""
        then = f"; it is {is_} now" if is_ else ""
        return f"The agent did not take {before.name} {was} again{then}."

    def text(self) -> str:
        """Return them as JSON text."""
        return jsontext.dumps(
            {
                "options": [one.wire() for one in self.options],
                "commands": [one.wire() for one in self.commands],
            }
        )


def _name_of(option: SessionOption) -> str:
    """Return the name of the value that an option has."""
    return next((one.name for one in option.choices if one.value == option.value), option.value)


def from_text(text: str) -> Offers:
    """Read what ``Offers.text`` gave; nothing is offered by an empty text."""
    known = jsontext.loads(text) if text else {"options": [], "commands": []}
    return Offers(
        tuple(map(SessionOption.model_validate, known["options"])),
        tuple(map(SessionCommand.model_validate, known["commands"])),
    )


def plan_option(*, on: bool) -> SessionOption:
    """Return the option of an agent whose plan mode asks."""
    about = "It looks and plans, and asks before it begins. Every call asks all the same."
    choices = [
        SessionChoice(value=OFF, name="Off"),
        SessionChoice(value=ON, name="On", description=about),
    ]
    value = ON if on else OFF
    return SessionOption(id=PLAN, name="Plan first", kind="plan", value=value, choices=choices)


def changes_asking(name: str) -> bool:
    """Return whether a command, an option or a value may change how an agent asks."""
    return _CHANGE_ASKING.search(name) is not None


def command_that_changes_asking(message: str) -> str:
    """Return the command that a message begins with if it must not be given."""
    found = _COMMAND.match(message)
    return found[1] if found and changes_asking(found[1]) else ""


def _option(given: SessionOption) -> SessionOption | None:
    """Return an option fit to be sent, None for one that must not be."""
    if not usable_id(given.id) or changes_asking(given.id) or changes_asking(given.name):
        return None
    choices: dict[str, SessionChoice] = {}
    for one in given.choices[: limits.AGENT_OPTIONS]:
        if usable_id(one.value) and not (changes_asking(one.value) or changes_asking(one.name)):
            name = _words(one.name, limits.AGENT_OPTION_NAME_CHARS) or one.value
            about = _words(one.description)
            fit = SessionChoice(value=one.value, name=name, description=about)
            choices.setdefault(one.value, fit)
    if not choices:
        return None
    name = _words(given.name, limits.AGENT_OPTION_NAME_CHARS) or given.id
    value = given.value if given.value in choices else ""
    changed = {"name": name, "value": value, "choices": [*choices.values()]}
    return given.model_copy(update=changed)


def _words(text: str, most: int = limits.AGENT_DESCRIPTION_CHARS) -> str:
    """Return words on one line, without what turns text round."""
    return " ".join(without_controls(valid(text[: 2 * most])).split())[:most]
