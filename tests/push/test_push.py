"""Who is sent a push, when, and what is in it (D56)."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.admin import Admin, text_of
from tests.conformance.bridge import Bridge
from tests.conformance.https import Response, assert_error, assert_now, parse_time
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session
from tests.faults.quick import QuickBridge
from tests.push.conftest import PROOF_SECONDS, ask, finish, subscribe
from tests.push.service import HOST, Browser, PushService, check_sender, status
from tests.servers import Postgres, Redis, wait_until


@pytest.mark.spec("ws.push_subscribe", "ws.push_state")
def test_a_device_that_is_away_is_told_that_somebody_is_needed(
    bridge: Bridge, service: PushService, browser: Browser, phone: Phone
) -> None:
    """Quiet: nothing of the tool and its command; signed by the bridge's key."""
    public_key = phone_key(bridge)
    state = subscribe(phone, browser)
    assert state["payload"] == {"subscribed": True, "detail": "quiet"}
    phone.close()
    session_id = ask(bridge, "rm -r secret-project")
    (said,) = browser.wait()
    assert said["title"] == "An agent needs you"
    assert (said["session_id"], said["tool_call_id"]) == (session_id, "call-1")
    assert said["notification_type"] == "approval_required"
    (request,) = browser.requests
    text = browser.decrypt(request.body).decode()
    assert "secret-project" not in text and "Bash" not in text
    claims = check_sender(request, public_key, service.origin)
    assert claims["sub"] == "mailto:bridge@example.com", "Apple takes no local name"
    headers = request.headers
    assert headers["content-encoding"] == "aes128gcm"
    assert (headers["ttl"], headers["urgency"]) == ("86400", "high")
    assert len(headers["topic"]) == 32


def phone_key(bridge: Bridge) -> str:
    other = bridge.phone().connect()
    key = other.auth()["payload"]["push"]["public_key"]
    other.close()
    return str(key)


def test_full_detail_and_every_kind(bridge: Bridge, browser: Browser, phone: Phone) -> None:
    """Of what an agent says without needing anybody nothing is pushed; what is long is cut."""
    assert subscribe(phone, browser, detail="full")["payload"]["detail"] == "full"
    phone.close()
    joined = "\N{WOMAN}\u200d\N{PERSONAL COMPUTER} \u0647\u200c\u0647 \U0001fa77"
    ask(bridge, f"rm -r build \u202e\a{joined}")
    session_id = new_session()
    bridge.accept(
        hook("Notification", session_id, {"message": "By the way", "level": "info"}),
        hook("Stop", session_id, {"reason": "error", "message": "It broke"}),
    )
    finish(bridge, "It is done")
    asked, failed, done = browser.wait(3)
    assert asked["title"] == "Bash asks at the machine"
    assert f"rm -r build \ufffd\ufffd{joined}" in asked["body"]
    assert (failed["notification_type"], failed["body"]) == ("error", "It broke")
    assert (done["notification_type"], done["body"]) == ("task_complete", "It is done")
    assert [one.headers["urgency"] for one in browser.requests] == ["high", "normal", "normal"]
    ask(bridge, "echo " + "\N{GRINNING FACE}" * 5000, call="\N{GRINNING FACE}" * 250)
    said = browser.wait(4)[-1]  # which checks that it is cut to what services take
    assert said["tool_call_id"] == "\N{GRINNING FACE}" * 250


def test_the_question_of_an_mcp_server_is_pushed_as_an_approval_is(
    bridge: Bridge, browser: Browser, phone: Phone
) -> None:
    """It opens its session, for nothing can be decided; answered meanwhile, it is no news (D65)."""
    assert subscribe(phone, browser, detail="full")["payload"]["detail"] == "full"
    phone.close()
    asks = {"notification_type": "elicitation", "message": "tickets: Which project?"}
    answered, session_id = new_session(), new_session()
    bridge.accept(
        hook("Notification", answered, asks | {"level": "info"}),
        hook("PreToolUse", answered),
        hook("Notification", session_id, asks | {"level": "info"}),
    )
    (said,) = browser.wait()
    assert (said["session_id"], said.get("tool_call_id")) == (session_id, None)
    assert (said["notification_type"], said["body"]) == (
        "approval_required",
        "tickets: Which project?",
    )
    assert browser.requests[0].headers["urgency"] == "high"
    finish(bridge, "It is done")
    assert browser.wait(2)[1]["body"] == "It is done", "and nothing else"


