"""Words of the delivery tests: away, back, nothing more, replayed, sent again."""

from __future__ import annotations

from typing import Any

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone


def away(phone: Phone) -> None:
    """Known to the bridge, at the present, and gone."""
    phone.ready()
    phone.close()


def back(phone: Phone, session_id: str, expected: list[Any]) -> list[Message]:
    """Reconnect: these events of the session come first, in order. What was acknowledged would come
    before them, what is doubled between them.
    """
    phone.ready()
    return phone.wait_numbers(session_id, expected)


def nothing_more(bridge: Bridge, phone: Phone, session_id: str, expected: list[Any]) -> None:
    """After whatever was committed before has gone out live, the events of the session are exactly
    these.
    """
    bridge.fence(phone)
    assert phone.numbers(session_id) == expected


def replay(phone: Phone, session_id: str, **how: Any) -> dict[str, Any]:
    answer = phone.request("replay_request", {"session_id": session_id} | how)
    assert answer["type"] == "replay_buffer", answer
    assert answer["payload"]["session_id"] == session_id
    assert isinstance(answer["payload"]["complete"], bool)
    return dict(answer["payload"])


def replayed(payload: dict[str, Any]) -> list[Any]:
    return [
        message["payload"]["payload"]["number"]
        for message in payload["messages"]
        if message["type"] == "agent_event"
    ]


def send(phone: Phone, type_: str, id_: str, payload: dict[str, Any]) -> Message:
    """The answer to a message with that id."""
    before = len([message for message in phone.messages if message.get("id") == id_])
    phone.send(type_, payload, id=id_)
    phone.collect(
        lambda: len([message for message in phone.messages if message.get("id") == id_]) > before,
        f"the answer to {type_} {id_}",
    )
    return [message for message in phone.messages if message.get("id") == id_][-1]
