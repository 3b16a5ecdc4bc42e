"""Processes and commands of agents (D35, D40). What a command leaves behind:
tests/attack/test_processes.py; how it ends: tests/conformance/test_tool_limits.py.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.config import PROJECT_DIR, conf
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import describe_call
from sessions_app.agents.events import ToolFailed, ToolSucceeded, TurnEnded
from sessions_app.agents.process import groups, shell
from sessions_app.agents.process.groups import Groups
from tests.agents.drive import APPROVED, Drive, carrying, eventually, only, within


def family(n: str) -> str:
    """One that runs, one in its group, one of a session of its own, one whose parent has gone."""
    return f"sleep 1{n} & setsid sleep 2{n} & (setsid sleep 3{n} &) ; exec sleep 4{n}"


@pytest.fixture
def number() -> str:
    return f"{uuid.uuid4().int % 10**9:09d}"


def sleeping(number: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.status() != psutil.STATUS_ZOMBIE
                and os.path.basename(process.cmdline()[0]) == "sleep"
                and number in process.cmdline()[-1]
            ):
                found.append(process.pid)
        except (psutil.Error, IndexError):
            continue
    return found


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
    assert (group.returncode, await group.stderr.readline()) == (
        127,
        b"agent-of-mine: No such file or directory\n",
    )
    await groups.end_group(group)


BRIDGE = """
import asyncio, os, sys
from pathlib import Path
from sessions_app.agents.process import groups as processes
async def main():
    processes.reap(sys.argv[1])
    await processes.start(["sh", "-c", sys.argv[2]], Path("/"))
    print("started", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


def start_bridge(instance: str, script: str, data: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", BRIDGE, instance, script]
    bridge = subprocess.Popen(
        command,
        cwd=PROJECT_DIR,
        stdout=subprocess.PIPE,
        env={**os.environ, "BRIDGE_DATA_DIR": str(data)},
    )
    assert bridge.stdout is not None
    assert bridge.stdout.readline() == b"started\n"
    return bridge


def launchers(group: groups.Group) -> list[psutil.Process]:
    """The first of its two, and its guard."""
    guard = psutil.Process(group.pid).parent()
    assert guard is not None
    first = guard.parent()
    assert first is not None and first.pid == group.process.pid
    return [first, guard]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is only the guard")
@pytest.mark.parametrize("which", [0, 1], ids=["first", "guard"])
async def test_a_launcher_that_is_killed_leaves_nothing(
    tmp_path: Path, number: str, which: int
) -> None:
    """Either of its two processes ends what the other leaves, also what has no mark."""
    group = await groups.start(
        ["sh", "-c", f"(setsid env -i sleep 5{number} &); {family(number)}"], tmp_path
    )
    await eventually(lambda: len(sleeping(number)) == 5)
    both = launchers(group)
    both[which].kill()
    await eventually(lambda: sleeping(number) == [])
    await eventually(
        lambda: all(one.status() == psutil.STATUS_ZOMBIE for one in both if one.is_running())
    )
    await within(group.exited.wait())
    assert group.returncode == -signal.SIGKILL
    await within(groups.end_group(group))


async def test_what_survived_the_bridge_is_reaped_at_the_next_start(
    tmp_path: Path, number: str
) -> None:
    """D35: when the bridge and its launchers are killed at once; and nothing else is."""
    mine, another = uuid.uuid4().hex, uuid.uuid4().hex
    bridge = start_bridge(mine, family(number), tmp_path)
    other = await groups.start(["sleep", f"9{number}"], tmp_path, more={"X": another})
    await eventually(lambda: len(sleeping(number)) == 5)
    theirs = [
        process
        for process in psutil.Process(bridge.pid).children(recursive=True)
        if str(groups.GUARD) in process.cmdline()
    ]
    assert len(theirs) == 2
    for process in theirs:
        process.suspend()
    bridge.kill()
    for process in theirs:
        process.kill()
    bridge.wait()
    psutil.wait_procs(theirs, 10)
    survived = len(sleeping(number)) - 1
    assert survived >= 3
    try:
        await asyncio.to_thread(groups.reap, another)
        assert len(sleeping(number)) == survived + 1
        await asyncio.to_thread(groups.reap, mine)
        assert sleeping(number) == [other.pid]
    finally:
        await groups.end_group(other)


async def test_what_it_leaves_in_the_background_holds_nobody_up_and_goes_on(tmp_path: Path) -> None:
    """Its output is read on, or it would stand still when the pipe is full."""
    mark, made, groups = uuid.uuid4().hex, tmp_path / "made", Groups()
    background = (
        f"until test -e {tmp_path}/go; do sleep 0.02; done; head -c 1000000 /dev/zero; touch "
        f"{made}; sleep 100; : {mark}"
    )
    ran = await within(
        shell.run(
            describe_call("c1", "Bash", {}), f"sh -c '{background}' & echo over", tmp_path, groups
        )
    )
    assert isinstance(ran, ToolSucceeded) and ran.content == "over\n"
    (tmp_path / "go").touch()
    await eventually(made.exists)
    assert carrying(mark)
    await within(groups.end())
    assert carrying(mark) == []


@pytest.fixture
async def drive(tmp_path: Path) -> AsyncIterator[Drive]:
    """A session of the demo agent."""
    found = await Drive(DemoDriver()).start(tmp_path)
    yield found
    await found.close()


@pytest.fixture
def with_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conf.__dict__, "bridge_demo_shell", True)


async def test_output_is_bounded_and_says_so(drive: Drive, with_shell: None) -> None:
    size = limits.TOOL_OUTPUT_BYTES + 5000
    command = f"head -c {size} /dev/zero | tr '\\0' x; echo end >&2; exit 1"
    ran = await drive.turn(f"/tool Bash {json.dumps({'command': command})}", APPROVED)
    said = only(ToolFailed, ran).failure.details
    assert said.stdout and len(said.stdout) < limits.TOOL_OUTPUT_BYTES + 100
    assert said.stdout.endswith(f"[cut: {size} bytes in all]")
    assert said.stderr == "end\n"


async def test_without_a_shell_nothing_is_run_and_it_says_so(drive: Drive, tmp_path: Path) -> None:
    said = await drive.turn('/tool Bash {"command": "touch made"}', APPROVED)
    assert "nothing was run" in only(ToolSucceeded, said).content
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("command", ["echo a\\u0000b", "echo \\ud800"])
async def test_what_no_command_can_hold_ends_the_turn(
    drive: Drive, with_shell: None, command: str
) -> None:
    """D40: a turn ends whatever it is about; else nothing more could be said in the session."""
    said = await drive.turn(f'/tool Bash {{"command": "{command}"}}', APPROVED)
    assert only(TurnEnded, said).finish_reason == "stop"