@pytest.mark.slow
def test_a_frozen_phone_and_one_that_has_it(bridge: Bridge, service: PushService) -> None:
    """A socket that looks alive is waited for; what it has, or was decided, is not pushed."""
    frozen, awake, away = (service.browser() for _ in range(3))
    phones = [bridge.phone().ready() for _ in range(3)]
    for phone, browser in zip(phones, (frozen, awake, away), strict=True):
        subscribe(phone, browser, detail="full")
    phones[2].close()
    decided = ask(bridge, "echo decided", call="decided")
    phones[1].expect("notification", session_id=decided)
    away.wait()
    answer = {"session_id": decided, "tool_call_id": "decided", "decision": "approved"}
    phones[1].request("approval_response", answer)
    phones[1].expect("notification", notification_type="approval_decided", session_id=decided)
    pending = ask(bridge, "echo pending", call="pending")
    asked = phones[1].expect("notification", session_id=pending)
    phones[1].ack(*phones[1].messages)
    assert [one["tool_call_id"] for one in away.wait(2)] == ["decided", "pending"]
    assert [one["tool_call_id"] for one in frozen.wait()] == ["pending"]
    written = parse_time(asked["timestamp"]).timestamp()
    assert frozen.requests[0].at - written > PROOF_SECONDS - 0.5, (
        "its socket has time to show that it has it"
    )
    assert away.requests[1].at < frozen.requests[0].at, "who has none is told at once"
    phones[1].ping()
    phones[1].close()
    last = finish(bridge)
    assert [one["session_id"] for one in awake.wait()] == [last]
    assert [one["session_id"] for one in away.wait(3)] == [decided, pending, last]


@pytest.mark.spec("ws.push_unsubscribe")
def test_none_after_unsubscribing_and_none_twice(
    bridge: Bridge, service: PushService, phone: Phone
) -> None:
    """Subscribing again changes the detail; the last browser of a device counts."""
    old, new, witness = (service.browser() for _ in range(3))
    other = bridge.phone().ready()
    subscribe(other, witness)
    other.close()
    subscribe(phone, old)
    subscribe(phone, new)
    state = subscribe(phone, new, detail="full")
    assert state["payload"] == {"subscribed": True, "detail": "full"}
    phone.close()
    finish(bridge, "First")
    assert [one["body"] for one in new.wait()] == ["First"]
    phone.ready()
    state = phone.request("push_unsubscribe", {})
    assert state["payload"] == {"subscribed": False, "detail": None}
    assert phone.request("push_test", {})["payload"]["subscribed"] is False
    phone.close()
    finish(bridge, "Second")
    witness.wait(2)
    assert (len(old.requests), len(new.requests)) == (0, 1)


@pytest.mark.spec("ws.push_test")
def test_a_test_says_what_became_of_it(bridge: Bridge, browser: Browser, phone: Phone) -> None:
    subscribe(phone, browser)
    state = phone.request("push_test", {})["payload"]
    assert state.keys() == {"subscribed", "detail", "last"} and state["subscribed"] is True
    assert state["last"].keys() == {"service", "at"} and state["last"]["service"] == HOST
    assert_now(state["last"]["at"])
    (said,) = browser.read()
    assert (said["notification_type"], said["title"]) == ("test", "Test")
    counted = 'bridge_pushes_total{outcome="taken"}'
    wait_until(lambda: counted in bridge.get("/metrics", bridge.admin_token).body.decode())


@pytest.mark.spec("http.push.receipt")
def test_a_receipt_says_that_it_was_shown(
    bridge: Bridge, service: PushService, browser: Browser, phone: Phone
) -> None:
    """D74: of the last push, once, by the device that it was for; the admin site says it too."""
    subscribe(phone, browser)
    phone.close()
    finish(bridge)
    (said,) = browser.wait()
    shown = {"notification_id": said["notification_id"]}
    with bridge.phones(1) as (other,):
        subscribe(other, service.browser())
        assert receipt(bridge, other.token, shown).json() == {"recorded": False}
    assert receipt(bridge, phone.token, {"notification_id": "x"}).json() == {"recorded": False}
    assert receipt(bridge, phone.token, shown).json() == {"recorded": True}
    assert receipt(bridge, phone.token, shown).json() == {"recorded": False}
    assert_error(receipt(bridge, phone.token, {}), 400, "VALIDATION_ERROR")
    assert_error(receipt(bridge, bridge.admin_token, shown), 403, "AUTH_INSUFFICIENT_SCOPE")
    phone.ready()
    last = subscribe(phone, browser)["payload"]["last"]
    assert_now(last["shown_at"])


def test_the_admin_site_says_what_became_of_the_last_push(bridge: Bridge, browser: Browser) -> None:
    """D74: in words, of each device; also that its address is gone."""
    pairing, admin = bridge.mint("--name", "the one that is pushed to"), Admin(bridge, "ada")
    listed = admin.page("/admin/devices_app/device/?q=the+one+that+is+pushed+to")
    number = re.search(r"/device/(\d+)/change/", listed)
    assert number is not None

    def says(words: str) -> bool:
        page = text_of(admin.page(f"/admin/devices_app/device/{number[1]}/change/"))
        return re.search(words, page) is not None

    assert says("It has asked for no pushes.")
    phone = bridge.phone(pairing).ready()
    subscribe(phone, browser)
    assert says("None yet.")
    phone.close()
    finish(bridge)
    (said,) = browser.wait()
    wait_until(lambda: says("accepted by localhost, "))
    assert not says("; shown ")
    receipt(bridge, phone.token, {"notification_id": said["notification_id"]})
    assert says("accepted by localhost, .*; shown ")
    browser.answer(status(410))
    finish(bridge)
    wait_until(lambda: says("failed at localhost: .*; it has no address since "))


