"""Commands that the bridge runs for an agent: time limit, bounded output, the spec's retry table
(SPEC Limits, Tool retry policy).
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
from sessions_app.agents.process import shell
from sessions_app.agents.process.groups import Groups
from tests.agents.drive import carrying, eventually, within


async def run(command: str, directory: Path, **more: float) -> shell.Ran:
    """As a session does that ends then."""
    groups = Groups()
    try:
        return await shell.run(command, directory, groups, **more)
    finally:
        await groups.end()


async def test_a_command_says_what_it_prints_and_how_it_ends(tmp_path: Path) -> None:
    ran = await run("pwd; echo oops >&2; exit 3", tmp_path)
    assert (ran.stdout, ran.stderr, ran.exit_code) == (f"{tmp_path}\n", "oops\n", 3)
    assert ran.failure == "The command ended with code 3."
    assert (ran.code, ran.retries) == ("TOOL_EXECUTION_FAILED", 0)


async def test_one_that_ends_well_has_not_failed(tmp_path: Path) -> None:
    ran = await run("printf 'a\\000b'", tmp_path)
    assert (ran.stdout, ran.exit_code, ran.failure) == ("a\ufffdb", 0, "")


async def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert (await within(run("cat; echo over", tmp_path))).stdout == "over\n"


async def test_what_it_leaves_in_the_background_holds_nobody_up_and_goes_on(tmp_path: Path) -> None:
    """Its output is read on, or it would stand still when the pipe is full; what the command itself
    said is its result.
    """
    mark, made, groups = uuid.uuid4().hex, tmp_path / "made", Groups()
    background = f"until test -e {tmp_path}/go; do sleep 0.02; done; head -c 1000000 /dev/zero; touch {made}; sleep 100; : {mark}"
    ran = await within(shell.run(f"sh -c '{background}' & echo over", tmp_path, groups))
    assert (ran.stdout, ran.exit_code) == ("over\n", 0)
    (tmp_path / "go").touch()
    await eventually(made.exists)
    assert carrying(mark)
    await within(groups.end())
    assert carrying(mark) == []


async def test_cancelling_ends_the_command(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    running = asyncio.create_task(run(f"sleep 100; : {mark}", tmp_path))
    await eventually(lambda: bool(carrying(mark)))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(running)
    assert carrying(mark) == []


async def test_output_is_bounded_and_says_so(tmp_path: Path) -> None:
    size = limits.TOOL_OUTPUT_BYTES + 5000
    ran = await within(run(f"head -c {size} /dev/zero | tr '\\0' x; echo end >&2", tmp_path))
    assert len(ran.stdout) < limits.TOOL_OUTPUT_BYTES + 100
    assert ran.stdout.endswith(f"[cut: {size} bytes in all]")
    assert ran.stderr == "end\n"


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
    ran = await run("true", tmp_path / "gone")
    assert ran.exit_code is None
    assert "could not be started" in ran.failure and str(tmp_path / "gone") in ran.failure
