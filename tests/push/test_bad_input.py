"""What the bridge must not be made to call, and push services that are slow or refuse (D56)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge
from tests.push.conftest import RETRY_SECONDS, ask, finish, subscribe
from tests.push.service import (
    HOST,
    OTHER_HOST,
    Browser,
    PushService,
    Raw,
    drip,
    encode,
    running,
    status,
)
from tests.servers import wait_until
from tests.short import SHORT, short

pytestmark = pytest.mark.slow

REFUSED = "PUSH_ENDPOINT_REFUSED"
MOZILLA = "updates.push.services.mozilla.com"
GIVEN_UP = SHORT["PUSH_ANSWER_SECONDS"]  # until a service is given up
# A name server of the tests: names and their addresses, in a file.
NAMES = """
import json, os, socket
ask = socket.getaddrinfo
def answer(host, *args, **kwargs):
    with open(os.environ["TEST_NAMES"]) as file:
        return ask(json.load(file).get(host, host), *args, **kwargs)
socket.getaddrinfo = answer
"""


def pushed(phone: Phone) -> Message:
    payload: Message = phone.request("push_test", {})["payload"]
    return payload


def with_endpoint(browser: Browser, endpoint: str) -> dict[str, Any]:
    return {"subscription": browser.subscription | {"endpoint": endpoint}}


ADDRESSES = r"""
http://fcm.googleapis.com/fcm/send/x https://push.example/x https://.push.apple.com/x
https://fcm.googleapis.com.push.example/x https://fcm.googleapis.com@push.example/x
https://push.example#@fcm.googleapis.com/x https://user@fcm.googleapis.com/x
https://fcm.googleapis.com:8443/x https://push.apple.com.example/x https://notpush.apple.com/x
https://127.0.0.1/x https://[::1]/x https://2130706433/x https://fcm.googleapis.com\@push.example/x
https://fcm.googleapis.com:port/x https://[fcm.googleapis.com/x
"""
MORE_ADDRESSES = (
    "",
    "https://fcm.googleapis.com/x\r\nHost: push.example",
    "https://fcm.googleapis.com/" + "x" * 1900 + "/../\u202e",
)


def test_an_address_that_is_not_allowed(phone: Phone, service: PushService) -> None:
    for endpoint in (*ADDRESSES.split(), *MORE_ADDRESSES):
        answer = phone.request("push_subscribe", with_endpoint(service.browser(), endpoint))
        assert answer["type"] == "error" and answer["payload"]["code"] == REFUSED, endpoint
        assert answer["payload"]["recoverable"] is True
    assert pushed(phone)["subscribed"] is False
    endless = with_endpoint(service.browser(), f"{service.origin}/{'x' * 8192}")
    answer = phone.request("push_subscribe", endless)
    assert answer["payload"]["code"] == "PROTO_INVALID_MESSAGE"


NO_POINTS = (b"\4" + bytes(64), b"\4" + b"\xff" * 64, bytes(65), bytes(33))  # of the curve
WRONG_KEYS: dict[str, tuple[object, ...]] = {
    "p256dh": (*map(encode, NO_POINTS), "A" * 1_000_000, 1),
    "auth": (encode(bytes(15)), "A" * 1_000_000, "not base64url at all!!", None),
}


def test_keys_that_are_none(phone: Phone, service: PushService) -> None:
    for field, value in [(name, one) for name, values in WRONG_KEYS.items() for one in values]:
        subscription = service.browser().subscription
        subscription["keys"] |= {field: value}
        answer = phone.request("push_subscribe", {"subscription": subscription})
        assert answer["payload"]["code"] == "PROTO_INVALID_MESSAGE", (field, str(value)[:100])
        (violation,) = answer["payload"]["violations"]
        assert violation["field"] == f"payload.subscription.keys.{field}"
        assert len(json.dumps(answer)) < 2000


def test_another_devices_subscription(bridge: Bridge, service: PushService, phone: Phone) -> None:
    """Its address alone does not take it, however spelled; the same browser, paired again, does."""
    browser, witness = service.browser(), service.browser()
    subscribe(phone, browser)
    pairing = bridge.mint("--name", "same browser")
    other = bridge.phone(pairing).ready()
    for spelling in ("https://{}:{}{}", "HTTPS://LocalHost:{1}{2}", "https://{}:0{}{}#again"):
        endpoint = spelling.format(HOST, service.port, browser.path)
        answer = other.request("push_subscribe", with_endpoint(service.browser(), endpoint))
        assert answer["payload"]["code"] == REFUSED, endpoint
    assert pushed(phone)["subscribed"] is True
    subscribe(other, browser)
    assert pushed(phone)["subscribed"] is False
    subscribe(phone, witness)
    for one in (phone, other):
        one.close()
    first = finish(bridge)
    assert [push.get("session_id") for push in browser.wait(2)] == [None, first]
    witness.wait()
    bridge.manage("revoke_device", "same browser")
    finish(bridge)
    witness.wait(2)
    assert len(browser.requests) == 2
    subscribe(phone.ready(), browser)
    phone.close()
    last = finish(bridge)
    assert browser.wait(3)[2]["session_id"] == last


def test_a_redirect_is_not_followed(service: PushService, phone: Phone) -> None:
    """The bridge must not be made to call into its own network."""
    browser, inside = service.browser(), service.browser()
    subscribe(phone, browser)
    for code in (301, 302, 303, 307, 308):
        browser.answer(status(code, location=f"{service.origin}{inside.path}"))
        answer = pushed(phone)
        assert answer["code"] == REFUSED and "redirect" in answer["message"]
    assert len(browser.requests) == 5
    assert inside.requests == []


@pytest.fixture(scope="module")
def named(
    tmp_path_factory: pytest.TempPathFactory, service: PushService
) -> Iterator[tuple[Bridge, Path]]:
    """A bridge that soon gives a push service up, and whose names are looked up in a file."""
    place = tmp_path_factory.mktemp("named")
    names = place / "names.json"
    names.write_text(json.dumps({OTHER_HOST: "127.0.0.1"}))
    more = {"BRIDGE_PUSH_HOSTS": f"{HOST},{OTHER_HOST}", "TEST_NAMES": str(names)}
    settings = {"BRIDGE_MAX_WEBSOCKETS": "100"} | service.settings | more
    with QuickBridge(place, first=NAMES, **settings, **short("PUSH_ANSWER_SECONDS")) as bridge:
        yield bridge, names


CHUNKED = b"HTTP/1.1 500 Failed\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"x" * 100_000
# how it answers, and what the phone is told of it
ODD_ANSWERS: dict[str, tuple[Raw, str]] = {
    "a reason without an end": (Raw(b"HTTP/1.1 500 Failed\r\n\r\n", LONG), "500"),
    "a chunk of no length": (Raw(CHUNKED + b"-1\r\n", LONG), "500"),
    "control characters": (Raw(b"HTTP/\x00\x1b[2J\x9b 500\r\n\r\n"), "cannot be reached"),
    "lines without an end": (Raw(b"HTTP/1.1 500 Failed\r\n", b"X-Long: " + LONG + b"\r\n"), "500"),
    "go on, without an end": (Raw(b"", b"HTTP/1.1 100 Go on\r\n\r\n" * 1000), "cannot be reached"),
    "a hint and no more": (Raw(b"HTTP/1.1 103 Hint\r\n\r\n"), "answered 103"),
    "nothing": (Raw(b""), "cannot be reached"),
    "an old protocol": (Raw(b"HTTP/1.0 201 Created\r\n\r\n"), ""),
    "taken, and more": (Raw(b"HTTP/1.1 201 Created\r\n\r\n", LONG), ""),
}


def test_odd_answers(service: PushService, phone: Phone) -> None:
    """They are read to a bound, and named in words that harm no terminal and no database."""
    for kind, (answer, told) in ODD_ANSWERS.items():
        browser = service.browser()
        subscribe(phone, browser)
        browser.answer(answer)
        said = pushed(phone).get("problem", "")
        assert (told in said) if told else not said, (kind, said)
        assert said.isprintable() and len(said) <= 200, kind
        assert answer.over.wait(60), kind
        assert answer.written < 16_000_000, (kind, "what two sockets hold, and no more")


STUCK = 20  # devices, of which so many in turn that another's push would wait long behind them


def test_a_service_that_never_answers_holds_nothing_up(
    named: tuple[Bridge, Path], service: PushService
) -> None:
    """A phone that asks for a test push, another's push, events and decisions."""
    bridge, _ = named
    stuck, quick = [service.browser() for _ in range(STUCK)], service.browser()
    for browser in stuck:
        browser.answer(drip)
        phone = bridge.phone().ready()
        subscribe(phone, browser)
        phone.close()
    other = bridge.phone().ready()
    wanted = with_endpoint(quick, quick.subscription["endpoint"].replace(HOST, OTHER_HOST))
    assert other.request("push_subscribe", wanted)["type"] == "push_state"
    other.close()
    phone.ready()
    phone.send("push_test", {})
    phone.ping()
    asked = ask(bridge)
    quick.wait()
    assert sum(bool(browser.requests) for browser in stuck) < STUCK
    session_id = new_session()
    other.ready()
    bridge.watch(other, session_id)
    bridge.accept(prompt(session_id, 1))
    other.wait_numbers(session_id, [1])
    answer = {"session_id": asked, "tool_call_id": "call-1", "decision": "rejected"}
    assert other.request("approval_response", answer)["type"] == "approval_recorded"
    state = phone.expect("push_state")
    assert f"no answer in {GIVEN_UP} s" in state["payload"]["problem"]


