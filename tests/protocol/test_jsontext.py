"""What counts as JSON (D8): every refusal, and that ordinary values survive the round trip."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.protocol.jsontext import JsonError, dumps, loads

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_every_value_survives_the_round_trip(value: Any) -> None:
    text = dumps(value)
    assert text.isascii()
    assert loads(text) == loads(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(("form", "most"), [('{"a":?}', 100), ("[[],?]", 99)])
def test_nesting_is_taken_up_to_the_limit_and_no_further(form: str, most: int) -> None:
    text = "0"
    for _ in range(most):
        text = form.replace("?", text)
    loads(text)
    with pytest.raises(JsonError, match="nested more than 100 deep"):
        loads(form.replace("?", text))


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}x", b"{'a': 1}", b"[1,]", b"01", b"NaN", b'{"a": [Infinity]}', b"-Infinity"),
        *("{}".encode("utf-16"), "[]".encode("utf-32-le"), b"\xef\xbb\xbf{}", "\ufeff{}"),
        *(b"\xff{}", b'"\xed\xa0\x80"', b'"a\nb"', b'"a\x00b"', b"9" * 4301),
        *(b"1e400", b'{"a": ["Infinity", -1e400]}', b"9" * 400 + b".0"),
        *(
            '"\ud800"',
            b'"\\ud800"',
            b'{"\\ud83d": 1}',
            b'[[["a", {"b": "\\ud83d\\ud83d\\ude00"}]]]',
        ),
    ],
)
def test_it_refuses(data: bytes | str) -> None:
    with pytest.raises(JsonError):
        loads(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"a" : 1}\r\n\t', {"a": 1}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'"a\\u0000b"', "a\x00b"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\ud800"', "\\ud800"),
        ('"😀"', "😀"),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b"9" * 4300, int("9" * 4300)),
        (b'"' + b"9" * 5000 + b'"', "9" * 5000),
        (b'["' + b"[" * 1000 + b'"]', ["[" * 1000]),
        (b'["Infinity", 1e308]', ["Infinity", 1e308]),
        (b"[" + b"[]," * 999 + b"[]]", [[]] * 1000),
    ],
)
def test_it_takes(data: bytes | str, value: Any) -> None:
    assert loads(data) == value
