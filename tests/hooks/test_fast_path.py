"""The fast path and the view answer the same event alike, byte for byte (D8, D9, D17, D31)."""

import re

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import is_uuid
from tests.conformance.samples import hook
from tests.faults.quick import bridge_of_module

VARYING = re.compile(rb'"(?:event_id|timestamp|request_id)":"[^"]*"')
# what an ordinary request may have besides, and what makes it none, with the status
HEADERS: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 200),
    ({"X-Request-ID": "from-the-client"}, 200),
    ({"X-Request-ID": "x" * 200}, 200),
    ({"X-Hook-Source": "another-agent", "X-Hook-Version": "2"}, 200),
    ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ({"Content-Type": "application/json; charset=latin-1"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Encoding": "gzip"}, 415),
    ({"Host": "evil.example"}, 400),
    ({"Authorization": f"Bearer {'x' * 40}"}, 401),
)

bridge = bridge_of_module()


@pytest.mark.parametrize("path", ["/hooks/event", "/api/v1/hooks/event"])
def test_the_fast_path_answers_as_the_view_does(bridge: Bridge, path: str) -> None:
    """A query means nothing, and sends a request to the view."""
    body = hook("UserPromptSubmit", "hot", more={"a": [1, 2.5, None, "ü"]})

    def answer(query: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        token = bridge.hook_token
        got = bridge.https().post(path + query, token=token, json_body=body, headers=headers)
        if headers.get("X-Request-ID") != "from-the-client":
            assert is_uuid(got.headers.pop("x-request-id")), "the bridge's own"
        got.headers.pop("date", None)
        return got.status, got.headers, VARYING.sub(b"", got.body)

    for headers, status in HEADERS:
        fast = answer("", headers)
        assert fast == answer("?a=1", headers) and fast[0] == status, headers
