"""A fault that nobody foresaw (spec, Errors; D9, D50): an answer that says so and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.reader import Reader
from tests.faults.quick import QuickBridge


class Broken(QuickBridge):
    """The operating system's own open is broken for one name."""

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


@pytest.mark.spec("wscode.BRIDGE_ERROR", "code.INTERNAL_ERROR", "severity.error")
@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "BRIDGE_ERROR"])
def test_a_fault(broken: Bridge, code: str) -> None:
    """The log has its id and the fault, the answer no details. D51: the devices are told, once, with
    the id that is in the log; the bridge lives on.
    """
    contents, token = "/api/v1/files/content?path=", broken.admin_token
    with broken.phones(2) as (phone, other):
        reader, ids = Reader(broken, phone), []
        for _ in range(5):
            if code == "BRIDGE_ERROR":
                answer = reader.ask("file_read", broken.root / "provoked.txt")
                said = assert_refused(answer, code, True)
                ids.append(answer["id"])
            else:
                said = assert_error(broken.get(f"{contents}provoked.txt", token), 500, code)
                ids.append(said["request_id"])
            assert "secret" not in str(said) and "ZeroDivision" not in str(said)
        for told in (phone, other):
            notice = told.expect("notification", notification_type="error")["payload"]
            assert notice["data"] == {"code": code, "reference": ids[0]}
            assert ids[0] in notice["body"]
            broken.fence(told)
            notices = [m["payload"] for m in told.messages if m["type"] == "notification"]
            assert [notice["data"].get("code") for notice in notices].count(code) == 1
        assert reader.read(broken.root / "other.txt")["content"] == "1"
    assert broken.get(f"{contents}other.txt", token).status == 200
    logged = "".join(path.read_text() for path in (broken.data / "logs").glob("*"))
    assert ids[0] in logged and "ZeroDivisionError" in logged
