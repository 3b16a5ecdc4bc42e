"""A phone that acknowledges what it was never sent, over a real socket (D27)."""

import json
import uuid
from typing import Any

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import back, nothing_more
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.quick import bridge_of_module

FALSE: list[Any] = [
    # numbers of rows, which no client knows
    *("0", "1", "-1", "2", "9223372036854775807", "18446744073709551616", "1e309", "NaN"),
    *("", " ", "\x00", "\ud800", "\u202e", "x" * 100_000, "*", "%", "' OR 1=1 --", "null"),
    "00000000-0000-0000-0000-000000000000",
    str(uuid.uuid4()),
]

bridge = bridge_of_module()


def missed(bridge: Bridge, session_id: str, *phones: Phone) -> None:
    """Each phone that connects now gets all three rows of the session, whatever it said before."""
    for phone in phones:
        back(phone, session_id, [1, 2, 3])
        nothing_more(bridge, phone, session_id, [1, 2, 3])
        phone.close()


def test_what_it_was_never_sent(bridge: Bridge, phone: Phone) -> None:
    """Numbers, ids of nothing, of before its pairing, of what is to come: nothing moves."""
    before, session, to_come = new_session(), new_session(), new_id()
    honest = bridge.phone().ready()
    bridge.accept(prompt(before, 0))
    honest.join(before)
    bridge.accept(prompt(before, 9))
    old = honest.wait_numbers(before, [0, 9])[1]["id"]
    for one in (*FALSE, to_come, old):
        phone.ack(one)
    many = [new_id()] * (limits.ACK_MAX_IDS + 1)
    for ids in ([1], [-1], [2**63], [None], [{"id": old}], "all", {"from": 0}, None, many):
        refused = phone.request("notification_ack", {"notification_ids": ids})
        assert refused["payload"]["code"] == "PROTO_INVALID_MESSAGE", ids
    for each in (phone, honest):
        each.close()
    bridge.accept(*[prompt(session, number) for number in (1, 2, 3)])
    missed(bridge, session, phone, honest)
    phone.ready()
    for one in (*FALSE, to_come):
        phone.ack(one)
    phone.close()
    missed(bridge, session, phone, honest)


def test_a_flood_of_them(bridge: Bridge, phone: Phone) -> None:
    """Ids of nothing are read no faster than they are looked up, and not kept."""
    with bridge.phones(1) as (honest,):
        before = most = bridge.memory()
        for _ in range(10):
            ids = [str(uuid.uuid4()) for _ in range(limits.ACK_MAX_IDS)]
            frame = {"type": "notification_ack", "id": new_id(), "timestamp": now()}
            phone.send_raw(json.dumps(frame | {"payload": {"notification_ids": ids}}))
            honest.ping()
            most = max(most, bridge.memory())
        phone.ping()
        assert max(most, bridge.memory()) - before < 64 * 2**20
