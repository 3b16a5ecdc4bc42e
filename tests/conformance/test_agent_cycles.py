"""Sessions that begin and end, over and over: memory, file handles and processes are where they were (issue, Shown by)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.agent_tools import Script, children, figure, quick_bridge
from tests.conformance.agents import ask, begin, end, words
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone

CYCLES = int(os.environ.get("TEST_AGENT_CYCLES", "40"))  # the goal is 1000: TEST_AGENT_CYCLES=1000
FIRST = max(20, CYCLES // 10)  # before the first look: what is made once has been made
MB = 2**20
GROWTH = 8 * MB  # of the process between the two looks, whatever their distance: a leak of 10 KB a cycle shows in a thousand


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain", "exits")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    with quick_bridge(tmp_path_factory.mktemp("cycles"), script) as bridge:
        yield bridge


def files(bridge: Bridge) -> int:
    assert bridge.process is not None
    return len(os.listdir(f"/proc/{bridge.process.pid}/fd"))


def threads(bridge: Bridge) -> int:
    assert bridge.process is not None
    return len(list(Path(f"/proc/{bridge.process.pid}/task").iterdir()))


def one_after_another(bridge: Bridge, phone: Phone, count: int, agent: str, turn: bool) -> None:
    for number in range(count):
        sid = begin(bridge, phone, agent=agent)
        if turn:
            assert words(ask(phone, sid, f"turn {number}"))
        assert end(phone, sid)["type"] == "session_end"
        phone.messages.clear()
        phone.untaken.clear()
        if number % 20 == 19:
            phone.ping()


@pytest.mark.timeout(600)
def test_sessions_of_demo(quick: Bridge) -> None:
    """Issue, Shown by: start and end cycles of `demo`, every tenth with a turn: memory, file handles, threads and processes are where they were."""
    with quick.phones(1) as (phone,):
        assert quick.process is not None
        for _ in range(FIRST // 10):
            one_after_another(quick, phone, 9, "demo", False)
            one_after_another(quick, phone, 1, "demo", True)
        before, memory = (files(quick), threads(quick), children(quick.process.pid)), quick.memory()
        for _ in range(CYCLES // 10):
            one_after_another(quick, phone, 9, "demo", False)
            one_after_another(quick, phone, 1, "demo", True)
        eventually(lambda: files(quick) <= before[0])
        grown = quick.memory() - memory
        figure(f"{CYCLES} cycles of demo: {grown / 1024:.0f} KB more, {files(quick)} file handles ({before[0]}), {threads(quick)} threads ({before[1]})")
        assert threads(quick) <= before[1] and children(quick.process.pid) == before[2] == []
        assert grown < GROWTH
        listed = quick.get("/api/v1/health", quick.admin_token).json()
        assert listed["active_sessions"] == 0


def test_sessions_with_processes(quick: Bridge, script: Script) -> None:
    """The same with an agent that is a process, and with one that does not start: no process, zombie or pipe is left."""
    assert quick.process is not None
    pid = quick.process.pid
    with quick.phones(1) as (phone,):
        one_after_another(quick, phone, 2, "plain", True)
        script.assert_gone()
        before = files(quick)
        one_after_another(quick, phone, 10, "plain", True)
        for _ in range(3):
            body = {"agent": "exits", "session_id": None, "working_directory": str(quick.root), "resume": False}
            assert phone.request("session_start", body)["payload"]["code"] == "AGENT_ERROR"
        script.assert_gone()
        eventually(lambda: files(quick) <= before and not children(pid))
