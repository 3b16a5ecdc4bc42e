"""The hook configuration file: read, validated and reported; the bridge never runs its commands
(SPEC Hook producer configuration; D49).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
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

MAX_BYTES: Final = 2**20  # a configuration is a page of text; what is larger is something else

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class CommandHook(Received):
    """``command`` reads the event's JSON from standard input and posts it."""

    type: Literal["command"]
    command: str = Field(min_length=1)
    timeout: Seconds | None = None


class PromptHook(Received):
    """``prompt`` is answered by approve or deny (PreToolUse), complete or continue (Stop)."""

    type: Literal["prompt"]
    prompt: str = Field(min_length=1)
    timeout: Seconds | None = None


class Entry(Received):
    """``matcher``: a pattern of tool names; absent: all."""

    matcher: str | None = None
    hooks: list[Annotated[CommandHook | PromptHook, Field(discriminator="type")]]


_ENTRIES: Final = TypeAdapter(list[Entry])


class _State:
    """What was loaded last; a reload that fails changes nothing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.active: list[HookEventName] = []


_state = _State()


def active_hooks() -> list[HookEventName]:
    """The events that the configuration in use has hooks for, in the order of the specification."""
    return list(_state.active)


def reload() -> list[HookEventName]:
    """Read BRIDGE_HOOKS_CONFIG again; nothing is active where none is set.

    Raises BridgeError HOOK_INVALID_PAYLOAD with ``details {field, constraint}`` when it cannot be
    read or is wrong; the old one stays in use.
    """
    with _state.lock:
        path = conf.bridge_hooks_config
        _state.active = parse(_read(path)) if path is not None else []
        return active_hooks()


def start() -> None:
    """Load it when the bridge starts. A wrong file is said and does not keep the bridge from
    starting.
    """
    try:
        reload()
    except BridgeError as error:
        log.warning(
            "hook_configuration_invalid", file=str(conf.bridge_hooks_config), problem=error.message
        )


def parse(value: Any) -> list[HookEventName]:
    """The active events of a parsed configuration: the map of the specification, or an object that
    has it under ``hooks``.

    Names that are no hook events are ignored. Raises BridgeError as ``reload``.
    """
    prefix, events = "", value
    if isinstance(value, dict) and "hooks" in value:
        prefix, events = "hooks", value["hooks"]
    if not isinstance(events, dict):
        raise _invalid(
            [(prefix or "file", "object", "must be an object that maps event names to lists")]
        )
    return _active(events, prefix)


def _active(events: Mapping[str, Any], prefix: str) -> list[HookEventName]:
    active: list[HookEventName] = []
    wrong: list[tuple[str, str, str]] = []
    for name in HOOK_EVENTS:
        if name not in events:
            continue
        try:
            entries = _ENTRIES.validate_python(events[name], strict=True)
        except ValidationError as error:
            place = f"{prefix}.{name}" if prefix else name
            wrong += [
                (place + _path(fault.path), fault.constraint, fault.sentence)
                for fault in faults(error)
            ]
            continue
        if any(entry.hooks for entry in entries):
            active.append(name)
    if wrong:
        raise _invalid(wrong)
    return active


def _path(parts: tuple[str | int, ...]) -> str:
    """``[0].hooks[1].timeout``. The name of the variant, which pydantic puts after the index of a
    hook, is no part of the file.
    """
    kept = [
        part
        for i, part in enumerate(parts)
        if not (part in ("command", "prompt") and i and isinstance(parts[i - 1], int))
    ]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in kept)


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _invalid([("file", "readable", f"cannot be read: {error.strerror}")]) from None
    if len(data) > MAX_BYTES:
        raise _invalid(
            [("file", f"at most {MAX_BYTES} bytes", f"is larger than {MAX_BYTES} bytes")]
        )
    try:
        return jsontext.loads(data)
    except jsontext.JsonError as error:
        raise _invalid([("file", "JSON", f"is not usable JSON: {error}")]) from None


def _invalid(wrong: list[tuple[str, str, str]]) -> BridgeError:
    place, constraint, sentence = wrong[0]
    violations = [{"field": field, "constraint": rule} for field, rule, _ in wrong]
    return BridgeError(
        "HOOK_INVALID_PAYLOAD",
        f"The hook configuration is wrong: {place} {sentence}.",
        details={"field": place, "constraint": constraint},
        violations=violations,
    )
