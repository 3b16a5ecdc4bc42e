"""Sessions of the desk's that are joined, as a stand-in for its server has them (D80)."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.agents.codex import desk
from sessions_app.agents.codex.joined import JoinedDriver
from sessions_app.agents.driver import CannotStart, OpenElsewhere, Verdict
from sessions_app.agents.events import (
    AgentDied,
    ApprovalAsked,
    ApprovalWithdrawn,
    AsksChanged,
    PromptMoved,
    PromptTyped,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from tests.agents.codex.daemon import ASKS, CHILD, OTHER, THREAD, UNASKED, Daemon
from tests.agents.drive import APPROVED, REJECTED, Drive, only, text, within
from tests.servers import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Served = Callable[..., Daemon]
Joined = Callable[..., Any]
CHANGED = {"type": "fileChange", "id": "f", "status": "inProgress"}
CHANGE = {"path": "/a", "kind": {"type": "add"}, "diff": "new"}
NOBODY = 65534


@pytest.fixture
def served(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server at the desk, with this SPEC; it ends with the test."""
    own: list[Daemon] = []
    monkeypatch.setenv("CODEX_HOME", str(root.parent / "codex"))
    monkeypatch.setitem(conf.__dict__, "bridge_join", ["codex"])

    def serve(**spec: Any) -> Daemon:
        own.append(Daemon(root.parent / "codex", root, **spec))
        return own[-1]

    yield serve
    for one in own:
        one.close()


@pytest_asyncio.fixture(loop_scope="module")
async def joined(root: Path, served: Served) -> AsyncIterator[Joined]:
    own: list[Drive] = []

    async def join(*answers: Verdict, **spec: Any) -> tuple[Drive, Daemon]:
        daemon = served(**spec)
        own.append(Drive(JoinedDriver(), *answers))
        return await own[-1].start(root, THREAD), daemon

    yield join
    for drive in own:
        await drive.close()


async def later(condition: Callable[[], Any]) -> Any:
    """Wait for what the server is told; the driver goes on meanwhile."""
    return await asyncio.to_thread(wait_until, condition)


async def decision(daemon: Daemon, number: int) -> str:
    return await asyncio.to_thread(daemon.decision, number)


async def test_a_turn_of_the_desk(joined: Joined) -> None:
    """What is typed there is shown once, and what was not the session's never."""
    drive, daemon = await joined()
    daemon.note("item/agentMessage/delta", OTHER, itemId="m", delta="of another")
    daemon.typed("Do it.")
    daemon.say("It is done.")
    daemon.turn(status="completed")
    ended = await drive.said_one(TurnEnded)
    assert ended.own and text(drive.said) == "It is done."
    assert [one.content for one in drive.of(PromptTyped)] == ["Do it."]


async def test_a_message_from_here(joined: Joined) -> None:
    """It takes the thread's settings as they are, and is not shown as typed at the desk."""
    drive, daemon = await joined()
    await drive.driver.prompt("Go on.")
    [given] = await later(lambda: daemon.asked_for("turn/start"))
    assert set(given) == {"threadId", "input", "clientUserMessageId"}
    [resumed] = daemon.asked_for("thread/resume")
    assert resumed == {"threadId": THREAD, "excludeTurns": True}
    daemon.typed("Go on.", client=given["clientUserMessageId"])
    daemon.turn(status="completed")
    assert not (await drive.said_one(TurnEnded)).own and not drive.of(PromptTyped)


@pytest.mark.parametrize(
    ("verdict", "said"), [(APPROVED, "accept"), (Verdict("rejected", reason="No."), "decline")]
)
async def test_answered_here_first(joined: Joined, verdict: Verdict, said: str) -> None:
    drive, daemon = await joined(verdict)
    daemon.typed("Do it.")
    item = daemon.command("ls")
    number = daemon.may(item)
    assert await decision(daemon, number) == said
    daemon.resolve(number)
    daemon.over(item, "completed" if said == "accept" else "declined")
    await drive.until(lambda: bool(drive.of(ToolSucceeded) or drive.of(ToolStopped)))
    assert bool(drive.of(ToolSucceeded)) is (said == "accept")


