"""A push service, and a bridge that may send to it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.approvals import pre
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_session, now
from tests.faults.quick import QuickBridge
from tests.push.service import Browser, PushService, running
from tests.short import SHORT, short

HASTY = short("PUSH_RETRY_SECONDS", "PUSH_PROOF_SECONDS")
RETRY_SECONDS = SHORT["PUSH_RETRY_SECONDS"]  # before the second try
PROOF_SECONDS = SHORT["PUSH_PROOF_SECONDS"]  # for a socket to show that it has a message


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushService]:
    with running(tmp_path_factory.mktemp("service")) as made:
        yield made


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, service: PushService) -> Iterator[Bridge]:
    settings = {"BRIDGE_MAX_WEBSOCKETS": "100"} | service.settings
    with QuickBridge(tmp_path_factory.mktemp("bridge"), **settings, **HASTY) as made:
        yield made


@pytest.fixture
def browser(service: PushService) -> Browser:
    return service.browser()


def subscribe(phone: Phone, browser: Browser, **more: str) -> Message:
    answer = phone.request("push_subscribe", {"subscription": browser.subscription} | more)
    assert answer["type"] == "push_state", answer
    return answer


def ask(
    bridge: Bridge,
    command: str = "rm -r build",
    call: str = "call-1",
    risk: str = "high",
    session_id: str = "",
) -> str:
    """Let an agent ask for a command by its hooks; return its session."""
    session_id = session_id or new_session()
    asked = pre(session_id, {"command": command}, approval=True, risk=risk, tool_use_id=call)
    bridge.accept(asked | moment(bridge))
    return session_id


def moment(bridge: Bridge) -> dict[str, str]:
    """The timestamp of a hook event, by a clock that may have been set."""
    return {"timestamp": now(getattr(bridge, "ahead", 0))}


def choose(phone: Phone, **choices: Any) -> Message:
    answer = phone.request("notify_set", choices)
    assert answer["type"] == "notify_state", answer
    return dict(answer["payload"])


def finish(bridge: Bridge, message: str = "All is done", session_id: str = "") -> str:
    session_id = session_id or new_session()
    done = {"reason": "task_completed", "message": message}
    bridge.accept(hook("Stop", session_id, done, **moment(bridge)))
    return session_id
