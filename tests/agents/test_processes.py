"""Processes of agents, with real ones: groups that end whole, die with the bridge, and are found
again when they did not (D35, D40).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from bridge_project.kernel.config import PROJECT_DIR
from sessions_app.agents.process import groups
from sessions_app.agents.process.launch import AGENT_OF
from tests.agents.drive import eventually, within

# One that runs, one in its group, one in a session of its own, and one there whose parent has gone.
FAMILY = "sleep 1{n} & setsid sleep 2{n} & (setsid sleep 3{n} &) ; exec sleep 4{n}"


@pytest.fixture
def number() -> str:
    """Makes the sleeps of one test different from all others."""
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


def family(number: str) -> str:
    return FAMILY.format(n=number)


async def test_a_group_whose_leader_has_gone_ends_too(tmp_path: Path, number: str) -> None:
    group = await groups.start(
        ["sh", "-c", f"setsid sleep 5{number} & sleep 6{number} & exit 3"], tmp_path
    )
    await within(group.exited.wait())
    assert group.returncode == 3
    await eventually(lambda: len(sleeping(number)) == 2)
    await within(groups.end_group(group))
    assert sleeping(number) == []


async def test_what_does_not_want_to_end_is_made_to(tmp_path: Path, number: str) -> None:
    script = f"trap '' TERM; echo ready; sleep 7{number}; sleep 8{number}"
    group = await groups.start(["sh", "-c", script], tmp_path)
    await within(group.stdout.readline())
    await within(groups.end_group(group, patience=0.3))
    assert group.returncode == -signal.SIGKILL
    assert sleeping(number) == []


async def test_it_is_asked_first(tmp_path: Path) -> None:
    group = await groups.start(
        ["sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"],
        tmp_path,
    )
    assert await within(group.stdout.readline()) == b"ready\n"
    await within(groups.end_group(group))
    assert group.returncode == 0
    assert await within(group.stdout.read()) == b"bye\n"


async def test_ending_leaves_everybody_else_alone(tmp_path: Path, number: str) -> None:
    """Only what carries the run's mark is ended: not another agent, not a process with another
    bridge's mark.
    """
    other = await groups.start(["sleep", f"9{number}"], tmp_path)
    stranger = subprocess.Popen(
        ["sleep", f"5{number}"], env={**os.environ, AGENT_OF: "another bridge"}
    )
    group = await groups.start(["sh", "-c", family(number)], tmp_path)
    await eventually(lambda: len(sleeping(number)) == 6)
    try:
        await within(groups.end_group(group))
        assert sorted(sleeping(number)) == sorted([other.pid, stranger.pid])
    finally:
        stranger.kill()
        stranger.wait()
        await groups.end_group(other)


async def test_a_process_is_the_leader_of_a_session_with_the_usual_signals_and_umask(
    tmp_path: Path,
) -> None:
    script = "import os, signal; print(os.getsid(0) == os.getpgrp() == os.getpid(), signal.getsignal(signal.SIGTERM), oct(os.umask(0)), os.getcwd())"
    group = await groups.start([sys.executable, "-c", script], tmp_path)
    said = (await within(group.stdout.read())).decode()
    await groups.end_group(group)
    assert said == f"True {signal.Handlers.SIG_DFL} 0o22 {tmp_path}\n"


async def test_a_broken_pipe_ends_a_program_as_usual(tmp_path: Path) -> None:
    """The launcher's Python ignores SIGPIPE; what it becomes must not."""
    group = await groups.start(
        ["sh", "-c", "(sleep 0.2; yes; echo $? >&2) | true; yes | head -c1 >/dev/null; echo over"],
        tmp_path,
    )
    out, err = await within(asyncio.gather(group.stdout.read(), group.stderr.read()))
    await groups.end_group(group)
    assert out == b"over\n"
    assert b"141" in err


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        ("no-such-program-here", FileNotFoundError, "is not installed"),
        ("./plain", PermissionError, "is not executable"),
        ("./none", FileNotFoundError, "is not installed"),
    ],
)
async def test_a_program_that_cannot_be_started_is_said(
    tmp_path: Path, program: str, error: type[OSError], words: str
) -> None:
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(error, match=words):
        await groups.start([program], tmp_path)


async def test_a_repository_brings_no_program_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PATH with `.` in it would run what lies in the session's directory."""
    (tmp_path / "agent-of-mine").write_text("#!/bin/sh\n")
    (tmp_path / "agent-of-mine").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    with pytest.raises(FileNotFoundError):
        await groups.start(["agent-of-mine"], tmp_path)


async def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no directory"):
        await groups.start(["true"], tmp_path / "gone")


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
    await eventually(
        lambda: (
            sleeping(number) == []
            and not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in both)
        )
    )
    await within(group.exited.wait())
    assert group.returncode == -signal.SIGKILL
    await within(groups.end_group(group))


async def test_what_survived_the_bridge_is_reaped_at_the_next_start(
    tmp_path: Path, number: str
) -> None:
    """D35: what outlives the bridge and its launchers, all killed at once, is ended by the next
    start, and only that.
    """
    mine, another = uuid.uuid4().hex, uuid.uuid4().hex
    bridge = start_bridge(mine, family(number), tmp_path)
    other = await groups.start(["sleep", f"9{number}"], tmp_path, more={"X": another})
    await eventually(lambda: len(sleeping(number)) == 5)
    theirs = [
        process
        for process in psutil.Process(bridge.pid).children(recursive=True)
        if str(groups.LAUNCHER) in process.cmdline()
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
        assert await asyncio.to_thread(groups.reap, another) == 0
        assert await asyncio.to_thread(groups.reap, mine) == survived
        assert sleeping(number) == [other.pid]
        assert await asyncio.to_thread(groups.reap, mine) == 0
    finally:
        await groups.end_group(other)


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="elsewhere only the bridge's own children can be told from others",
)
async def test_what_a_command_leaves_is_ended_and_its_own_children_are_not(
    tmp_path: Path, number: str
) -> None:
    """An agent's helpers are its children, wherever they moved; what a command of it left in the
    background is nobody's.
    """
    group = await groups.start(["sh", "-c", family(number)], tmp_path)
    await eventually(lambda: len(sleeping(number)) == 4)
    await within(groups.end_background(group))
    assert len(sleeping(number)) == 3 and not group.exited.is_set()
    await within(groups.end_background(group))
    await within(groups.end_group(group))
    await within(groups.end_background(group))
    assert sleeping(number) == []


async def test_a_bridge_that_an_agent_started_does_not_end_itself(tmp_path: Path) -> None:
    """The mark is inherited: a bridge run inside an agent of the same data directory carries it,
    and so does the agent above it.
    """
    mine = uuid.uuid4().hex
    script = f"from sessions_app.agents.process import groups as processes; print(processes.reap({mine!r}), flush=True)"
    marked = {**os.environ, AGENT_OF: mine, "BRIDGE_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; echo still here', sys.executable, script],
        cwd=PROJECT_DIR,
        env=marked,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0\nstill here\n", done.stderr


async def test_a_launcher_whose_bridge_has_gone_runs_nothing(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"4\nit\0it\0touch\0%s\0" % os.fsencode(tmp_path / "ran"))
    ours.close()
    command = [sys.executable, "-I", "-S", str(groups.LAUNCHER), str(theirs.fileno())]
    with theirs:
        assert (
            subprocess.run(command, start_new_session=True, pass_fds=[theirs.fileno()]).returncode
            == 0
        )
    assert not (tmp_path / "ran").exists()