async def test_answered_at_the_desk_first(joined: Joined) -> None:
    drive, daemon = await joined()
    daemon.typed("Do it.")
    item = daemon.command("ls")
    number = daemon.may(item)
    asked = await drive.said_one(ApprovalAsked)
    daemon.resolve(number)
    assert (await drive.said_one(ApprovalWithdrawn)).call_id == asked.call.id
    daemon.over(item)
    await drive.said_one(ToolSucceeded)
    assert not drive.driver.approvals.decide(asked.call.id or "", APPROVED)
    assert daemon.answers == {}


async def test_two_threads_ask_at_once(joined: Joined) -> None:
    """A subagent's question is the session's; one of another session is left to the desk."""
    drive, daemon = await joined()
    daemon.send(method="thread/started", params={"thread": {"id": CHILD, "parentThreadId": THREAD}})
    daemon.may(daemon.command("of another", OTHER), OTHER)
    first = daemon.may(daemon.command("ls"))
    second = daemon.may(daemon.command("pwd", CHILD), CHILD)
    await drive.until(lambda: len(drive.of(ApprovalAsked)) == 2)
    calls = {one.call.params["command"]: one.call for one in drive.of(ApprovalAsked)}
    assert calls["pwd"].agent.id == CHILD and not calls["ls"].agent.id
    drive.driver.approvals.decide(calls["pwd"].id or "", REJECTED)
    assert await decision(daemon, second) == "decline" and first not in daemon.answers
    drive.driver.approvals.decide(calls["ls"].id or "", APPROVED)
    assert await decision(daemon, first) == "accept" and len(daemon.answers) == 2


async def test_joined_while_it_asks(joined: Joined) -> None:
    """What began before is known by its question; what is not known is left to the desk."""
    turns = {"data": [{"id": "turn-9", "status": "inProgress"}]}
    drive, daemon = await joined(APPROVED, **{"thread/turns/list": turns})
    daemon.ask("fileChange", itemId="unseen", reason="")
    item = {"id": "c-ls", "command": "ls", "type": "commandExecution"}
    assert await decision(daemon, daemon.may(item)) == "accept"
    daemon.over(item)
    call = (await drive.said_one(ToolSucceeded)).call
    assert only(ApprovalAsked, drive.said).call.id == call.id == "c-ls"
    await drive.driver.interrupt()
    assert daemon.asked_for("turn/interrupt") == [{"threadId": THREAD, "turnId": "turn-9"}]
    assert len(daemon.answers) == 1


