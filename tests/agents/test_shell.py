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


async def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """SPEC Limits: a tool has its time; what it said until then is kept."""
    mark = uuid.uuid4().hex
    ran = await within(
        run(
            f"echo begun; setsid sh -c 'sleep 100; : {mark}' & sleep 100; : {mark}",
            tmp_path,
            seconds=0.5,
        ),
    )
    assert (ran.stdout, ran.code, ran.exit_code) == ("begun\n", "TOOL_TIMEOUT", None)
    assert "longer than 0.5 seconds" in ran.failure
    assert carrying(mark) == []


def test_the_time_limit_is_the_specs() -> None:
    assert shell.run.__kwdefaults__ == {"seconds": 300.0}
    assert limits.TOOL_TIMEOUT_MS == {
        "bash": 300_000,
        "read_file": 10_000,
        "edit_file": 30_000,
        "search": 60_000,
    }


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


RETRIES = [
    ("echo 'curl: (28) Connection timed out' >&2; exit 28", 3),
    ("echo 'HTTP 429: too many requests' >&2; exit 1", 3),
    ("echo 'fork: Cannot allocate memory' >&2; exit 1", 1),
    ("kill -9 $$", 1),
    ("cat /no/such/file", 0),
    ("no-such-command", 0),
    ("echo 'touch: /x: Permission denied' >&2; exit 1", 0),
    ("exit 1", 0),
]


@pytest.mark.parametrize(("command", "retries"), RETRIES)
async def test_the_retry_table(tmp_path: Path, command: str, retries: int) -> None:
    """SPEC Tool retry policy: network time-out and rate limit with backoff, out of memory once,
    file not found and permission denied not.
    """
    ran = await run(command, tmp_path)
    assert ran.failure
    assert ran.retries == retries


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
