"""Read strict JSON, and write compact JSON (D8)."""

import json
import math
from typing import Any, NoReturn

from bridge_project.kernel.limits import JSON_MAX_DEPTH

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_UNICODE_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_TOO_DEEP = f"nested more than {JSON_MAX_DEPTH} deep"


class JsonError(ValueError):
    """Refuse a text that is no strict JSON; the reason repeats none of it."""


def loads(data: bytes | str) -> Any:
    """Parse a JSON text; the last of repeated keys counts.

    Raises JsonError on: bytes that are not UTF-8, a byte order mark, NaN and Infinity, numbers that
    do not fit (1e400, more than 4300 digits), nesting over JSON_MAX_DEPTH, lone surrogates (escaped
    ones too), and whatever else is not JSON.
    """
    text = _text(data)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        text = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise JsonError(f"{text} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > JSON_MAX_DEPTH:
        _check_depth(value)
    if "\\ud" in text or "\\uD" in text:
        _check_escaped(value)
    return value


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


def _text(data: bytes | str) -> str:
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        if isinstance(data, str) and not text.isascii():
            text.encode()
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 (byte {error.start})") from None
    except UnicodeEncodeError:
        raise JsonError("a lone surrogate, which is no Unicode character") from None
    if text.startswith("\ufeff"):
        raise JsonError("begins with a byte order mark, which JSON has not")
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
        raise JsonError(_TOO_DEEP)


def _check_escaped(value: Any) -> None:
    # Pairs are one character by now, so that only a lone half cannot be written as UTF-8.
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise JsonError(
            f"a lone surrogate (\\u{ord(error.object[error.start]):04x}), which is no Unicode character"
        ) from None


def _int(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python's own limit: more digits cost quadratic time
        raise JsonError("a number of more than 4300 digits") from None


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise JsonError("a number too large for a double")
    return number


def _constant(name: str) -> NoReturn:
    raise JsonError(f"not JSON: {name} is no JSON number")


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_constant)
