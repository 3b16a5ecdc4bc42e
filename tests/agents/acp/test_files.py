"""What an ACP agent has the bridge do: files and commands (D12, D38, D45, D50)."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.agents.driver import REJECTED as WORDS_OF_A_REJECTION
from sessions_app.agents.driver import Verdict
from sessions_app.agents.events import ApprovalAsked, ToolFailed, ToolSucceeded
from tests.agents.conftest import Open
from tests.agents.drive import APPROVED, REJECTED, kinds, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")
EDIT = """/do diff = {'type': 'diff', 'path': os.path.abspath('a.txt'), 'newText': 'hello'}
yes = allowed(ask('c1', title='Writing', kind='edit', content=[diff]))
say(f'{yes} ')
if yes:
    ITSELF
    write('a.txt hello')
    update('tool_call_update', toolCallId='c1', status='completed')
    write('a.txt too late')
"""


@pytest.fixture
def outside(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file beside the root, to which a link leads; the data directory lies in the root (D45)."""
    secret = root.parent / "secret"
    (root / "var").mkdir()
    for path in (secret, root / "var/key"):
        path.write_text("hidden")
    (root / "link").symlink_to(secret)
    monkeypatch.setitem(conf.__dict__, "bridge_data_dir", root / "var")
    return secret


async def test_reading_inside_the_roots_needs_nobody(
    opened: Open, root: Path, outside: Path
) -> None:
    """D12: outside of them, by way of a link, what is not there or no file, is refused."""
    (root / "a.txt").write_text("content")
    drive = await opened()
    said = await drive.turn("/read a.txt")
    assert (kinds(said), text(said)) == (["TurnEnded"], "content")
    for path in ("../secret", "/etc/passwd", "link", "none.txt", ".", "var/key"):
        said = await drive.turn(f"/read {path}")
        refused, codes = text(said), [one.failure.code for one in said if type(one) is ToolFailed]
        assert refused.startswith("The bridge does not do it:"), path
        assert "hidden" not in refused and "root:" not in refused
        assert codes == ["TOOL_EXECUTION_FAILED"] * (path != "none.txt"), path


async def test_what_was_approved_stays_inside(opened: Open, root: Path, outside: Path) -> None:
    drive = await opened(APPROVED)
    paths = ("../out.txt", "link", "/dev/null", "var/key", "var/new/key")
    terminal = "/do have('terminal/create', '', command='touch made', cwd='/')"
    for line in (*(f"/write {path} new" for path in paths), terminal):
        said = await drive.turn(line)
        assert "does not do it" in text(said), line
        assert kinds(said) == ["ApprovalAsked", "ToolFailed", "TurnEnded"]
        assert only(ToolFailed, said).failure.code == "TOOL_EXECUTION_FAILED"
    assert {outside.read_text(), (root / "var/key").read_text()} == {"hidden"}
    assert not (root.parent / "out.txt").exists() and not Path("/made").exists()
    assert not (root / "var/new").exists() and not (root / "made").exists()


async def test_a_write_that_nobody_was_asked_for_is_asked_for(opened: Open, root: Path) -> None:
    """One that is rejected is not made."""
    (root / "a.txt").write_text("old\f\n")
    drive = await opened(APPROVED, Verdict("rejected", reason="keep it"))
    said = await drive.turn("/write a.txt new")
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"]
    call, done = only(ApprovalAsked, said).call, only(ToolSucceeded, said)
    params = {"file_path": str(root / "a.txt"), "content": "new"}
    assert (call.tool, call.params) == ("Write", params)
    assert done.diff == "@@ -1 +1 @@\n-old\f\n+new\n\\ No newline at end of file\n"
    said = await drive.turn("/write a.txt newer")
    assert kinds(said) == ["ApprovalAsked", "ToolStopped", "TurnEnded"]
    assert "keep it" in text(said)
    assert (root / "a.txt").read_text() == "new"