def receipt(bridge: Bridge, token: str, body: Any) -> Response:
    return bridge.https().post("/api/v1/push/receipt", token=token, json_body=body)


@pytest.mark.spec("http.push.subscription")
def test_a_dead_address_is_never_taken_again(
    bridge: Bridge, service: PushService, phone: Phone
) -> None:
    """D74: the service worker renews it; then what was lost meanwhile is pushed, and nobody else's
    address or one of a device that wants none is taken so.
    """
    dead, theirs, fresh = service.browser(), service.browser(), service.browser()
    subscribe(phone, dead)
    phone.close()
    dead.answer(status(410))
    session_id = ask(bridge)
    dead.wait()
    wait_until(lambda: renew(bridge, phone.token, dead.subscription).status == 410)
    assert_error(renew(bridge, phone.token, dead.subscription), 410, "PUSH_ENDPOINT_GONE")
    with bridge.phones(1) as (other,):
        assert_error(renew(bridge, other.token, fresh.subscription), 403, "PUSH_ENDPOINT_REFUSED")
        refused = other.request("push_subscribe", {"subscription": dead.subscription})
        assert refused["payload"]["code"] == "PUSH_ENDPOINT_GONE"
        subscribe(other, theirs)
        stolen = theirs.subscription | {"keys": fresh.subscription["keys"]}
        answer = bridge.https().post(
            "/api/v1/push/subscription", token=phone.token, json_body={"subscription": stolen}
        )
        assert_error(answer, 403, "PUSH_ENDPOINT_REFUSED")
        wrong = {"subscription": fresh.subscription | {"endpoint": "https://example.com/x"}}
        answer = bridge.https().post(
            "/api/v1/push/subscription", token=phone.token, json_body=wrong
        )
        assert_error(answer, 403, "PUSH_ENDPOINT_REFUSED")
    assert renew(bridge, phone.token, fresh.subscription).json() == {"subscribed": True}
    (said,) = fresh.wait()
    assert said["session_id"] == session_id


def renew(bridge: Bridge, token: str, subscription: dict[str, Any]) -> Response:
    body = {"subscription": subscription}
    return bridge.https().post("/api/v1/push/subscription", token=token, json_body=body)


def test_a_subscription_outlives_restarts(
    service: PushService, browser: Browser, tmp_path: Path
) -> None:
    """That it goes with its device: test_another_devices_subscription in test_bad_input.py."""
    with QuickBridge(tmp_path, **service.settings) as bridge:
        with bridge.phones(1) as (phone,):
            subscribe(phone, browser)
        sessions = [finish(bridge)]
        browser.wait()
        bridge.stop()
        bridge.start()
        sessions.append(finish(bridge))
        assert [one["session_id"] for one in browser.wait(2)] == sessions
        key = bridge.data / "secrets" / "push_key"
        assert key.stat().st_mode & 0o777 == 0o600


def test_push_that_is_switched_off(service: PushService, tmp_path: Path) -> None:
    with QuickBridge(tmp_path, BRIDGE_PUSH="off", **service.settings) as bridge:
        phone = bridge.phone().connect()
        assert "push" not in phone.auth()["payload"]
        phone.health_check()
        refused = phone.request("push_subscribe", {"subscription": service.browser().subscription})
        assert refused["payload"]["code"] == "PUSH_ENDPOINT_REFUSED"
        assert "BRIDGE_PUSH" in refused["payload"]["message"]


def test_two_processes_send_a_push_once(
    service: PushService,
    browser: Browser,
    postgres_server: Postgres,
    redis_server: Redis,
    tmp_path: Path,
) -> None:
    """Both have the key, and both see every row."""
    shared = {
        "database_url": postgres_server.create_database(),
        "redis_url": redis_server.create_database(),
    }
    with QuickBridge(tmp_path / "first", **shared, **service.settings) as first:
        second = first.beside(tmp_path / "second", **service.settings)
        (second.data / "secrets").mkdir(parents=True, mode=0o700)
        shutil.copy(first.data / "secrets" / "push_key", second.data / "secrets")
        with second:
            assert phone_key(first) == phone_key(second)
            phone = first.phone().ready()
            subscribe(phone, browser)
            phone.close()
            sessions = [
                ask(one, call=f"call-{turn}") for turn in range(5) for one in (first, second)
            ]
            assert [one["session_id"] for one in browser.wait(10)] == sessions
            last = finish(second)
            assert browser.wait(11)[10]["session_id"] == last
            assert len(browser.requests) == 11
