"""D77, D67: a program at the desk is ended without pidfd, and no other one that has its id."""

import asyncio
import subprocess
from collections.abc import Iterator

import pytest

from bridge_project.kernel import limits, processes, ways
from bridge_project.kernel.process_note import ProcessNote
from sessions_app.observed import desk


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(ways.linux, "programs", False)
    processes.here.cache_clear()
    yield
    processes.here.cache_clear()


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    words = ["sh", "-c", "trap 'echo over; exit' TERM; echo; while :; do sleep 0.1; done"]
    with subprocess.Popen(words, stdout=-1) as it:
        assert it.stdout is not None and it.stdout.readline()
        yield it
        it.kill()


def note(pid: int, later: int = 0) -> ProcessNote:
    start = processes.start_of(pid)
    assert start is not None
    return ProcessNote(pid, start + later, *processes.here(), True, "")


async def test_it_is_ended(program: subprocess.Popen[bytes]) -> None:
    assert program.stdout is not None
    reading = asyncio.create_task(asyncio.to_thread(program.stdout.read))
    await desk.end(note(program.pid), lambda pid: pid == program.pid)
    assert await reading == b"over\n"


async def test_what_has_its_id_since_is_not(program: subprocess.Popen[bytes]) -> None:
    await desk.end(note(program.pid, -3600), lambda _: True)
    assert program.poll() is None


async def test_neither_is_what_is_no_agent(program: subprocess.Popen[bytes]) -> None:
    with pytest.raises(desk.CannotEnd, match="not sure"):
        await desk.end(note(program.pid), lambda _: False)
    assert program.poll() is None


async def test_one_that_goes_on_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROGRAM_END_SECONDS", 0.2)
    words = ["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"]
    with subprocess.Popen(words, stdout=-1) as program:
        assert program.stdout is not None and program.stdout.readline()
        with pytest.raises(desk.CannotEnd, match="has not within"):
            await desk.end(note(program.pid), lambda _: True)
        program.kill()