def test_a_subscription_that_the_service_knows_no_more(
    bridge: Bridge, service: PushService, phone: Phone
) -> None:
    for code in (404, 410):
        browser = service.browser()
        subscribe(phone, browser)
        phone.close()
        browser.answer(status(code), status(201))
        finish(bridge)
        browser.wait()
        phone.ready()
        wait_until(lambda: not pushed(phone)["subscribed"])
        assert pushed(phone).keys() == {"subscribed", "detail", "last"}
        assert str(code) in pushed(phone)["last"]["problem"]


def test_a_service_that_asks_to_wait(bridge: Bridge, browser: Browser, phone: Phone) -> None:
    """It is tried again as long as it asks, and not forgotten; what is refused for good is."""
    subscribe(phone, browser)
    phone.close()
    browser.answer(status(429, retry_after="2"), status(503), status(201))
    session_id = ask(bridge)
    pushes = browser.wait(3)
    assert [one["session_id"] for one in pushes] == [session_id] * 3
    first, second, third = browser.requests
    assert second.at - first.at >= 2
    assert third.at - second.at >= RETRY_SECONDS
    assert len({one.headers["topic"] for one in browser.requests}) == 1, "the phone shows one"
    browser.answer(status(403, '{"reason": "BadJwtToken"}'), status(201))
    refused, told = finish(bridge), finish(bridge)
    assert [one["session_id"] for one in browser.wait(5)[3:]] == [refused, told]
    browser.answer(status(403, '{"reason": "BadJwtToken"}'))
    phone.ready()
    assert pushed(phone)["problem"] == f'{HOST} answered 403 {{"reason": "BadJwtToken"}}'


