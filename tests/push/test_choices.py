"""What a device wants to be told, and when (D74)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session
from tests.faults.clock import ClockBridge
from tests.push.conftest import ask, choose, finish, subscribe
from tests.push.service import Browser, PushService
from tests.short import short

DEFAULT = {
    "kinds": ["approval_required", "task_complete", "error"],
    "muted": [],
    "reminder_minutes": 0,
    "quiet": None,
    "detail": "quiet",
}
NIGHT = {"from": "22:30", "to": "07:00", "zone": "Europe/Berlin"}
FAR = "Asia/Kathmandu"  # 5:45 ahead of UTC


QUICK = short("PUSH_RETRY_SECONDS", "HELD_CHECK_SECONDS")


@pytest.fixture(scope="module")
def clocked(
    tmp_path_factory: pytest.TempPathFactory, service: PushService
) -> Iterator[ClockBridge]:
    with ClockBridge(tmp_path_factory.mktemp("clocked"), **service.settings, **QUICK) as made:
        yield made


@pytest.fixture
def clock(clocked: ClockBridge) -> Iterator[ClockBridge]:
    """Its clock is right at the beginning of each test; phones are paired by it."""
    clocked.set(0)
    yield clocked
    clocked.hang_up()


def at(bridge: ClockBridge, **later: float) -> str:
    """What the clock in FAR shows by this bridge's clock, and so much later."""
    ahead = timedelta(seconds=bridge.ahead) + timedelta(**later)
    return (datetime.now(ZoneInfo(FAR)) + ahead).strftime("%H:%M")


def calls(said: list[dict[str, Any]]) -> list[str]:
    return [one.get("tool_call_id") or one["notification_type"] for one in said]


