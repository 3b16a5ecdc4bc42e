"""Turn pydantic's errors into violations: the expected value and the one received."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from bridge_project.kernel.text import SECRET_KEYS
from bridge_project.protocol import jsontext

_SHOWN_CHARS: Final = 40
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

    def violation(self, root: Any, *, secret: bool, prefix: str = "") -> dict[str, str]:
        """Return ``{field, constraint, received}``, as clients get it."""
        shown = received(root, self.path, secret=secret)
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


def holds_secret(*objects: Any) -> bool:
    """Return whether a key names a secret, which may then stand in any other field, too."""
    found = (key.lower() for item in objects if isinstance(item, dict) for key in item)
    return not SECRET_KEYS.isdisjoint(found)


def received(root: Any, path: tuple[str | int, ...], *, secret: bool = False) -> str:
    """Describe the value at a path, by its kind alone if it may be a secret."""
    value = root
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return "nothing"
    return _kind(value) if secret else describe(value)


def describe(value: Any) -> str:
    """Write a JSON scalar, cut after 40 characters; else name its kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        shown = value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value
        text = jsontext.dumps(shown)
        return text if len(text) <= _SHOWN_CHARS + 2 else f"{text[:_SHOWN_CHARS]}…"
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"array of {len(value)}"
    return _KINDS.get(type(value), "object")
