"""Turn pydantic's errors into violations: the expected value and the one received."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from bridge_project.kernel.text import SECRET_KEYS
from bridge_project.protocol import jsontext

_SECRET_MIN_CHARS: Final = 8  # shorter ones would hide every other word
_SHOWN_CHARS: Final = 40
_MISSING: Final = object()
_KINDS: Final = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string"}

# pydantic's error type → (constraint, end of the sentence that begins with the field's name)
_WORDS: Final = {
    "missing": ("required", "is required"),
    "string_type": ("string", "must be a string"),
    "int_type": ("integer", "must be an integer"),
    "bool_type": ("boolean", "must be a boolean"),
    "float_type": ("number", "must be a number"),
    "finite_number": ("number", "must be a finite number"),
    "dict_type": ("object", "must be an object"),
    "model_type": ("object", "must be an object"),
    "list_type": ("array", "must be an array"),
}
_BOUNDS: Final = {
    "greater_than_equal": ("ge", "at least {}"),
    "less_than_equal": ("le", "at most {}"),
    "string_too_short": ("min_length", "at least {} characters long"),
    "string_too_long": ("max_length", "at most {} characters long"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold a violation: its field's path, the constraint, and words for a person."""

    path: tuple[str | int, ...]
    constraint: str
    sentence: str

    @property
    def field(self) -> str:
        return ".".join(map(str, self.path))

    def violation(self, root: Any, hidden: frozenset[str], prefix: str = "") -> dict[str, str]:
        """Return ``{field, constraint, received}``, as clients get it."""
        shown = received(root, self.path, hidden)
        return {"field": prefix + self.field, "constraint": self.constraint, "received": shown}


def faults(error: ValidationError) -> Iterator[Fault]:
    """List pydantic's errors in the order of the model's fields."""
    for found in error.errors(include_url=False, include_input=False):
        constraint, sentence = _words(found["type"], found["msg"], found.get("ctx") or {})
        yield Fault(found["loc"], constraint, sentence)


def _words(kind: str, message: str, context: dict[str, Any]) -> tuple[str, str]:
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        bound = words.format(context[key])
        if bound == "at least 1 characters long":
            bound = "non-empty"
        return bound, f"must be {bound}"
    if kind == "literal_error":
        values = re.findall(r"'([^']*)'", context["expected"])
        allowed = values[0] if len(values) == 1 else "one of " + ", ".join(values)
        return allowed, f"must be {allowed}"
    sentence = message.removeprefix("Value error, ")
    return constraint_of(sentence), sentence


def constraint_of(sentence: str) -> str:
    """Turn "must be an ISO 8601 date-time" into "ISO 8601 date-time"."""
    return sentence.removeprefix("must be ").removeprefix("a ").removeprefix("an ")


def secrets_in(*objects: Any) -> frozenset[str]:
    """Return all strings nested below a key that names a secret, to be hidden in errors."""
    return frozenset(
        text
        for item in objects
        if isinstance(item, dict)
        for key, value in item.items()
        if key.lower() in SECRET_KEYS
        for text in _strings(value)
        if len(text) >= _SECRET_MIN_CHARS
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def received(root: Any, path: tuple[str | int, ...], hidden: frozenset[str] = frozenset()) -> str:
    """Describe the value at a path: itself if short and no secret, else its kind."""
    value = root
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            value = _MISSING
            break
    named = any(isinstance(part, str) and part.lower() in SECRET_KEYS for part in path)
    holds = isinstance(value, str) and any(secret in value for secret in hidden)
    return _kind(value) if named or holds else describe(value)


def describe(value: Any) -> str:
    """Write a JSON scalar, cut after 40 characters; else name its kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        shown = value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value
        text = jsontext.dumps(shown)
        return text if len(text) <= _SHOWN_CHARS + 2 else f"{text[:_SHOWN_CHARS]}…"
    return _kind(value)


def _kind(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    if isinstance(value, list):
        return f"array of {len(value)}"
    return _KINDS.get(type(value), "object")
