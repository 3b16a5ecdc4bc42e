"""Processes and commands of agents (D35, D40). What a command leaves behind:
tests/attack/test_processes.py; how it ends: tests/conformance/test_tool_limits.py.
"""

import asyncio
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridge_project.kernel import limits, ways
from sessions_app.agents.process import groups
from sessions_app.agents.process.launch import AGENT_OF
from tests.agents.drive import carrying, sleeping, within
from tests.conformance.agents import begin, end, tool
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.faults.quick import bridge_of_module
from tests.portable import LINUX_WAYS
from tests.servers import wait_until

bridge = bridge_of_module(BRIDGE_DEMO_SHELL="1")


@pytest.fixture
def session(bridge: Bridge, phone: Phone) -> Iterator[str]:
    """A session of the demo agent, which the phone ends."""
    session_id = begin(bridge, phone)
    yield session_id
    phone.ready().join(session_id)
    end(phone, session_id)


def run(phone: Phone, session_id: str, command: str) -> None:
    call_id = tool(phone, session_id, command=command)["tool_call_id"]
    decide(phone, session_id, call_id, "approved")


def finish(phone: Phone, session_id: str) -> dict[str, Any]:
    """Wait for the end of the turn; the result of its command."""
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    return dict(phone.expect("tool_result", session_id=session_id)["payload"]["result"])


def family(n: str) -> str:
    """One that runs, one in its group, one of a session of its own, one whose parent has gone."""
    return f"sleep 1{n} & setsid sleep 2{n} & (setsid sleep 3{n} &) ; exec sleep 4{n}"


@pytest.fixture
def number() -> str:
    return f"{uuid.uuid4().int % 10**9:09d}"


def launchers(bridge: Bridge) -> list[psutil.Process]:
    """Of the one command that the bridge runs: its guard, behind which Linux has a first one."""
    below = psutil.Process(bridge.running.pid).children(recursive=True)
    both = [one for one in below if str(groups.GUARD) in one.cmdline()]
    assert len(both) == 1 + LINUX_WAYS
    return sorted(both, key=lambda one: one.ppid() in {other.pid for other in both})


async def test_a_repository_brings_no_program_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PATH with `.` in it would run what lies in the session's directory."""
    (tmp_path / "agent-of-mine").write_text("#!/bin/sh\n")
    (tmp_path / "agent-of-mine").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    group = await groups.start(["agent-of-mine"], tmp_path)
    await within(group.exited.wait())
    assert group.returncode == 127
    assert await group.stderr.readline() == b"agent-of-mine: No such file or directory\n"
    await groups.end_group(group)


async def test_the_portable_guard_ends_groups_whose_parent_has_gone(
    tmp_path: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D77: also without the mark, by which the bridge sweeps; the command itself is asked first."""
    monkeypatch.setitem(ways.linux, "agents", False)
    gone = f"setsid sh -c 'env -i sleep 6{number} & sleep 2.5'"
    group = await groups.start(["sh", "-c", f"{gone}; exec sleep 7{number}"], tmp_path)
    await asyncio.to_thread(wait_until, lambda: len(sleeping(number)) == 2)
    await groups.end_background(group)
    assert [psutil.Process(pid).cmdline()[1][0] for pid in sleeping(number)] == ["7"]
    await groups.end_group(group)
    assert sleeping(number) == [] and group.returncode == -signal.SIGTERM


@pytest.mark.skipif(not LINUX_WAYS, reason="elsewhere there is only the guard")
@pytest.mark.parametrize("which", [0, 1], ids=["first", "guard"])
def test_a_launcher_that_is_killed_leaves_nothing(
    bridge: Bridge, phone: Phone, session: str, number: str, which: int
) -> None:
    """Either of its two processes ends what the other leaves, also what has no mark."""
    run(phone, session, f"(setsid env -i sleep 5{number} &); {family(number)}")
    wait_until(lambda: len(sleeping(number)) == 5)
    both = launchers(bridge)
    both[which].kill()
    wait_until(lambda: not sleeping(number) and not any(one.is_running() for one in both))
    assert finish(phone, session)["success"] is False


def test_what_survived_the_bridge_is_ended_at_the_next_start(
    bridge: Bridge, phone: Phone, session: str, number: str
) -> None:
    """D35: when the bridge and its launchers are killed at once; and nothing else is."""
    run(phone, session, family(number))
    wait_until(lambda: len(sleeping(number)) == 4)
    both = launchers(bridge)
    for process in both:
        process.suspend()
    bridge.kill_all()
    for process in both:
        process.kill()
    psutil.wait_procs(both, 10)
    assert len(sleeping(number)) >= 3
    marked = os.environ | {AGENT_OF: "another bridge"}
    with subprocess.Popen(["sleep", f"9{number}"], env=marked) as other:
        bridge.start()
        wait_until(lambda: sleeping(number) == [other.pid])
        other.kill()


def test_what_it_leaves_in_the_background_holds_nobody_up_and_goes_on(
    phone: Phone, session: str, tmp_path: Path
) -> None:
    """Its output is read on, or it would stand still when the pipe is full."""
    mark, made = uuid.uuid4().hex, tmp_path / "made"
    waits = f"until test -e {tmp_path}/go; do sleep 0.02; done"
    floods = f"head -c 1000000 /dev/zero; touch {made}; sleep 100; : {mark}"
    run(phone, session, f"sh -c '{waits}; {floods}' & echo over")
    assert finish(phone, session)["content"] == "over\n"
    (tmp_path / "go").touch()
    wait_until(made.exists)
    assert carrying(mark)


def test_output_is_bounded_and_says_so(phone: Phone, session: str) -> None:
    size = limits.TOOL_OUTPUT_BYTES + 5000
    run(phone, session, f"head -c {size} /dev/zero | tr '\\0' x; echo end >&2; exit 1")
    failed = phone.expect("tool_error", session_id=session)["payload"]["details"]
    assert len(failed["stdout"]) < limits.TOOL_OUTPUT_BYTES + 100
    assert failed["stdout"].endswith(f"[cut: {size} bytes in all]") and failed["stderr"] == "end\n"


@pytest.mark.parametrize("command", ["echo a\x00b", "echo \ud800"])
def test_what_no_command_can_hold_ends_the_turn(phone: Phone, session: str, command: str) -> None:
    """D40: a turn ends whatever it is about; else nothing more could be said in the session."""
    run(phone, session, command)
    finish(phone, session)
