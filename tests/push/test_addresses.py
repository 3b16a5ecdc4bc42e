"""What no device has is said at the addresses of BRIDGE_NOTIFY_URLS too (D74)."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.admin import Admin, text_of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge, with_limits
from tests.push.conftest import ask, finish
from tests.push.service import PushService, drip, running, status
from tests.servers import Postgres, Redis, wait_until

TOPIC, TOKEN = (secrets.token_urlsafe(24).replace("-", "x") for _ in range(2))
LISTING = "/admin/devices_app/notifyaddress/"
SOON = with_limits(PUSH_PROOF_SECONDS=1, PUSH_RETRY_SECONDS=0.2, NOTIFY_SECONDS=4)


class Place:
    """A service on loopback, and its address."""

    def __init__(self, service: PushService, schema: str) -> None:
        self.service, host = service, f"127.0.0.1:{service.port}"
        self.url = f"{schema}://{host}/{TOPIC if schema == 'ntfy' else TOKEN}"
        self.path = "/" if schema == "ntfy" else "/message"

    def answer(self, *answers: Any) -> None:
        self.service.answers[self.path] = list(answers)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.service.requests]

    def wait(self, count: int) -> list[dict[str, Any]]:
        wait_until(lambda: len(self.service.requests) >= count, f"{count} at {self.path}")
        return self.read()


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[Place, Place]]:
    with ExitStack() as stack:
        ntfy, gotify = (stack.enter_context(running()) for _ in range(2))
        yield Place(ntfy, "ntfy"), Place(gotify, "gotify")


@pytest.fixture(autouse=True)
def fresh(places: tuple[Place, Place]) -> None:
    for place in places:
        place.answer(status(200))
        place.service.requests.clear()


@pytest.fixture(scope="module")
def bridge(
    tmp_path_factory: pytest.TempPathFactory, places: tuple[Place, Place]
) -> Iterator[Bridge]:
    """Its addresses stand in a file."""
    directory = tmp_path_factory.mktemp("addresses")
    file = directory / "addresses"
    # what an address asks for, too: to follow redirects, and to wait for minutes
    file.write_text("\n".join(f"{place.url}?redirect=yes&rto=300" for place in places))
    settings = {"BRIDGE_NOTIFY_URLS_FILE": str(file), "BRIDGE_PUSH": "off"}
    with QuickBridge(directory, first=SOON, **settings) as made:
        yield made
        said = [made.log.read_text(), (made.data / "logs/bridge.log").read_text()]
        said += [json.dumps(made.get("/api/v1/info", made.admin_token).json())]
        said += [made.get("/metrics", made.admin_token).body.decode()]
        database = b"".join(path.read_bytes() for path in made.data.glob("bridge.sqlite3*"))
        for secret in (TOPIC, TOKEN):
            assert not any(secret in text for text in said) and secret.encode() not in database


@pytest.fixture(scope="module")
def admin(bridge: Bridge) -> Admin:
    return Admin(bridge, "ada")


def test_what_no_device_has_is_said_there(
    bridge: Bridge, places: tuple[Place, Place], phone: Phone
) -> None:
    """Quietly, once, and not what a device has acknowledged or what is not pushed by default."""
    acknowledged = finish(bridge, "A device has it")
    phone.ack(phone.expect("notification", session_id=acknowledged))
    phone.close()
    ask(bridge, "rm -r secret-project")
    for place in places:
        place.wait(1)
    finish(bridge, "It is done")
    for place in places:
        first, second = place.wait(2)
        assert first["title"] == second["title"] == "An agent needs you"
        assert "secret-project" not in json.dumps(first), first
        assert len(place.read()) == 2
    assert places[0].read()[0]["topic"] == TOPIC
    assert places[1].service.requests[0].headers["x-gotify-key"] == TOKEN


@pytest.mark.parametrize("code", [302, 410, 413, 429, 500])
def test_one_that_fails_is_tried_four_times(
    bridge: Bridge, admin: Admin, places: tuple[Place, Place], code: int
) -> None:
    """Redirects are not followed. Then comes the next row, and the admin site has the last word."""
    for place in places:
        there = f"http://127.0.0.1:{places[0].service.port}/elsewhere"
        place.answer(status(code, location=there))
    finish(bridge)
    for place in places:
        place.wait(4)
    wait_until(lambda: text_of(admin.page(LISTING)).count(f"It answered {code}.") == 2)
    for place in places:
        place.answer(status(200))
    finish(bridge)
    for place in places:
        place.wait(5)
    wait_until(lambda: text_of(admin.page(LISTING)).count("Taken, ") == 2)
    page = admin.page(LISTING)
    assert "ntfy://127.0.0.1" in page and "gotify://127.0.0.1" in page
    assert TOPIC not in page and TOKEN not in page
    for place in places:
        assert {one.path for one in place.service.requests} == {place.path}


def test_one_that_hangs_holds_up_nothing(
    bridge: Bridge, admin: Admin, places: tuple[Place, Place]
) -> None:
    """It has its time, then it is left alone until it has answered what was sent before."""
    hangs, other = places
    hangs.answer(drip)
    finish(bridge)
    hangs.wait(1)
    finish(bridge)
    finish(bridge)
    other.wait(3)
    wait_until(lambda: "It still has not answered" in text_of(admin.page(LISTING)))
    assert len(hangs.read()) == 1


def test_doctor_and_the_admin_site_send_a_test(tmp_path: Path) -> None:
    """`doctor` alone sends nothing; one that Apprise does not understand is named, not shown."""
    with running() as service:
        place = Place(service, "gotify")
        place.answer(status(200))
        urls = f"{place.url} tgram://{TOKEN}"
        with QuickBridge(tmp_path, first=SOON, BRIDGE_NOTIFY_URLS=urls) as bridge:
            found = doctor(bridge)
            assert found["gotify"]["text"].endswith("Nothing was sent there yet.")
            assert "does not understand" in found["tgram"]["text"]
            assert sent_tests(place) == 0
            assert "Taken, " in doctor(bridge, "--send")["gotify"]["text"]
            assert sent_tests(place) == 1
            admin = Admin(bridge, "ada")
            chosen = re.search(r'name="_selected_action" value="(\d+)"', admin.page(LISTING))
            assert chosen is not None
            admin.post(LISTING, {"action": "send_test", "_selected_action": chosen[1]})
            assert "gotify://127.0.0.1: Taken, " in text_of(admin.page(LISTING))
            assert sent_tests(place) == 2
            place.answer(status(410))
            found = doctor(bridge, "--send")
            assert found["gotify"]["level"] == "warning"
            assert "It answered 410." in found["gotify"]["text"]


def sent_tests(place: Place) -> int:
    return [one["title"] for one in place.read()].count("Test")


def doctor(bridge: Bridge, *words: str) -> dict[str, dict[str, Any]]:
    """Schema → the last that is said of its address; the command's output holds no token."""
    done = bridge.manage("doctor", "--json", *words, check=False)
    assert TOKEN not in done.stdout + done.stderr
    checks = [one for one in json.loads(done.stdout)["checks"] if one["check"] == "notify"]
    return {one["text"].partition("://")[0]: one for one in checks}


