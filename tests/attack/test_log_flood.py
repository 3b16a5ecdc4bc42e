"""Flood the log with requests that are refused (docs/security.md)."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.https import Https
from tests.conformance.phone import Phone
from tests.conformance.raw import upgraded
from tests.faults.quick import QuickBridge
from tests.servers import free_port

ADDRESSES = 600  # more than are remembered
MORE = re.compile(r"(\d+) more refusals of (.+) in the last minute: (.+)")


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    """A bridge that a test may stop: then it says what it has counted."""
    plain = {"BRIDGE_PLAIN_PORT": str(free_port()), "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    with QuickBridge(tmp_path, **plain) as bridge:
        yield bridge


def size(bridge: Bridge) -> int:
    """Bytes of the log file and of the terminal."""
    return bridge.log.stat().st_size + (bridge.data / "logs" / "bridge.log").stat().st_size


def held_back(lines: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """What the last lines say was held back: client → code → how often."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        if match := MORE.fullmatch(line["event"]):
            pairs = (one.rsplit(" ", 1) for one in match[3].split(", "))
            codes = Counter({code: int(count) for code, count in pairs})
            assert codes.total() == int(match[1])
            found.setdefault(match[2], Counter()).update(codes)
    return found


def windows(began: float) -> int:
    """In how many of the log's minutes the time since may lie."""
    return 2 + int((time.monotonic() - began) / limits.LOG_WINDOW_SECONDS)


@pytest.mark.spec("severity.info", "severity.warning")
def test_refusals_of_one_address(bridge: Bridge) -> None:
    """The first of each code is a line that says whose it was; the others are one line together."""
    source = "127.0.0.71"
    https, ready = bridge.https(source=source), bridge.phone(source=source).ready()

    def refused_upgrade() -> None:
        page = {"Origin": "https://evil.example"}
        assert upgraded(bridge.port, source=source, **page).status == 403

    def failed_auth() -> None:
        phone = Phone(bridge.port, "wrong", bridge.pin, source=source)
        phone.connect()
        assert phone.auth()["type"] == "connection_error"
        phone.close()

    attacks: dict[str, Callable[[], object]] = {
        "FILE_ACCESS_DENIED": lambda: ready.request("session_start", elsewhere),
        "AUTH_INVALID_TOKEN": lambda: https.get("/api/v1/health", token="wrong"),
        "NOT_FOUND": lambda: https.get("/nothing"),
        "HOST_NOT_ALLOWED": lambda: https.get("/", headers={"Host": "evil.example"}),
        "HOOK_AUTH_FAILED": lambda: https.post("/hooks/event", token="wrong", json_body={}),
        "ORIGIN_NOT_ALLOWED": refused_upgrade,
        "AUTH_FAILED": failed_auth,
    }
    elsewhere = {"agent": "demo", "session_id": None, "working_directory": "/etc", "resume": False}
    times, began = 20, time.monotonic()
    for attack in attacks.values():
        for _ in range(times):
            attack()
    bridge.stop()
    lines = bridge.logged()
    [on_socket, *_] = [one for one in lines if one.get("code") == "FILE_ACCESS_DENIED"]
    assert on_socket["level"] == "warning" and on_socket["device"] and on_socket["message"]
    first = next(one for one in lines if one.get("code") == "AUTH_INVALID_TOKEN")
    said = {"level": "warning", "status": 401, "path": "/api/v1/health", "client": source}
    assert first.items() >= said.items() and first["request_id"]
    firsts = Counter(one["code"] for one in lines if one.get("client") == source and "code" in one)
    assert max(firsts.values()) <= windows(began)
    held = held_back(lines)
    assert firsts + held.pop(source) == dict.fromkeys(attacks, times)
    assert held == {}


def test_refusals_of_many_addresses(bridge: Bridge) -> None:
    """Only so many are told apart in a minute; the lines and what is remembered stay few."""
    https = Https(int(bridge.settings["BRIDGE_PLAIN_PORT"]), plain=True)
    before, began = size(bridge), time.monotonic()

    def fail(address: str) -> None:
        said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": address}
        host = {"Host": f"127.0.0.1:{bridge.port}"}
        answer = https.get("/nothing", headers=said | host, connection=connection)
        assert answer.status == 404, answer

    with closing(https.open()) as connection:
        for _ in range(30):
            fail("2001:db8:0:1::1")
            fail("2001:db8:0:1:ffff::1")  # of the same network
        for number in range(ADDRESSES):
            fail(f"203.0.{number // 200}.{number % 200}")
    assert size(bridge) - before < 400 * limits.LOG_REFUSALS * windows(began)
    bridge.stop()
    lines = bridge.logged()
    firsts = sum(line.get("code") == "NOT_FOUND" for line in lines)
    assert firsts <= limits.LOG_REFUSALS * windows(began)
    held = held_back(lines)
    assert "2001:db8:0:1::/64" in held
    assert firsts + sum(codes["NOT_FOUND"] for codes in held.values()) == 60 + ADDRESSES
    assert len(held) <= 2 * windows(began), "most are counted together"
