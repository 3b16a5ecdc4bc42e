"""A fault that nobody foresaw (spec, Errors; D9, D50): an answer that says so and no more, on both
ways in, and the bridge lives on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.reader import Reader
from tests.faults.quick import QuickBridge


class Broken(QuickBridge):
    """The operating system's own open is broken for one name: whatever reads a file of that name
    fails in a way of its own.
    """

    first = """
import os
honest = os.open
def broken(path, *rest, **more):
    if isinstance(path, (str, bytes)) and b"provoked" in os.fsencode(path):
        raise ZeroDivisionError("a secret detail")
    return honest(path, *rest, **more)
os.open = broken
"""


@pytest.fixture(scope="module")
def broken(make_bridge: Callable[..., Bridge]) -> Iterator[Bridge]:
    bridge = make_bridge("broken", kind=Broken)
    (bridge.root / "provoked.txt").write_text("1")
    (bridge.root / "other.txt").write_text("1")
    yield bridge
    bridge.stop()


@pytest.fixture(scope="module")
def fresh(broken: Bridge) -> Bridge:
    """Nobody has been told of anything since its start."""
    broken.stop()
    broken.start()
    return broken


@pytest.mark.spec("wscode.BRIDGE_ERROR")
def test_over_the_websocket(broken: Bridge) -> None:
    """D50: BRIDGE_ERROR, recoverable, without the details; the connection lives."""
    with broken.phones(1) as (phone,):
        reader = Reader(broken, phone)
        payload = assert_refused(
            reader.ask("file_read", broken.root / "provoked.txt"), "BRIDGE_ERROR", True
        )
        assert "secret" not in str(payload) and "ZeroDivision" not in str(payload)
        assert reader.read(broken.root / "other.txt")["content"] == "1"


@pytest.mark.spec("code.INTERNAL_ERROR", "severity.error")
def test_over_http(broken: Bridge) -> None:
    """D9: 500 INTERNAL_ERROR with all six fields; the log has the request id and the fault, the
    answer does not.
    """
    answer = broken.get("/api/v1/files/content?path=provoked.txt", broken.admin_token)
    body = assert_error(answer, 500, "INTERNAL_ERROR")
    assert b"secret" not in answer.body and b"ZeroDivision" not in answer.body
    logged = "".join(
        path.read_text(errors="replace") for path in [broken.log, *(broken.data / "logs").glob("*")]
    )
    assert body["request_id"] in logged and "ZeroDivisionError" in logged
    assert broken.get("/api/v1/files/content?path=other.txt", broken.admin_token).status == 200


@pytest.mark.spec("severity.error")
@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "BRIDGE_ERROR"])
def test_the_devices_are_told_once(fresh: Bridge, code: str) -> None:
    """D51: a notification of type error, with what the log has it under; not one for each time it
    happens.
    """
    with fresh.phones(2) as (phone, other):
        reader, ids = Reader(fresh, phone), []
        for _ in range(5):
            if code == "BRIDGE_ERROR":
                answer = reader.ask("file_read", fresh.root / "provoked.txt")
                assert_refused(answer, code, True)
                ids.append(answer["id"])
            else:
                path = "/api/v1/files/content?path=provoked.txt"
                error = assert_error(fresh.get(path, fresh.admin_token), 500, code)
                ids.append(error["request_id"])
        for told in (phone, other):
            notice = told.expect("notification", notification_type="error")["payload"]
            assert notice["data"] == {"code": code, "reference": ids[0]}
            assert ids[0] in notice["body"]
            fresh.fence(told)
            notices = [m["payload"] for m in told.messages if m["type"] == "notification"]
            assert [notice["data"].get("code") for notice in notices].count(code) == 1
