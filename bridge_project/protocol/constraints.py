"""Turn pydantic's errors into violations: the expected value and the one received."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from bridge_project.protocol import jsontext

M = TypeVar("M", bound=BaseModel)

_SHOWN_CHARS: Final = 30  # every token is longer (D15, D16), so none is ever repeated
_NUMBER_CHARS: Final = 200  # a number may have thousands of digits

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
    "string_too_short": ("min_length", "non-empty"),
    "string_too_long": ("max_length", "at most {} characters long"),
}


class Fault(NamedTuple):
    """Describe what is wrong with a field, for programs and people.

    ``sentence`` is for people. ``received`` is a short description of the value, never a secret.
    """

    field: str
    constraint: str
    received: str
    sentence: str

    def violation(self) -> dict[str, str]:
        """Return ``{field, constraint, received}``, as clients get it."""
        return {"field": self.field, "constraint": self.constraint, "received": self.received}


def validate(
    model: type[M], value: Any, prefix: str = "", context: Any = None
) -> tuple[M | None, list[Fault]]:
    """Return the value as a model, or None, and all that is wrong with it."""
    try:
        return model.model_validate(value, context=context), []
    except ValidationError as error:
        return None, list(faults(error, prefix))


def faults(error: ValidationError, prefix: str = "") -> Iterator[Fault]:
    """List pydantic's errors in the order of the model's fields."""
    for found in error.errors(include_url=False):
        kind, context = found["type"], found.get("ctx") or {}
        if kind in _WORDS:
            constraint, sentence = _WORDS[kind]
        else:
            if kind in _BOUNDS:
                key, words = _BOUNDS[kind]
                sentence = f"must be {words.format(context[key])}"
            elif kind == "literal_error":
                values = re.findall(r"'([^']*)'", context["expected"])
                sentence = "must be " + ("one of " if len(values) > 1 else "") + ", ".join(values)
            else:
                sentence = found["msg"].removeprefix("Value error, ")
            constraint = sentence.removeprefix("must be ").removeprefix("a ").removeprefix("an ")
        received = "nothing" if kind == "missing" else describe(found["input"])
        field = prefix + ".".join(map(str, found["loc"]))
        yield Fault(field, constraint, received, f"{field} {sentence}")


def describe(value: Any) -> str:
    """Write a short JSON scalar; else name its kind."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return f"array of {len(value)}"
    if isinstance(value, str) and len(value) > _SHOWN_CHARS:
        return f"string of {len(value)} characters"
    return jsontext.dumps(value)[:_NUMBER_CHARS]
