"""Words of the delivery tests: away, back, nothing more, replayed, sent again."""

from typing import Any

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone


def away(phone: Phone) -> None:
    """Known to the bridge, at the present, and gone."""
    phone.ready().close()


def back(phone: Phone, session_id: str, expected: list[Any]) -> list[Message]:
    """Reconnect: these events of the session come first, in order, and none of them twice."""
    return phone.ready().wait_numbers(session_id, expected)


def nothing_more(bridge: Bridge, phone: Phone, session_id: str, expected: list[Any]) -> None:
    """When what was committed before has gone out live, the session's events are exactly these."""
    bridge.fence(phone)
    assert phone.numbers(session_id) == expected


def replay(phone: Phone, session_id: str, **how: Any) -> dict[str, Any]:
    answer = phone.request("replay_request", {"session_id": session_id} | how)
    assert answer["type"] == "replay_buffer", answer
    assert answer["payload"]["session_id"] == session_id
    assert isinstance(answer["payload"]["complete"], bool)
    return dict(answer["payload"])


def replayed(payload: dict[str, Any]) -> list[Any]:
    events = [one["payload"] for one in payload["messages"] if one["type"] == "agent_event"]
    return [event["payload"]["number"] for event in events]


def send(phone: Phone, type_: str, id_: str, payload: dict[str, Any], *, times: int = 1) -> Message:
    """The last answer to a message with that id, which is sent so many times."""

    def answers() -> list[Message]:
        return [message for message in phone.messages if message.get("id") == id_]

    expected = len(answers()) + times
    for _ in range(times):
        phone.send(type_, payload, id=id_)
    phone.collect(lambda: len(answers()) >= expected, f"the answer to {type_} {id_}")
    return answers()[-1]
