"""Commands that the bridge runs for an agent: what they read and leave, bounded output. How they end,
and when they take too long: tests/conformance/test_tool_limits.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import Output
from sessions_app.agents.driver import make_call
from sessions_app.agents.events import ToolFailed, ToolSucceeded
from sessions_app.agents.process import shell
from sessions_app.agents.process.groups import Groups
from sessions_app.approvals.tool_result import Failure
from tests.agents.drive import carrying, eventually, within

CALL = make_call("c1", "Bash", {})


async def run(command: str, directory: Path) -> ToolSucceeded | ToolFailed:
    """As a session does that ends then."""
    groups = Groups()
    try:
        return await shell.run(CALL, command, directory, groups)
    finally:
        await groups.end()


async def failure(command: str, directory: Path) -> Failure:
    ran = await run(command, directory)
    assert isinstance(ran, ToolFailed)
    return ran.failure


async def test_standard_input_is_empty(tmp_path: Path) -> None:
    """And what no database holds is replaced."""
    ran = await within(run("cat; printf 'a\\000b'", tmp_path))
    assert isinstance(ran, ToolSucceeded) and ran.content == "a\ufffdb"


async def test_what_it_leaves_in_the_background_holds_nobody_up_and_goes_on(tmp_path: Path) -> None:
    """Its output is read on, or it would stand still when the pipe is full; what the command itself
    said is its result.
    """
    mark, made, groups = uuid.uuid4().hex, tmp_path / "made", Groups()
    background = f"until test -e {tmp_path}/go; do sleep 0.02; done; head -c 1000000 /dev/zero; touch {made}; sleep 100; : {mark}"
    ran = await within(shell.run(CALL, f"sh -c '{background}' & echo over", tmp_path, groups))
    assert isinstance(ran, ToolSucceeded) and ran.content == "over\n"
    (tmp_path / "go").touch()
    await eventually(made.exists)
    assert carrying(mark)
    await within(groups.end())
    assert carrying(mark) == []


async def test_output_is_bounded_and_says_so(tmp_path: Path) -> None:
    size = limits.TOOL_OUTPUT_BYTES + 5000
    command = f"head -c {size} /dev/zero | tr '\\0' x; echo end >&2; exit 1"
    said = (await within(failure(command, tmp_path))).details
    assert said.stdout and len(said.stdout) < limits.TOOL_OUTPUT_BYTES + 100
    assert said.stdout.endswith(f"[cut: {size} bytes in all]")
    assert said.stderr == "end\n"


async def test_a_tail_keeps_the_end_and_whole_characters() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data("aä".encode() * 100)
    stream.feed_eof()
    output = Output(10, tail=True)
    await output.read(stream)
    assert (output.text, output.cut, output.total) == ("aäaäaä", True, 300)


@pytest.mark.parametrize(
    ("number", "retries"),
    [(errno.ENOENT, 0), (errno.EACCES, 0), (errno.ENOMEM, 1), (errno.ETIMEDOUT, 3), (5, 0)],
)
def test_errors_of_the_system_have_their_place_in_it(number: int, retries: int) -> None:
    assert shell.retries_of_error(OSError(number, os.strerror(number))) == retries


async def test_a_directory_that_has_gone_is_a_failure_in_words(tmp_path: Path) -> None:
    failed = await failure("true", tmp_path / "gone")
    assert failed.details.exit_code is None
    assert "could not be started" in failed.message and str(tmp_path / "gone") in failed.message
