"""Read strict JSON, and write compact JSON (D8)."""

import json
import math
import re
import sys
from typing import Any, Final

from pydantic_core import from_json, to_json

from bridge_project.kernel.limits import JSON_MAX_DEPTH

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_UNICODE_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_HEX: Final = rb"[0-9a-fA-F]{2}"
# an escaped surrogate; a high one with the low one behind it
_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89abAB]%b(?P<low>\\u[dD][c-fC-F]%b)?|[c-fC-F]%b)" % (_HEX, _HEX, _HEX)
)


class JsonError(ValueError):
    """Refuse a text that is no strict JSON; the reason repeats none of it."""


def loads(data: bytes | str, depth: int | None = JSON_MAX_DEPTH) -> Any:
    """Parse a JSON text; the last of repeated keys counts.

    An escaped lone surrogate, half an emoji of JavaScript's, is read as U+FFFD: no database holds
    it. Raises JsonError on: bytes that are not UTF-8, a byte order mark, NaN and Infinity, numbers
    that do not fit (1e400, more than 4300 digits), nesting over ``depth`` (None: it is checked
    later), and whatever else is not JSON.
    """
    try:
        text = data.encode() if isinstance(data, str) else data
        try:
            value = _parse(text)
        except ValueError:
            if b"\\ud" not in text.lower():
                raise
            value = _parse(_SURROGATE.sub(_without_lone, text))
    except ValueError as error:
        raise JsonError(str(error)) from None
    if depth is not None and text.count(b"[") + text.count(b"{") > depth:
        check_depth(value, depth)
    # A number that does not fit is an infinity by now. Writing it is faster than a walk in Python.
    if b"Infinity" in to_json(value, inf_nan_mode="constants"):
        try:
            dumps(value)
        except ValueError:
            raise JsonError("a number too large for a double") from None
    return value


def loads_lenient(data: bytes | str) -> Any:
    """Parse an agent's JSON; read a number that fits nowhere as text.

    Without this 1e400 would be an infinity, which JSON cannot say, and 5000 digits no JSON at all.
    Raises ValueError and RecursionError as json.loads does.
    """
    return json.loads(data, parse_float=_float, parse_int=_int)


def _float(digits: str) -> float | str:
    return value if math.isfinite(value := float(digits)) else digits


def _int(digits: str) -> int | float | str:
    if digits == "-0":
        return -0.0
    return digits if len(digits) > sys.int_info.default_max_str_digits else int(digits)


def _parse(text: bytes) -> Any:
    return from_json(text, allow_inf_nan=False, cache_strings="keys")


def _without_lone(found: re.Match[bytes]) -> bytes:
    """Replace a lone surrogate; one whose backslash is escaped itself is none."""
    start = found.start()
    while start and found.string[start - 1] == 0x5C:
        start -= 1
    is_escaped = (found.start() - start) % 2 == 1
    if found["low"]:
        return found[0][:6] + rb"\ufffd" if is_escaped else found[0]
    return found[0] if is_escaped else rb"\ufffd"


def dumps(value: Any) -> str:
    """Write compact ASCII JSON. Raises ValueError on NaN and infinities."""
    return _ENCODER.encode(value)


def dumps_unicode(value: Any) -> str:
    """Write JSON with characters unescaped, but for lone surrogates."""
    text = _UNICODE_ENCODER.encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return dumps(value)
    return text


def check_depth(value: Any, depth: int = JSON_MAX_DEPTH) -> None:
    """Raise JsonError on nesting over ``depth``."""
    # By levels rather than by recursion: the cost is one pass over the containers, whatever their
    # shape.
    level = [value] if type(value) in (dict, list) else []
    for _ in range(depth):
        if not level:
            return
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) in (dict, list)
        ]
    if level:
        raise JsonError(f"nested more than {depth} deep")
