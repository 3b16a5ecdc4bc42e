"""Sessions that begin and end, over and over, leave nothing behind (issue, Shown by)."""

import os

import psutil
import pytest

from tests.conformance.agent_tools import Script, bridge_of, figure, script_of
from tests.conformance.agents import ask, begin, end, start, words
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.http.test_metrics import scrape
from tests.servers import wait_until

# the goal is 1000, which `make soak` runs
CYCLES = int(os.environ.get("TEST_AGENT_CYCLES", "20"))
# agent → how many of its sessions, and each how manyth has a turn
AGENTS = {"demo": (CYCLES, 10), "plain": (max(8, CYCLES // 10), 1)}
# of the process at most, in the second half of the cycles; measured in a thousand: 0.6 and 0.9 MB,
# part of it SQLite's pages at hand
GROWTH = 2 * 2**20
# The newest rows are kept at hand, up to 4 MB of them: so few here that they are as many before the
# first look as at the last.
FEW_ROWS = "from sessions_app.log import tail; tail.TAIL_ROWS = 40\n"

script, bridge = script_of("plain", "exits"), bridge_of(first=FEW_ROWS)


def files(bridge: Bridge) -> int:
    """As the bridge counts them: a thread opens the database once, so a few for all are no leak."""
    return int(scrape(bridge)[("process_open_fds",)])


def process(bridge: Bridge) -> psutil.Process:
    return psutil.Process(bridge.running.pid)


def is_alone(bridge: Bridge) -> bool:
    """Whether it has no process but the one that forks hosts; nobody has waited for a zombie."""
    return len(process(bridge).children(recursive=True)) <= 1


def one_after_another(bridge: Bridge, phone: Phone, agent: str, count: int, every: int) -> None:
    """Sessions, each `every`th with a turn; the phone acknowledges, and reconnects now and then."""
    ids: list[str] = []
    for number in range(count):
        sid = begin(bridge, phone, agent=agent)
        if number % every == 0:
            assert words(ask(phone, sid, f"turn {number}"))
        assert end(phone, sid)["type"] == "session_end"
        ids += [message["id"] for message in phone.messages if "id" in message]
        phone.forget()
        if number % 20 == 19 or number == count - 1:
            phone.ack(*ids)
            ids.clear()
            phone.again()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("agent", AGENTS)
def test_sessions_leave_nothing(bridge: Bridge, script: Script, agent: str) -> None:
    """No memory, handle, thread or zombie, of the bridge or of what it has started."""
    count, every = AGENTS[agent]
    with bridge.phones(1) as (phone,):
        one_after_another(bridge, phone, agent, max(10, CYCLES // 10), every)
        wait_until(lambda: is_alone(bridge))
        handles, threads, looks = files(bridge), process(bridge).num_threads(), [bridge.memory()]
        for _ in range(2):
            one_after_another(bridge, phone, agent, count // 2, every)
            looks.append(bridge.memory())
        script.assert_gone()
        wait_until(lambda: files(bridge) < handles + count // 2 and is_alone(bridge))
        grown = looks[1] - looks[0], looks[2] - looks[1]
        figure(f"{count} cycles of {agent}: {grown} bytes more in the first and the second half")
        assert grown[1] < GROWTH, grown
        assert process(bridge).num_threads() < threads + count // 2
        assert bridge.health()["active_sessions"] == 0


def test_agents_that_do_not_start_leave_nothing(bridge: Bridge, script: Script) -> None:
    before = files(bridge)
    with bridge.phones(1) as (phone,):
        for _ in range(3):
            assert start(phone, bridge.root, agent="exits")["payload"]["code"] == "AGENT_ERROR"
    script.assert_gone()
    wait_until(lambda: files(bridge) <= before and is_alone(bridge))