@pytest.mark.parametrize("itself", ["pass", "open('a.txt', 'w').write('hello')"])
async def test_an_agent_that_asked_itself_is_not_asked_twice(
    opened: Open, root: Path, itself: str
) -> None:
    """The approval covers the file that it named, while the call runs, and no longer."""
    drive = await opened(APPROVED, REJECTED)
    said = await drive.turn(EDIT.replace("ITSELF", itself))
    assert "+hello" in str(only(ToolSucceeded, said).diff)
    refused = f"The bridge does not do it: {WORDS_OF_A_REJECTION}"
    assert text(said) == f"True a.txt is written.{refused}"
    assert [asked.call.tool for asked in drive.of(ApprovalAsked)] == ["Edit", "Write"]
    params = {"file_path": str(root / "a.txt"), "content": "hello"}
    assert drive.of(ApprovalAsked)[0].call.params == params
    assert (root / "a.txt").read_text() == "hello"


async def test_what_a_write_keeps_and_makes(opened: Open, root: Path) -> None:
    """The mode and the link stay, directories are made, a hard link to the outside is broken."""
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    (root.parent / "theirs").write_text("theirs")
    os.link(root.parent / "theirs", root / "mine")
    drive = await opened(APPROVED)
    for line in ("link new", "a/b/c.txt deep", "mine mine"):
        assert text(await drive.turn(f"/write {line}")).endswith("is written.")
    assert (root / "link").is_symlink() and (root / "run.sh").read_text() == "new"
    assert (root / "a/b/c.txt").read_text() == "deep"
    assert ((root.parent / "theirs").read_text(), (root / "mine").read_text()) == ("theirs", "mine")
    modes = [(root / name).stat().st_mode & 0o777 for name in ("run.sh", "a", "a/b/c.txt")]
    assert modes == [0o755, 0o755, 0o644]
    names = [path.name for path in root.rglob("*")]
    assert sorted(names) == ["a", "b", "c.txt", "link", "mine", "run.sh"]


@pytest.mark.parametrize("status", ["failed", "completed"])
async def test_a_command_of_the_agents_own_call(opened: Open, status: str) -> None:
    """Whether its call has failed is for the agent to say; how, the bridge knows (D50)."""
    command = "echo 'HTTP 429: too many requests' >&2; exit 1"
    drive = await opened(APPROVED, REJECTED)
    said = await drive.turn(
        f"/do allowed(ask('c', kind='execute', rawInput={{'command': {command!r}}}))\n"
        f"agent.command({command!r}, 'c')\n"
        f"update('tool_call_update', toolCallId='c', status={status!r})"
    )
    assert text(said) == "It ended with 1 and said: HTTP 429: too many requests\n"
    ended = "ToolFailed" if status == "failed" else "ToolSucceeded"
    assert kinds(said) == ["ApprovalAsked", ended, "TurnEnded"]
    if status == "failed":
        failure = only(ToolFailed, said).failure
        assert (failure.code, failure.retries) == ("TOOL_EXECUTION_FAILED", 3)
        assert "many requests" in failure.message and failure.details.exit_code == 1
    else:
        assert "many requests" in only(ToolSucceeded, said).content


async def test_a_disk_that_does_not_answer(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file and a command there are refused: nobody knows where the path leads."""
    answers, where = threading.Event(), os.path.realpath

    def realpath(path: Any, **options: Any) -> str:
        answers.wait()
        return str(where(path, **options))

    (root / "there").mkdir()
    drive = await opened(APPROVED)
    for limit in ("REAL_PATH_SECONDS", "TOOL_TIMEOUT_READ_SECONDS", "TOOL_TIMEOUT_EDIT_SECONDS"):
        monkeypatch.setattr(limits, limit, 0.05)
    monkeypatch.setattr("os.path.realpath", realpath)
    try:
        said = await drive.turn("/write there/a.txt new")
        only(ToolFailed, said)
        assert "does not do it" in text(said)
        said = await drive.turn('/do agent.command("touch made", cwd=os.getcwd() + "/there")')
        assert "does not do it" in text(said) and not list((root / "there").iterdir())
    finally:
        answers.set()
