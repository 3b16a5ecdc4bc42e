"""An ACP agent that means no good, or says it badly: an approval covers what a person saw, and
nothing of the agent stays (D38, D40, D45).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, schema

from bridge_project.kernel import limits
from sessions_app.agents import session_runner
from sessions_app.agents.acp.client import Host
from sessions_app.agents.acp.driver import AcpDriver
from sessions_app.agents.acp.tool_calls import diff_of
from sessions_app.agents.driver import ApprovalAsked, Chunk, Event, Start, TurnEnded, Verdict
from tests.agents.drive import APPROVED, REJECTED, Drive

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPTIONS = [
    schema.PermissionOption(kind=kind, name=kind, option_id=kind)
    for kind in ("allow_once", "reject_once")
]
STUB = """
import json, sys
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + chr(10))
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=message["id"], result={"sessionId": "it"})
    elif method == "session/prompt":
        number = message["id"]
        exec(message["params"]["prompt"][0]["text"])
"""


class Play:
    """A host whose asking is answered as ``verdicts`` say."""

    def __init__(self, directory: Path, *verdicts: Verdict) -> None:
        self.said: list[Event] = []
        self.verdicts = list(verdicts)
        self.host = Host(self._hear, directory, lambda mode: None)
        self.host.in_turn = True

    def _hear(self, event: Event) -> None:
        self.said.append(event)
        if isinstance(event, ApprovalAsked):
            asyncio.get_running_loop().call_soon(
                self.host.asking.decide, event.call.id or "", self.verdicts.pop(0)
            )

    @property
    def asked(self) -> list[ApprovalAsked]:
        return [event for event in self.said if isinstance(event, ApprovalAsked)]

    async def update(self, what: str, **parts: Any) -> None:
        model = schema.ToolCallStart if what == "tool_call" else schema.ToolCallProgress
        await self.host.session_update("it", model(session_update=what, tool_call_id="1", **parts))  # type: ignore[arg-type]

    async def permit(self, **parts: Any) -> Any:
        return await self.host.request_permission(
            "it", schema.ToolCallUpdate(tool_call_id="1", **parts), OPTIONS
        )

    async def ran(self, command: str, *arguments: str, cwd: str | None = None) -> bool:
        try:
            answer = await self.host.create_terminal("it", command, list(arguments), cwd=cwd)
        except RequestError:
            return False
        await self.host.wait_for_terminal_exit("it", answer.terminal_id)
        return True


async def test_a_person_sees_what_is_asked_and_not_what_was_announced(root: Path) -> None:
    """D38: announced as one command, asked for as another."""
    play = Play(root, APPROVED, REJECTED)
    await play.update("tool_call", title="List", kind="execute", raw_input={"command": "ls"})
    await play.permit(raw_input={"command": "touch made"})
    assert [event.call.params for event in play.asked] == [{"command": "touch made"}]
    assert not await play.ran("ls")


@pytest.mark.parametrize(
    ("command", "arguments", "cwd"),
    [
        ("touch made", (), None),
        ("sh", ("-c", "touch made", "true"), None),
        ("./sh", ("-c", "true"), None),
        ("bash", ("--rcfile", "made", "-ic", "true"), None),
        ("true", (), "elsewhere"),
    ],
)
async def test_an_approved_command_lets_no_other_run(
    root: Path, command: str, arguments: tuple[str, ...], cwd: str | None
) -> None:
    """D38: neither one said of the call after the yes, nor what only looks like the approved one,
    nor elsewhere.
    """
    (root / "elsewhere").mkdir()
    (root / "sh").write_text("#!/bin/sh\ntouch made\n")
    (root / "sh").chmod(0o755)
    play = Play(root, APPROVED, REJECTED)
    await play.permit(title="Nothing", kind="execute", raw_input={"command": "true"})
    if not arguments:
        await play.update("tool_call_update", raw_input={"command": command})
    assert not await play.ran(command, *arguments, cwd=str(root / cwd) if cwd else None)
    assert len(play.asked) == 2 and not (root / "made").exists()


@pytest.mark.parametrize(
    ("command", "arguments"), [("true", ()), ("sh", ("-c", "true")), ("/bin/bash", ("-lc", "true"))]
)
async def test_an_approved_command_runs(
    root: Path, command: str, arguments: tuple[str, ...]
) -> None:
    play = Play(root, APPROVED, REJECTED)
    await play.permit(title="Nothing", kind="execute", raw_input={"command": "true"})
    assert await play.ran(command, *arguments, cwd=str(root))
    assert not await play.ran("true"), "one approval is good for one run"


@pytest.mark.parametrize(
    "later", [{"locations": [schema.ToolCallLocation(path="b")]}, {"raw_input": {"path": "b"}}]
)
async def test_an_approved_edit_lets_no_other_file_be_written(
    root: Path, later: dict[str, Any]
) -> None:
    """D38: a file that the agent names after the yes was never shown."""
    play = Play(root, APPROVED, REJECTED)
    await play.permit(title="Edit a", kind="edit", raw_input={"path": "a"})
    await play.update("tool_call_update", **later)
    await play.host.write_text_file("it", "a", "text")
    with pytest.raises(RequestError):
        await play.host.write_text_file("it", "b", "text")
    assert [path.name for path in root.iterdir()] == ["a"] and len(play.asked) == 2


async def test_leave_to_read_is_none_to_write(root: Path) -> None:
    """D38: who lets an agent read a file has not let it be overwritten."""
    (root / "a").write_text("old")
    play = Play(root, APPROVED, REJECTED)
    await play.permit(title="Read a", kind="read", raw_input={"path": "a"})
    with pytest.raises(RequestError):
        await play.host.write_text_file("it", "a", "new")
    assert (root / "a").read_text() == "old"


async def test_the_marks_are_ours(root: Path) -> None:
    """D40: what an agent wants in a command's environment cannot take away by what it is found
    again; odd names are passed over.
    """
    more = [
        schema.EnvVariable(name=name, value="theirs")
        for name in ("BRIDGE_AGENT_RUN", "", "A=B", "GOOD")
    ]
    play = Play(root, APPROVED)
    answer = await play.host.create_terminal("it", "env", [], env=more)
    await play.host.wait_for_terminal_exit("it", answer.terminal_id)
    lines = (await play.host.terminal_output("it", answer.terminal_id)).output.splitlines()
    assert "GOOD=theirs" in lines and "BRIDGE_AGENT_RUN=theirs" not in lines


async def test_the_bridge_keeps_its_sockets(root: Path) -> None:
    """D45: of what the bridge has open, a command gets its own three ends."""
    play = Play(root, APPROVED)
    answer = await play.host.create_terminal("it", "ls /proc/$$/fd", [])
    await play.host.wait_for_terminal_exit("it", answer.terminal_id)
    assert (await play.host.terminal_output("it", answer.terminal_id)).output.split() == [
        "0",
        "1",
        "2",
    ]


async def test_commands_that_will_not_end_do_not_keep_the_agent_alive(root: Path) -> None:
    """D35: a session that is over leaves nothing, in the time that the runtime has for it, however
    many commands ignore that they are told.
    """
    agent = await _opened(root)
    drive, driver = agent
    await driver.prompt(
        "for each in range(4): send(id=100 + each, method='terminal/create', params="
        "{'sessionId': 'it', 'command': 'sh', 'args': ['-c', \"trap '' TERM; while :; do sleep 0.1; done\"]})"
    )
    await drive.until(lambda: len(drive.of(ApprovalAsked)) == 4)
    await _until(lambda: len(driver._host.terminals._terminals) == 4)
    groups = [terminal.group for terminal in driver._host.terminals._terminals.values()]
    await session_runner.close(driver, "it")
    assert [group.exited.is_set() for group in groups] == [True] * 4
    assert driver._group is not None and driver._group.exited.is_set()


@pytest.mark.parametrize(
    "answer", ["'error': 'no'", "'error': ['no']", "'result': 'no'", "'result': None"]
)
async def test_an_odd_answer_ends_the_turn(root: Path, answer: str) -> None:
    """D40: what the library cannot read would leave the turn running for ever."""
    drive, _ = await _opened(root)
    said = await drive.turn(
        f"sys.stdout.write(json.dumps({{'id': number, {answer}}}) + chr(10)); sys.stdout.flush()"
    )
    assert [event.finish_reason for event in said if isinstance(event, TurnEnded)] == ["error"]
    said = await drive.turn(
        "send(id=[1], method='x'); send(id=1, method=['x']); send(id=number, result={'stopReason': 'end_turn'})"
    )
    assert [event.finish_reason for event in said if isinstance(event, TurnEnded)] == ["stop"]
    await drive.close()


async def test_what_nobody_reads_is_not_read_from_the_agent(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue, limits: an agent that says more than the log takes waits, whether in many pieces or in
    few large ones.
    """
    monkeypatch.setattr(limits, "AGENT_CHARS_WAITING", 1000)
    driver = AcpDriver("stub", [sys.executable, "-IS", "-c", STUB])
    await driver.start(Start("it", root))
    piece = {
        "sessionId": "it",
        "update": {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "x" * 600},
        },
    }
    await driver.prompt(
        f"[send(method='session/update', params={json.dumps(piece)}) for _ in range(100)]; send(id=number, result={{'stopReason': 'end_turn'}})"
    )
    await _until(lambda: driver._chars >= 1000)
    await asyncio.sleep(0.3)
    assert driver._said.qsize() < 10
    chars = 0
    async for event in driver.events():
        chars += len(event.content) if isinstance(event, Chunk) else 0
        if isinstance(event, TurnEnded):
            break
    assert chars == 60_000
    await driver.close()


async def _opened(root: Path) -> tuple[Drive, AcpDriver]:
    driver = AcpDriver("stub", [sys.executable, "-IS", "-c", STUB])
    return await Drive(driver, APPROVED).start(root), driver


async def _until(true: Any) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("turned", [True, False])
async def test_comparing_two_texts_holds_nobody_up(turned: bool) -> None:
    """D40: a diff is made where every socket waits: of texts that take long to compare there is
    none.
    """
    lines = [f"{number % 102}\n" for number in range(12_000)]
    other = lines[::-1] if turned else [*lines[:50], "new\n", *lines[50:120]]
    old, new = "".join(lines if turned else lines[:120]), "".join(other)
    began = time.perf_counter()
    found = diff_of(
        [schema.FileEditToolCallContent(type="diff", path="table", old_text=old, new_text=new)]
    )
    assert (found is None) is turned
    assert time.perf_counter() - began < 3
