"""Whatever a client sends, it is a message or refused as none (D3, D4)."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.parse import ProtocolInvalid, parse_client
from tests.protocol.test_jsontext import VALUES

AT = "2026-01-31T12:00:00Z"
EXAMPLES = [
    json.loads(one.example).get("payload", {}) for one in asyncapi.messages() if one.from_client
]


def test_a_token_is_not_in_the_printed_message() -> None:
    payload = {"token": "bridge_device_secret", "client_version": "1.0.0", "platform": "ios"}
    sent = {"type": "auth", "id": "m-1", "timestamp": AT, "payload": payload}
    assert "secret" not in repr(parse_client(json.dumps(sent), strict_ids=False).payload)


NAMES = sorted({name for payload in EXAMPLES for name in payload} | {"__class__"})
LIKELY = st.sampled_from([AT, "s-1", "user", "modified", "approved"])
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(sorted(CATALOGUE)) | VALUES,
        "id": VALUES,
        "timestamp": st.just(AT) | VALUES,
        "payload": st.dictionaries(st.sampled_from(NAMES), VALUES | LIKELY, max_size=8) | VALUES,
        "x": VALUES,
    },
)


@given((FRAMES | VALUES).map(json.dumps) | st.text(max_size=100) | st.binary(max_size=100))
def test_anything_is_a_message_or_protocol_invalid(text: str | bytes) -> None:
    for strict in (True, False):
        try:
            message = parse_client(text, strict_ids=strict)
        except ProtocolInvalid as invalid:
            shapes = [set(violation) for violation in invalid.violations]
        else:
            assert isinstance(message.payload, CATALOGUE[message.type])
            assert 1 <= len(message.id) <= 128
            continue
        assert shapes and all(one == {"field", "constraint", "received"} for one in shapes)
