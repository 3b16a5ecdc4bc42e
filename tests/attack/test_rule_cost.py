"""Calls that are made to take long to judge, against rules and all others on the disk (D68)."""

import time

import pytest

from tests.conformance.agents import begin, tool
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.test_files_http import ask
from tests.faults.quick import bridge_of_module

pytestmark = pytest.mark.slow

bridge = bridge_of_module(BRIDGE_MAX_WEBSOCKETS="100")
FILES = 15_000


def test_commands_that_name_large_directories_again_and_again(bridge: Bridge, phone: Phone) -> None:
    """What they name is looked at once, and the files of others are read meanwhile."""
    large = bridge.root / "large"
    for number in range(FILES):
        path = large / str(number // 100) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    sessions = [begin(bridge, phone) for _ in range(3)]
    for command in ("grep -r x " + ". " * 1500, "diff -r " + "large large/ " * 100):
        for session in sessions:
            call = tool(phone, session, command=command)
            decide(phone, session, call["tool_call_id"], "rejected")
        for _ in range(12):
            began = time.monotonic()
            assert ask(bridge, "tree", bridge.root, depth=1).status == 200
            assert time.monotonic() - began < 5
            time.sleep(0.5)
