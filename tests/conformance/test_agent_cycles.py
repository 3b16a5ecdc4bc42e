"""Sessions that begin and end, over and over: memory, file handles and processes are where they
were (issue, Shown by).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.agent_tools import Script, children, figure, served
from tests.conformance.agents import ask, begin, end, start, words
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge

# the goal is 1000, which `make soak` runs
CYCLES = int(os.environ.get("TEST_AGENT_CYCLES", "20"))
OF_PROCESSES = max(8, CYCLES // 10)
FIRST = max(10, CYCLES // 10)  # before the first look: what is made once has been made
MB = 2**20
# of the process at most, in the second half of the cycles; measured in a thousand: 0.6 and 0.9 MB,
# part of it SQLite's pages at hand
GROWTH = 2 * MB
TAIL_ROWS = 40


# The newest rows are kept at hand, up to 4 MB of them: so few here that they are as many before the
# first look as at the last.
class Forgetful(QuickBridge):
    """It serves as any other, but for how many rows it keeps at hand."""

    first = f"from sessions_app.log import tail; tail.TAIL_ROWS = {TAIL_ROWS}\n"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain", "exits")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    place = tmp_path_factory.mktemp("cycles")
    forgetful = Forgetful(place, BRIDGE_ACP_AGENTS=script.setting)
    with served(forgetful, script) as bridge:
        yield bridge


def files(bridge: Bridge) -> int:
    """As the bridge counts them: nobody else but root may look. A thread that has its first work
    opens the database, so one handle for each cycle is a leak, and three for all are none.
    """
    metrics = bridge.get("/metrics", bridge.admin_token).body.decode().splitlines()
    (line,) = [line for line in metrics if line.startswith("process_open_fds ")]
    return int(float(line.split()[1]))


def threads(bridge: Bridge) -> int:
    assert bridge.process is not None
    return len(list(Path(f"/proc/{bridge.process.pid}/task").iterdir()))


def one_after_another(bridge: Bridge, phone: Phone, count: int, agent: str, every: int) -> None:
    """Sessions of the agent, each `every`th with a turn. The phone acknowledges, and comes back now
    and then: a connection remembers what it has joined.
    """
    ids: list[str] = []
    for number in range(count):
        sid = begin(bridge, phone, agent=agent)
        if number % every == 0:
            assert words(ask(phone, sid, f"turn {number}"))
        assert end(phone, sid)["type"] == "session_end"
        ids += [message["id"] for message in phone.messages if "id" in message]
        phone.messages.clear()
        phone.untaken.clear()
        if number % 20 == 19 or number == count - 1:
            phone.ack(*ids)
            ids.clear()
            phone.close()
            phone.ready()


def in_halves(bridge: Bridge, half: Callable[[], None]) -> tuple[int, int]:
    """Bytes that the process grew by in the first half and in the second."""
    looks = [bridge.memory()]
    for _ in range(2):
        half()
        looks.append(bridge.memory())
    return looks[1] - looks[0], looks[2] - looks[1]


def said(what: str, grown: tuple[int, int]) -> None:
    figure(
        f"{what}: {grown[0] / 1024:.0f} KB more in the first half, {grown[1] / 1024:.0f} KB in the second"
    )


@pytest.mark.timeout(900)
def test_sessions_of_demo(quick: Bridge) -> None:
    """Issue, Shown by: start and end cycles of `demo`, every tenth with a turn: memory, file
    handles, threads and processes are where they were.
    """
    with quick.phones(1) as (phone,):
        assert quick.process is not None
        one_after_another(quick, phone, FIRST, "demo", 10)
        before = files(quick), threads(quick)
        grown = in_halves(quick, lambda: one_after_another(quick, phone, CYCLES // 2, "demo", 10))
        eventually(lambda: files(quick) < before[0] + CYCLES // 2)
        said(f"{CYCLES} cycles of demo", grown)
        figure(
            f"{files(quick)} file handles ({before[0]} before), {threads(quick)} threads ({before[1]} before)"
        )
        assert threads(quick) <= before[1] and children(quick.process.pid) == []
        assert grown[1] < GROWTH, grown
        assert quick.get("/api/v1/health", quick.admin_token).json()["active_sessions"] == 0


@pytest.mark.timeout(900)
def test_sessions_with_processes(quick: Bridge, script: Script) -> None:
    """The same with an agent that is a process: no process, zombie or pipe is left."""
    assert quick.process is not None
    pid, half = quick.process.pid, OF_PROCESSES // 2
    with quick.phones(1) as (phone,):
        one_after_another(quick, phone, 2, "plain", 1)
        eventually(lambda: not children(pid))
        before = files(quick)
        grown = in_halves(quick, lambda: one_after_another(quick, phone, half, "plain", 1))
        script.assert_gone()
        eventually(lambda: files(quick) < before + half and not children(pid))
        said(f"{OF_PROCESSES} cycles of an agent with a process", grown)
        assert grown[1] < GROWTH, grown


def test_agents_that_do_not_start(quick: Bridge, script: Script) -> None:
    """Nor of one that fails at its start."""
    assert quick.process is not None
    pid, before = quick.process.pid, files(quick)
    with quick.phones(1) as (phone,):
        for _ in range(3):
            assert start(phone, quick.root, agent="exits")["payload"]["code"] == "AGENT_ERROR"
    script.assert_gone()
    eventually(lambda: files(quick) <= before and not children(pid))