async def test_more_questions_than_can_be_asked_here(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AGENT_QUESTIONS_WAITING", 1)
    drive, daemon = await joined()
    items = [daemon.command(line) for line in ("ls", "pwd", "id")]
    numbers = [daemon.may(item) for item in items]
    await drive.said_one(ApprovalAsked)
    for number, item in zip(numbers[1:], items[1:], strict=True):
        daemon.resolve(number)
        daemon.over(item)
    await drive.until(lambda: len(drive.of(ToolSucceeded)) == 2)
    assert daemon.answers == {} and not drive.of(ToolStopped)


async def test_a_flood_is_read_as_it_is_taken(joined: Joined) -> None:
    drive, daemon = await joined()
    many = 3 * limits.AGENT_EVENTS_WAITING
    daemon.typed("Do it.")
    for number in range(many):
        await asyncio.to_thread(daemon.say, f"{number} ")
    daemon.turn(status="completed")
    await drive.said_one(TurnEnded)
    assert text(drive.said).split() == [*map(str, range(many))]


@pytest.mark.parametrize(
    "how",
    [
        UNASKED,
        {"approvalsReviewer": "auto_review"},
        {"sandbox": {"type": "workspaceWrite", "networkAccess": False}},
        {"approvalPolicy": {"granular": {}}},
    ],
)
async def test_what_does_not_ask_is_not_written_to(joined: Joined, how: Any) -> None:
    """It can be watched, decided and interrupted."""
    thread = {"thread": {"id": THREAD}, **ASKS, **how}
    drive, daemon = await joined(Verdict("rejected", reason="No."), **{"thread/resume": thread})
    assert drive.driver.asks is False
    await drive.driver.prompt("Go on.")
    assert "not written to" in (await drive.said_one(TurnEnded)).error
    daemon.typed("Do it.")
    assert await decision(daemon, daemon.may(daemon.command("ls"))) == "decline"
    await drive.driver.steer("And this.", "id")
    assert await drive.said_one(PromptMoved) == PromptMoved("refused", "id")
    await drive.driver.interrupt()
    assert daemon.asked_for("turn/interrupt")
    assert not daemon.asked_for("turn/start") and not daemon.asked_for("turn/steer")


async def test_where_the_owner_lets_it_be_written_to(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(conf.__dict__, "bridge_acp_unasked", ["codex"])
    thread = {"thread": {"id": THREAD}, **ASKS, **UNASKED}
    drive, daemon = await joined(**{"thread/resume": thread})
    await drive.driver.prompt("Go on.")
    await later(lambda: daemon.asked_for("turn/start"))


async def test_the_desk_switches_asking_off_and_on(joined: Joined) -> None:
    """A turn that runs goes on: a person at the desk wants it so."""
    drive, daemon = await joined()
    asks = {"approvalPolicy": "on-request", "approvalsReviewer": "user"}
    box = {"type": "readOnly", "networkAccess": False}
    daemon.typed("Do it.")
    for policy in ("never", "never", "on-request"):
        settings = {**asks, "approvalPolicy": policy, "sandboxPolicy": box}
        daemon.note("thread/settings/updated", threadSettings=settings)
    await drive.until(lambda: len(drive.of(AsksChanged)) == 2)
    assert [bool(one.why) for one in drive.of(AsksChanged)] == [True, False]
    assert drive.driver.asks is True and not daemon.asked_for("turn/interrupt")


@pytest.mark.parametrize("method", ["thread/deleted", "thread/closed"])
async def test_the_desk_ends_it(joined: Joined, method: str) -> None:
    drive, daemon = await joined()
    daemon.may(daemon.command("ls"))
    await drive.said_one(ApprovalAsked)
    daemon.note(method, OTHER)
    daemon.note(method)
    assert "at the desk" in (await drive.said_one(AgentDied)).reason
    await drive.said_one(ApprovalWithdrawn)


async def test_the_server_is_killed(joined: Joined) -> None:
    drive, daemon = await joined()
    await drive.driver.prompt("Go on.")
    await asyncio.to_thread(daemon.close)
    assert "has ended" in (await drive.said_one(AgentDied)).reason


async def test_leaving_ends_nothing(joined: Joined) -> None:
    drive, daemon = await joined()
    daemon.typed("Do it.")
    daemon.may(daemon.command("ls"))
    await drive.said_one(ApprovalAsked)
    before = len(daemon.heard)
    await drive.close()
    await later(lambda: not daemon.joined)
    assert daemon.heard[before:] == [] and daemon.answers == {}


async def test_what_is_not_loaded_is_not_joined(root: Path, served: Served) -> None:
    """To resume it would load it, with how it asks then."""
    daemon = served(**{"thread/loaded/list": {"data": [OTHER], "nextCursor": None}})
    assert await desk.joinable() == {OTHER}
    drive = Drive(JoinedDriver())
    with pytest.raises(OpenElsewhere):
        await drive.start(root, THREAD)
    await drive.close()
    assert not daemon.asked_for("thread/resume")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")
@pytest.mark.parametrize("what", ["socket", "directory"])
async def test_a_socket_of_another_user(root: Path, served: Served, what: str) -> None:
    """Also where a link of our own leads to it."""
    daemon = served()
    assert THREAD in await desk.joinable()
    os.chown(daemon.path if what == "socket" else daemon.path.parent, NOBODY, NOBODY)
    assert await desk.joinable() == ()
    drive = Drive(JoinedDriver())
    with pytest.raises(CannotStart):
        await drive.start(root, THREAD)
    await within(drive.driver.close())
    assert not daemon.asked_for("thread/resume")


async def test_who_is_no_server_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOIN_SECONDS", 0.2)
    daemon = served(initialize={"error": "no"})
    assert await desk.joinable() == ()
    daemon.link.unlink()
    assert await desk.joinable() == ()


async def test_it_is_off_by_default(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = served()
    monkeypatch.setitem(conf.__dict__, "bridge_join", [])
    assert await desk.joinable() == () and daemon.heard == []