@pytest.mark.spec("ws.notify_set", "ws.notify_state")
def test_a_device_chooses_what_it_is_told(
    bridge: Bridge, service: PushService, browser: Browser, phone: Phone
) -> None:
    """Each for itself; what is not named stays; the detail is the one of push_subscribe."""
    assert choose(phone) == DEFAULT
    muted, kinds = [new_session()], ["error", "agent_idle"]
    chosen = DEFAULT | {"muted": muted, "kinds": kinds, "reminder_minutes": 15, "quiet": NIGHT}
    assert choose(phone, muted=muted, kinds=kinds, reminder_minutes=15, quiet=NIGHT) == chosen
    assert subscribe(phone, browser, detail="full")["payload"]["detail"] == "full"
    assert choose(phone, quiet=None) == chosen | {"quiet": None, "detail": "full"}
    assert choose(phone, detail="quiet") == chosen | {"quiet": None}
    assert phone.request("push_test", {})["payload"]["detail"] == "quiet"
    with bridge.phones(1) as (other,):
        assert choose(other) == DEFAULT
    phone.close()
    phone.connect()
    assert phone.auth()["payload"]["notify"] == chosen | {"quiet": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": ["everything"]},
        {"muted": ["x" * 257]},
        {"muted": [f"s-{number}" for number in range(501)]},
        {"reminder_minutes": 1441},
        {"reminder_minutes": -1},
        {"quiet": NIGHT | {"zone": "Europe/Atlantis"}},
        {"quiet": NIGHT | {"zone": "../../etc/passwd"}},
        {"quiet": NIGHT | {"from": "24:00"}},
        {"quiet": NIGHT | {"from": "7:00"}},
        {"quiet": NIGHT | {"from": NIGHT["to"]}},
        {"quiet": {"from": "22:00", "to": "23:00"}},
        {"detail": "loud"},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_choices_that_are_none(phone: Phone, wrong: dict[str, Any]) -> None:
    refused = phone.request("notify_set", {"reminder_minutes": 5} | wrong)
    assert refused["payload"]["code"] == "PROTO_INVALID_MESSAGE", refused
    assert choose(phone) == DEFAULT


def test_kinds(bridge: Bridge, browser: Browser, phone: Phone) -> None:
    subscribe(phone, browser, detail="full")
    choose(phone, kinds=["agent_notification"])
    phone.close()
    session_id = new_session()
    ask(bridge, call="not-told", session_id=session_id)
    finish(bridge, "Not told", session_id)
    bridge.accept(hook("Notification", session_id, {"message": "By the way", "level": "info"}))
    assert [one["body"] for one in browser.wait()] == ["By the way"]


def test_a_mute_is_passed_by_a_high_risk_only(bridge: Bridge, service: PushService) -> None:
    """Of two devices, one has muted the session."""
    session_id, browsers = new_session(), [service.browser(), service.browser()]
    with bridge.phones(2) as phones:
        for phone, browser in zip(phones, browsers, strict=True):
            subscribe(phone, browser)
        choose(phones[0], muted=[session_id])
    ask(bridge, "make", "medium", "medium", session_id)
    ask(bridge, "rm -r build", "high", "high", session_id)
    ask(bridge, "sudo rm -rf /", "critical", "critical", session_id)
    last = ask(bridge, "make", "elsewhere", "medium")
    assert calls(browsers[0].wait(3)) == ["high", "critical", "elsewhere"]
    assert calls(browsers[1].wait(4)) == ["medium", "high", "critical", "elsewhere"]
    assert browsers[0].read()[-1]["session_id"] == last


def test_quiet_hours(clock: ClockBridge, browser: Browser) -> None:
    """By the clock of the device's zone: what is held back comes when they end, also after a
    restart, if it still waits; news does not.
    """
    phone = clock.phone().ready()
    subscribe(phone, browser)
    quiet = {"from": at(clock, hours=-1), "to": at(clock, minutes=30), "zone": FAR}
    choose(phone, quiet=quiet)
    phone.close()
    decided = ask(clock, "make", "decided", "medium")
    ask(clock, "make", "held", "medium")
    finish(clock)
    ask(clock, "rm -r build", "high", "high")
    assert calls(browser.wait()) == ["high"]
    phone.ready()
    answer = {"session_id": decided, "tool_call_id": "decided", "decision": "approved"}
    phone.request("approval_response", answer)
    phone.close()
    clock.stop()
    clock.start()
    clock.set(29 * 60)
    finish(clock)
    ask(clock, "rm -r build", "high-2", "high")
    assert calls(browser.wait(2)) == ["high", "high-2"]
    clock.set(31 * 60)
    assert calls(browser.wait(3)) == ["high", "high-2", "held"]
    finish(clock)
    assert calls(browser.wait(4)) == ["high", "high-2", "held", "task_complete"]


@pytest.mark.parametrize(
    ("begins", "ends", "before", "after"),
    [
        # in Berlin 01:59 is followed by 03:00
        ("01:00", "02:30", "2027-03-28T00:59", "2027-03-28T01:00"),
        # and in October 02:59 by 02:00: from 23:00 to 02:30 the clock shows 02:30 twice
        ("23:00", "02:30", "2027-10-31T01:29", "2027-10-31T01:30"),
    ],
    ids=["spring", "autumn"],
)
def test_the_night_when_clocks_change(
    clock: ClockBridge, browser: Browser, begins: str, ends: str, before: str, after: str
) -> None:
    phone = clock.phone().ready()
    subscribe(phone, browser)
    choose(phone, quiet={"from": begins, "to": ends, "zone": "Europe/Berlin"})
    phone.close()
    clock.set(seconds_until(before))
    ask(clock, "make", "held", "medium")
    ask(clock, "rm -r build", "high", "high")
    assert calls(browser.wait()) == ["high"]
    clock.set(seconds_until(after))
    assert calls(browser.wait(2)) == ["high", "held"]


def seconds_until(text: str) -> float:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()


def test_reminders(service: PushService, tmp_path: Path) -> None:
    """Three at most, also to a device that has acknowledged it; a clock that jumps, forward or
    back, makes no more of them.
    """
    with ClockBridge(tmp_path, **service.settings, **QUICK) as clock:
        browser, other = service.browser(), service.browser()
        with clock.phones(2) as (phone, second):
            subscribe(second, other)
            subscribe(phone, browser, detail="full")
            choose(phone, reminder_minutes=10)
            session_id = ask(clock, "make", "first", "medium")
            phone.ack(phone.expect("notification", session_id=session_id))
        for minutes in (11, 21, 31):
            clock.set(minutes * 60)
            browser.wait(minutes // 10)
        told = ["first", "first", "first"]
        assert calls(browser.read()) == told
        assert browser.read()[0]["title"] == "Still waiting: Bash asks at the machine"
        assert all(one["reminder"] for one in browser.read())
        for minutes in (15, 35, 24 * 60):
            clock.set(minutes * 60)
            ask(clock, "make", f"at-{minutes}", "medium")
            told.append(f"at-{minutes}")
            assert calls(browser.wait(len(told))) == told
        clock.set(72 * 3600)  # the reminders of an older call come first
        told += ["at-15", "at-35", "at-1440"]
        assert calls(browser.wait(len(told))) == told
        assert calls(other.read()) == ["first", "at-15", "at-35", "at-1440"], "none were chosen"
