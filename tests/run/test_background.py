"""Background work: started in order, stopped in reverse, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bridge_project.composition import background
from bridge_project.composition.background import Work


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started and stopped, with works of our own."""
    monkeypatch.setattr(background, "WORKS", ())
    return []


def add(done: list[str], name: str, *, failing: str = "") -> None:
    def step(what: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            done.append(f"{what} {name}")
            if failing == what:
                raise RuntimeError(f"{what} {name}")

        return run

    background.WORKS += (Work(name, step("start"), step("stop")),)


async def test_started_in_order_and_stopped_in_reverse(done: list[str]) -> None:
    for name in ("a", "b"):
        add(done, name)
    await background.start_all()
    await background.stop_all()
    await background.stop_all()
    assert done == ["start a", "start b", "stop b", "stop a"]


async def test_what_cannot_start_stops_what_was_started(done: list[str]) -> None:
    add(done, "a")
    add(done, "b", failing="start")
    with pytest.raises(RuntimeError, match="start b"):
        await background.start_all()
    assert done == ["start a", "start b", "stop a"]


async def test_what_cannot_stop_keeps_nothing_else_running(done: list[str]) -> None:
    add(done, "a")
    add(done, "b", failing="stop")
    await background.start_all()
    await background.stop_all()
    assert done[-1] == "stop a"


async def test_what_does_not_stop_in_time_is_left(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def nothing() -> None:
        pass

    monkeypatch.setattr(background, "STOP_SECONDS", 0.01)
    add(done, "a")
    background.WORKS += (Work("b", nothing, never),)
    await background.start_all()
    await background.stop_all()
    assert done[-1] == "stop a"