def test_a_certificate_that_is_not_trusted(tmp_path: Path, phone: Phone) -> None:
    """What stands at an address but cannot prove its name is told nothing."""
    with running(tmp_path) as impostor:
        browser = impostor.browser()
        subscribe(phone, browser)
        assert "certificate" in pushed(phone)["problem"].lower()
        assert browser.requests == []


PRIVATE = (
    *("127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("224.0.0.1", "::1", "fd00::1", "fe80::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
    "2002:a00:1::1",
)


def test_a_host_that_leads_into_a_private_network(
    named: tuple[Bridge, Path], service: PushService
) -> None:
    """When it is subscribed, and when it leads elsewhere later (DNS rebinding)."""
    bridge, names = named
    phone = bridge.phone().ready()
    wanted = with_endpoint(service.browser(), f"https://{MOZILLA}/wpush/v2/x")
    for address in PRIVATE:
        names.write_text(json.dumps({MOZILLA: address}))
        answer = phone.request("push_subscribe", wanted)
        assert answer["payload"]["code"] == REFUSED, address
    # a public address, to which nothing is sent
    names.write_text(json.dumps({MOZILLA: "2001:4860:4860::8888"}))
    assert phone.request("push_subscribe", wanted)["payload"]["subscribed"] is True
    for address in PRIVATE:
        names.write_text(json.dumps({MOZILLA: address}))
        answer = pushed(phone)
        assert answer["code"] == REFUSED and "private network" in answer["message"], address
