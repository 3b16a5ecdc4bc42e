"""Validate BRIDGE_HOOKS_CONFIG; the bridge runs none of its hooks (SPEC; D49)."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, RootModel

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.base import Received
from bridge_project.protocol.constraints import validate
from bridge_project.protocol.types import HOOK_EVENTS, HookEventName

MAX_BYTES: Final = 2**20  # a configuration is a page of text; a larger file is something else

Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class CommandHook(Received):
    """Declare a command hook: the agent runs ``command`` with the event as input."""

    type: Literal["command"]
    command: Text
    timeout: Seconds | None = None


class PromptHook(Received):
    """Declare a prompt hook.

    Its answer is approve or deny (PreToolUse), complete or continue (Stop).
    """

    type: Literal["prompt"]
    prompt: Text
    timeout: Seconds | None = None


class Entry(Received):
    """Bind hooks to a ``matcher`` of tool names; without one, to all."""

    matcher: str | None = None
    hooks: list[Annotated[CommandHook | PromptHook, Field(discriminator="type")]]


class Configuration(RootModel[dict[str, list[Entry]]]):
    """Map event names to entries."""


def active_hooks() -> list[HookEventName]:
    """Return the events that BRIDGE_HOOKS_CONFIG has hooks for, in order.

    The file is the map of the specification, or has it under ``hooks``; names that are no hook
    events are ignored. Raises BridgeError HOOK_INVALID_PAYLOAD with ``details {field, constraint}``
    when it cannot be read or is wrong.
    """
    found, place = _read() if conf.bridge_hooks_config else {}, "file"
    if isinstance(found, dict) and "hooks" in found:
        found, place = found["hooks"], "hooks"
    if not isinstance(found, dict):
        raise _invalid(place, "object", f"{place} must be an object")
    known = {name: found[name] for name in HOOK_EVENTS if name in found}
    entries, wrong = validate(Configuration, known, prefix="hooks." if place == "hooks" else "")
    if entries is None:
        # Stop.0.hooks.1.command.timeout (`command` is the variant) as Stop[0].hooks[1].timeout
        inner = re.sub(r"\.(\d+)(?:\.(?:command|prompt)(?=\.))?", r"[\1]", wrong[0].field)
        words = wrong[0].sentence.removeprefix(wrong[0].field)
        raise _invalid(inner, wrong[0].constraint, f"{inner}{words}")
    return [name for name in known if any(entry.hooks for entry in entries.root[name])]


def _read() -> Any:
    assert conf.bridge_hooks_config is not None
    try:
        with conf.bridge_hooks_config.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _invalid("file", f"at most {MAX_BYTES} bytes", "the file is too large")
        return jsontext.loads(data)
    except OSError as error:
        raise _invalid("file", "readable", f"the file cannot be read: {error.strerror}") from None
    except jsontext.JsonError as error:
        raise _invalid("file", "JSON", f"the file is not usable JSON: {error}") from None


def _invalid(place: str, constraint: str, sentence: str) -> BridgeError:
    return BridgeError(
        "HOOK_INVALID_PAYLOAD",
        f"The hook configuration is wrong: {sentence}.",
        details={"field": place, "constraint": constraint},
    )