def test_full_detail(tmp_path: Path) -> None:
    with running() as service:
        place = Place(service, "gotify")
        place.answer(status(200))
        settings = {"BRIDGE_NOTIFY_URLS": place.url, "BRIDGE_NOTIFY_DETAIL": "full"}
        with QuickBridge(tmp_path, first=SOON, **settings) as bridge:
            ask(bridge, "rm -r build")
            (said,) = place.wait(1)
            assert said["title"] == "Bash asks at the machine"
            assert "rm -r build" in said["message"]


@pytest.mark.parametrize(
    "wrong",
    [
        "json://127.0.0.1/{}",
        "file://{}",
        "syslog://{}",
        "xml://127.0.0.1/{}",
        "ntfy:{}",
        "{}",
        "ntfy://127.0.0.1/{}?attach=file:///etc/passwd",
        "mailto://me:{}@example.com?pgpkey=/etc/passwd",
        "ntfy://[{}/x",
    ],
)
def test_other_addresses_are_refused(tmp_path: Path, wrong: str) -> None:
    """At the start and by every command, in words that do not repeat them."""
    settings = {"BRIDGE_NOTIFY_URLS": f"ntfy://127.0.0.1/{TOPIC} {wrong.format(TOKEN)}"}
    done = QuickBridge(tmp_path, **settings).manage("check", check=False)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "BRIDGE_NOTIFY_URLS: " in said and "address 2 " in said
    assert TOKEN not in said and TOPIC not in said


def test_two_processes_say_it_once(
    postgres_server: Postgres, redis_server: Redis, tmp_path: Path
) -> None:
    shared = {
        "database_url": postgres_server.create_database(),
        "redis_url": redis_server.create_database(),
    }
    with running() as service:
        place = Place(service, "gotify")
        place.answer(status(200))
        settings = {"BRIDGE_NOTIFY_URLS": place.url, "BRIDGE_NOTIFY_DETAIL": "full"}
        with QuickBridge(tmp_path / "first", first=SOON, **shared, **settings) as first:
            second = first.beside(tmp_path / "second", first=SOON, **settings)
            with second:
                for turn in range(6):
                    finish(first if turn % 2 else second, f"Turn {turn}")
                expected = [f"Turn {turn}" for turn in range(6)]
                assert [one["message"] for one in place.wait(6)] == expected
                finish(first, "Last")
                assert place.wait(7)[-1]["message"] == "Last"
                assert len(place.read()) == 7
