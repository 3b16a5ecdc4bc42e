"""What a bridge and a host tell each other comes as it was sent, whatever an agent put into it."""

import asyncio
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel.picture_files import Picture
from bridge_project.protocol import resources
from bridge_project.protocol.resources import ToolErrorDetails, Usage
from sessions_app.agents import events
from sessions_app.agents.driver import Verdict
from sessions_app.agents.host import wire
from sessions_app.agents.offers import Offers
from sessions_app.approvals.rules.matching import ASKS
from sessions_app.approvals.tool_call import Agent, Call
from sessions_app.approvals.tool_result import Failure

# halves of characters and NUL too, and what stands in our own objects
TEXT = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(["is", "text", "\ud800"])
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
PARAMS = st.dictionaries(
    TEXT, st.recursive(LEAF, lambda one: st.lists(one) | st.dictionaries(TEXT, one), max_leaves=8)
)
PICTURES = st.lists(st.builds(Picture, TEXT, st.binary()), max_size=2).map(tuple)
OFFERS = st.builds(
    Offers,
    st.lists(
        st.builds(
            resources.SessionOption,
            id=TEXT,
            name=TEXT,
            kind=st.just("model"),
            value=TEXT,
            choices=st.lists(st.builds(resources.SessionChoice, value=TEXT, name=TEXT)),
        )
    ).map(tuple),
    st.lists(st.builds(resources.SessionCommand, name=TEXT)).map(tuple),
)
CALL = st.builds(
    Call,
    id=st.none() | TEXT,
    tool=TEXT,
    params=PARAMS,
    description=TEXT,
    reasoning=st.none() | TEXT,
    agent=st.builds(Agent, TEXT, TEXT),
    directory=TEXT,
)
OPTION = st.builds(
    resources.ApprovalOption, id=TEXT, name=TEXT, kind=st.sampled_from(["allow_once"])
)
FAILURE = st.builds(
    Failure, TEXT, details=st.builds(ToolErrorDetails, stdout=TEXT, exit_code=st.integers())
)
BY_FIELD = {
    "call": CALL,
    "options": st.lists(OPTION).map(tuple),
    "pictures": PICTURES,
    "metadata": st.none() | PARAMS,
    "failure": FAILURE,
    "offers": OFFERS,
    "judgement": st.just(ASKS),
    "state": st.just("given"),
    "finish_reason": st.just("stop"),
}
BY_TYPE = {
    str: TEXT,
    bool: st.booleans(),
    int: st.integers(),
    str | None: st.none() | TEXT,
    int | None: st.none() | st.integers(),
    Usage: st.builds(Usage, context_tokens=st.integers(0, 2**60)),
}


def any_of(kind: Any) -> Any:
    """Any event of this kind."""
    hints = get_type_hints(kind)
    fields = {name: BY_TYPE.get(hint, PARAMS) for name, hint in hints.items()}
    return st.builds(kind, **fields | {name: BY_FIELD[name] for name in hints if name in BY_FIELD})


EVENTS = [one for one in events.KINDS if get_type_hints(one)]


async def carried(message: object) -> Any:
    stream = asyncio.StreamReader()
    stream.feed_data(wire.encode(message))
    return await wire.read(stream)


@pytest.mark.parametrize("kind", EVENTS)
@given(data=st.data())
def test_an_event_comes_as_it_was_reported(kind: type[events.Event], data: st.DataObject) -> None:
    event = data.draw(any_of(kind))
    assert asyncio.run(carried(wire.Reported(7, event))) == wire.Reported(7, event)


@given(TEXT, PARAMS, TEXT)
def test_a_decision_comes_as_it_was_made(call_id: str, changed: Any, reason: str) -> None:
    decided = wire.Decide(call_id, Verdict("modified", changed, reason))
    request = wire.Request(1, decided, key=5)
    assert asyncio.run(carried(request)) == request


def test_parameters_are_never_taken_for_an_object() -> None:
    """Else an agent could make the bridge build what it likes."""
    forged = {"is": "Path", "text": "/etc/passwd"}
    started = events.ToolStarted(Call("1", "Bash", forged, "x"))
    assert asyncio.run(carried(started)).call.params == forged


def test_a_field_of_a_later_version_is_passed_over() -> None:
    frame = wire.encode(wire.Stored(4)).replace(b'"number":4', b'"later":[1],"number":4')[4:]
    assert wire.decode(frame) == wire.Stored(4)


@pytest.mark.parametrize("data", [b"", b"[", b'{"is":"Popen"}', b'{"number":1}', b'{"is":"Take"}'])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data)
