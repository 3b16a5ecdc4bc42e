"""Read and check the hook configuration file; never run its commands (D49).

SPEC Hook producer configuration.
"""

from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.base import Received
from bridge_project.protocol.constraints import faults
from bridge_project.protocol.types import HOOK_EVENTS, HookEventName

log = structlog.get_logger("bridge.hooks")

MAX_BYTES: Final = 2**20  # a configuration is a page of text; a larger file is something else

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class CommandHook(Received):
    """Declare ``command``, which reads the event from standard input and posts it."""

    type: Literal["command"]
    command: str = Field(min_length=1)
    timeout: Seconds | None = None


class PromptHook(Received):
    """Declare ``prompt``.

    Its answer is approve or deny (PreToolUse), complete or continue (Stop).
    """

    type: Literal["prompt"]
    prompt: str = Field(min_length=1)
    timeout: Seconds | None = None


class Entry(Received):
    """Bind hooks to a ``matcher`` of tool names; without one, to all."""

    matcher: str | None = None
    hooks: list[Annotated[CommandHook | PromptHook, Field(discriminator="type")]]


_ENTRIES: Final = TypeAdapter(dict[str, list[Entry]])


def active_hooks() -> list[HookEventName]:
    """Return the events that BRIDGE_HOOKS_CONFIG has hooks for, in order.

    The file is the map of the specification, or has it under ``hooks``; names that are no hook
    events are ignored. Raises BridgeError HOOK_INVALID_PAYLOAD with ``details {field, constraint}``
    when it cannot be read or is wrong.
    """
    value = _read() if conf.bridge_hooks_config else {}
    inside = isinstance(value, dict) and "hooks" in value
    place, found = ("hooks", value["hooks"]) if inside else ("file", value)
    if not isinstance(found, dict):
        raise _invalid((place, "object", "must be an object that maps event names to lists"))
    known = {name: found[name] for name in HOOK_EVENTS if name in found}
    try:
        entries = _ENTRIES.validate_python(known, strict=True)
    except ValidationError as error:
        prefix = ("hooks",) if inside else ()
        wrong = [(_place(prefix, f.path), f.constraint, f.sentence) for f in faults(error)]
        raise _invalid(*wrong) from None
    return [name for name in HOOK_EVENTS if any(entry.hooks for entry in entries.get(name, ()))]


def check() -> None:
    """Log what is wrong with the configuration; the bridge starts all the same."""
    try:
        active_hooks()
    except BridgeError as error:
        file = str(conf.bridge_hooks_config)
        log.warning("hook_configuration_invalid", file=file, problem=error.message)


def _place(prefix: tuple[str, ...], path: tuple[str | int, ...]) -> str:
    """Write a place as ``hooks.Stop[0].hooks[1].timeout``.

    Leave out the name of the variant, which pydantic puts after the index of a hook.
    """
    parts = (*prefix, *path[:4], *path[5:])
    named = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return "".join(named).removeprefix(".")


def _read() -> Any:
    assert conf.bridge_hooks_config is not None
    try:
        with conf.bridge_hooks_config.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            limit = f"at most {MAX_BYTES} bytes"
            raise _invalid(("file", limit, f"is larger than {MAX_BYTES} bytes"))
        return jsontext.loads(data)
    except OSError as error:
        raise _invalid(("file", "readable", f"cannot be read: {error.strerror}")) from None
    except jsontext.JsonError as error:
        raise _invalid(("file", "JSON", f"is not usable JSON: {error}")) from None


def _invalid(*wrong: tuple[str, str, str]) -> BridgeError:
    place, constraint, sentence = wrong[0]
    return BridgeError(
        "HOOK_INVALID_PAYLOAD",
        f"The hook configuration is wrong: {place} {sentence}.",
        details={"field": place, "constraint": constraint},
        violations=[{"field": field, "constraint": rule} for field, rule, _ in wrong],
    )
