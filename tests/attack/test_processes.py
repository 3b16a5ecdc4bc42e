"""A command that was approved tries to outlive its turn, its session and the bridge (D79)."""

import json
import random

import pytest

from tests.agents.drive import sleeping
from tests.conformance.agent_tools import bridge_of, script_of
from tests.conformance.agents import ask, asked, begin, end, say, words
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.portable import LINUX_WAYS
from tests.servers import wait_until

pytestmark = pytest.mark.skipif(
    not LINUX_WAYS, reason="elsewhere what left its group at once is found by its environment only"
)

# how a command is run (by `demo`, by an agent itself) → by which agent
WAYS = {"demo": "demo", "run": "plain"}
LONG = {"demo": "/sleep 1000", "run": "/rate a 100000 20"}
# Each leaves two processes: the issue's, and one below a shell that closes everything and ignores
# what it can.
DEAF = "trap '' TERM HUP INT; exec 0<&- 1>&- 2>&-; (exec env -i setsid sh -c 'sleep {n}; :') &"
COMMAND = (
    "(setsid sh -c 'exec env -i nohup sleep {n}' >/dev/null 2>&1 &); (setsid sh -c \""
    + DEAF
    + '" &)'
)

script, bridge = script_of("plain"), bridge_of(BRIDGE_DEMO_SHELL="1")


class Left:
    """What a command has left running in a session: `sleep NUMBER`, with a number of its own."""

    def __init__(self, bridge: Bridge, phone: Phone, way: str) -> None:
        self.phone, self.way = phone, way
        self.number = str(random.SystemRandom().randrange(10**8, 10**9))
        self.session = begin(bridge, phone, agent=WAYS[way])
        self.command = COMMAND.replace("{n}", self.number)
        self.run(self.command)
        self.finish()
        wait_until(lambda: len(self.processes()) == 2)

    def run(self, command: str) -> None:
        """Have the agent run a command, and approve it."""
        bash = f"/tool Bash {json.dumps({'command': command})}"
        prompt = bash if self.way == "demo" else f"/{self.way} {command}"
        decide(self.phone, self.session, asked(self.phone, self.session, prompt), "approved")

    def finish(self) -> None:
        self.phone.expect("stream_end", session_id=self.session, finish_reason="stop")

    def processes(self) -> list[int]:
        return sleeping(self.number)

    def assert_goes_on(self) -> None:
        assert words(ask(self.phone, self.session, "and now?")), "the agent answers"
        assert len(self.processes()) == 2

    def assert_ended(self) -> None:
        wait_until(lambda: not self.processes())


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_ends_it_and_the_end_of_a_turn_does_not(
    bridge: Bridge, phone: Phone, way: str
) -> None:
    left = Left(bridge, phone, way)
    left.assert_goes_on()
    say(phone, left.session, LONG[way])
    phone.expect("stream_chunk", session_id=left.session)
    phone.send("session_interrupt", {"session_id": left.session})
    left.finish()
    left.assert_ended()
    assert words(ask(phone, left.session, "still there?")), "the agent itself goes on"
    end(phone, left.session)


def test_an_interrupt_between_two_turns_ends_it(bridge: Bridge, phone: Phone) -> None:
    left = Left(bridge, phone, "run")
    phone.send("session_interrupt", {"session_id": left.session})
    left.assert_ended()
    left.run(left.command)
    left.finish()
    wait_until(lambda: len(left.processes()) == 2)
    left.assert_goes_on()
    end(phone, left.session)
    left.assert_ended()


def test_an_interrupt_ends_a_command_with_what_it_has_just_left(
    bridge: Bridge, phone: Phone
) -> None:
    left = Left(bridge, phone, "demo")
    left.run(f"{left.command}; sleep {left.number}")
    wait_until(lambda: len(left.processes()) == 5)
    phone.send("session_interrupt", {"session_id": left.session})
    left.finish()
    left.assert_ended()
    end(phone, left.session)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_end_of_the_bridge_ends_it(bridge: Bridge, phone: Phone, how: str) -> None:
    """By SIGTERM and by SIGKILL; nothing has to be started again for it."""
    all_left = [Left(bridge, phone, way) for way in WAYS]
    bridge.hang_up()
    bridge.stop() if how == "stop" else bridge.kill_all()
    for left in all_left:
        left.assert_ended()
    bridge.start()
