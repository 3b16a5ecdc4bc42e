"""Read strict JSON, and write compact JSON (D8)."""

import json
import re
from typing import Any, Final

from pydantic_core import from_json, to_json

from bridge_project.kernel.limits import JSON_MAX_DEPTH

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_UNICODE_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# Escaped pairs of surrogates, lone ones, and backslashes: runs, so that each costs one match.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATES: Final = re.compile(
    rb"(?:%b%b){1,999}|(?P<lone>(?:%b(?!%b)){1,999}|(?:%b){1,999})|(?:\\\\)+"
    % (_HIGH, _LOW, _HIGH, _LOW, _LOW)
)


class JsonError(ValueError):
    """Refuse a text that is no strict JSON; the reason repeats none of it."""


def loads(data: bytes | str) -> Any:
    """Parse a JSON text; the last of repeated keys counts.

    An escaped lone surrogate, half an emoji of JavaScript's, is read as U+FFFD: no database holds
    it. Raises JsonError on: bytes that are not UTF-8, a byte order mark, NaN and Infinity, numbers
    that do not fit (1e400, more than 4300 digits), nesting over JSON_MAX_DEPTH, and whatever else
    is not JSON.
    """
    try:
        text = data.encode() if isinstance(data, str) else data
        try:
            value = _parse(text)
        except ValueError:
            if b"\\ud" not in text.lower():
                raise
            value = _parse(_SURROGATES.sub(_replaced, text))
    except ValueError as error:
        raise JsonError(f"not JSON: {error}") from None
    if text.count(b"[") + text.count(b"{") > JSON_MAX_DEPTH:
        _check_depth(value)
    # A number that does not fit is an infinity by now. Writing it is faster than a walk in Python.
    if b"Infinity" in to_json(value, inf_nan_mode="constants"):
        try:
            dumps(value)
        except ValueError:
            raise JsonError("a number too large for a double") from None
    return value


def _parse(text: bytes) -> Any:
    return from_json(text, allow_inf_nan=False, cache_strings="keys")


def _replaced(run: re.Match[bytes]) -> bytes:
    return rb"\ufffd" * (len(run[0]) // 6) if run["lone"] else run[0]


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


def _check_depth(value: Any) -> None:
    # By levels rather than by recursion: the cost is one pass over the containers, whatever their
    # shape.
    level = [value] if type(value) in (dict, list) else []
    for _ in range(JSON_MAX_DEPTH):
        if not level:
            return
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) in (dict, list)
        ]
    if level:
        raise JsonError(f"nested more than {JSON_MAX_DEPTH} deep")
