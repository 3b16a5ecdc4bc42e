"""Pictures in base64 are named, wherever they stand and however they come (D70)."""

import base64
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel import pictures
from bridge_project.kernel.picture_files import Picture
from sessions_app.agents.events import Chunk, EventQueue, TurnEnded

SIZE = 160 * 1024
STARTS = {
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x10\x00\x01\x00WEBP",
}


def encoded(media_type: str = "image/png", size: int = SIZE) -> str:
    start = STARTS[media_type]
    body = bytes(number * number % 251 for number in range(size - len(start)))
    return base64.b64encode(start + body).decode()


PNG = encoded()
NAMED = "[image/png, 160 KB]"
BLOCK = {"type": "image", "media_type": "image/png", "size": SIZE}
LINES = "\n".join(PNG[at : at + 76] for at in range(0, len(PNG), 76))


@pytest.mark.parametrize("media_type", STARTS)
@pytest.mark.parametrize(
    "around",
    ["{}", "see: {} and more", "<img src='data:{0};base64,{1}'>", '{{"a":"{}"}}', "x\n{}\ny"],
)
def test_in_text(media_type: str, around: str) -> None:
    text = around.format(*([media_type] if "{0}" in around else []), encoded(media_type))
    named = around.replace("data:{0};base64,{1}", "{}").format(f"[{media_type}, 160 KB]")
    assert pictures.name_in_text(text) == named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (LINES, NAMED),
        (f"$ base64 a.png\n{LINES}\nDone\n", f"$ base64 a.png\n{NAMED}\nDone\n"),
        (json.dumps(LINES), f'"{NAMED}"'),
        (encoded("image/jpeg").replace("/", "\\/"), "[image/jpeg, 160 KB]"),
        (f"data:image/avif;base64,{'A' * 8192}", "[image/avif, 6 KB]"),
        (encoded(size=3 * 1024**2), "[image/png, 3.0 MB]"),
        (f"{PNG} {encoded('image/gif')}", f"{NAMED} [image/gif, 160 KB]"),
    ],
)
def test_in_other_forms(text: str, named: str) -> None:
    """As `base64` prints it, escaped within JSON, of another kind as a data URL says it."""
    assert pictures.name_in_text(text) == named


@pytest.mark.parametrize(
    "text",
    [
        encoded(size=3000),  # a small one
        f"x{PNG}",  # in the middle of something else
        "A" * 10_000,
        "/9j/" + "a b" * 5000,
        "data:image/png;base64," + "?" * 5000,
        "data:text/plain;base64," + "QUFB" * 2000,
    ],
)
def test_nothing_else_is_taken_out(text: str) -> None:
    assert pictures.name_in_text(text) == text


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"type": "image", "source": {"type": "base64", "media_type": "x", "data": PNG}}, BLOCK),
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, BLOCK),
        ({"type": "image", "file": {"base64": PNG, "type": "image/png"}}, BLOCK),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}, BLOCK),
        (
            [{"deep": [{"text": f"a {PNG}", "n": 1}]}, None],
            [{"deep": [{"text": f"a {NAMED}", "n": 1}]}, None],
        ),
        ({"type": "image", "data": encoded(size=99)}, {"type": "image", "data": encoded(size=99)}),
        ({"type": "image", "data": "?" * 5000}, {"type": "image", "data": "?" * 5000}),
    ],
)
def test_in_json(value: Any, named: Any) -> None:
    assert pictures.name_in(value) == named


PICTURE = Picture("image/png", base64.b64decode(PNG))
URL = f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    "value",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "x", "data": PNG}},
        [{"type": "image", "data": json.dumps(PNG)[1:-1], "mimeType": "image/gif"}],
        {"type": "input_image", "image_url": URL},
        {"text": f"See {URL}."},
    ],
)
def test_blocks_and_data_urls_are_given_to_be_kept(value: Any) -> None:
    taken: list[Picture] = []
    named = pictures.name_in(value, taken)
    assert taken == [PICTURE]
    if "text" not in value:
        assert named in (PICTURE.block(), [PICTURE.block()])


@pytest.mark.parametrize(
    "value",
    [
        PNG,
        {"text": PNG},
        {"type": "image", "data": base64.b64encode(b"<svg/>" * 2000).decode(), "mimeType": "x"},
        {"type": "image", "data": "A" * 4097},
        {"type": "image", "data": encoded(size=10 * 2**20 + 1)},
    ],
)
def test_nothing_else_is(value: Any) -> None:
    taken: list[Picture] = []
    assert pictures.name_in(value, taken) == pictures.name_in(value) and taken == []


@pytest.mark.parametrize("step", [7, 1000, 10**6])
def test_a_data_url_in_pieces_is_kept(step: int) -> None:
    """With the text in whose place it stands; a run of base64 is only named."""
    queue, text = EventQueue(), f"I saw ({URL}), and {PNG} then."
    for at in range(0, len(text), step):
        queue.put(Chunk(text[at : at + step]))
    queue.put(TurnEnded("stop"))
    chunks = [one for one in queue.take() if isinstance(one, Chunk)]
    shown = [one for one in chunks if one.pictures]
    assert [(*one.pictures,) for one in shown] == [(PICTURE,)] and NAMED in shown[0].content


def said(pieces: list[str]) -> str:
    queue = EventQueue()
    for piece in pieces:
        queue.put(Chunk(piece))
    queue.put(TurnEnded("stop"))
    *chunks, _ = queue.take()
    return "".join(chunk.content for chunk in chunks if isinstance(chunk, Chunk))


@pytest.mark.parametrize("step", [7, 1000, 10**6])
def test_in_pieces(step: int) -> None:
    """An agent's answer comes in pieces."""
    text = f"I saw (data:image/png;base64,{PNG}), and {encoded('image/gif')} then."
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    assert said(pieces) == f"I saw ({NAMED}), and [image/gif, 160 KB] then."


WORDS = st.sampled_from(
    [
        "i",
        "iVBOR",
        "w0KGgo",
        "/9j/",
        " ",
        "\n",
        "data:",
        "image/png",
        ";base64,",
        "R0lGODlh",
        "=",
        "é",
        "\\",
    ]
)


@given(st.lists(WORDS | st.text(max_size=5)))
def test_what_holds_no_picture_comes_as_it_is(pieces: list[str]) -> None:
    text = "".join(pieces).replace("\x00", "�")
    assert said(pieces) == text


def test_it_takes_no_time() -> None:
    """Every event and result is looked at."""
    began = time.process_time()
    for text in (
        "9j" * 500_000,
        "data:image/" * 100_000,
        "iVBORw0KGgo " * 100_000,
        "/9j/\n" * 200_000,
        f"{LINES}\n" * 4,
    ):
        pictures.name_in_text(text)
    assert time.process_time() - began < 5
