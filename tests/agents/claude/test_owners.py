"""MCP servers and skills that the owner names, and none that a repository brings (D75)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel.config import conf
from sessions_app.agents.driver import CannotStart
from sessions_app.agents.events import ApprovalAsked, ToolSucceeded
from tests.agents.claude_model import Model, Text, Tool
from tests.agents.conftest import claude_driver
from tests.agents.drive import APPROVED, REJECTED, Drive, only, text

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

# A server with one tool, which notes that it ran; its only argument is the file for that.
SERVER = """
import json, sys
def say(id_, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, id_ = asked["method"], asked.get("id")
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"name": "own", "version": "1"}
        say(id_, protocolVersion=version, capabilities={"tools": {}}, serverInfo=about)
    elif method == "tools/list":
        shape = {"type": "object", "properties": {}}
        hints = {"readOnlyHint": True}
        say(id_, tools=[{"name": "note", "description": "Notes it.", "inputSchema": shape,
                         "annotations": hints}])
    elif method == "tools/call":
        open(sys.argv[1], "a").write("ran")
        say(id_, content=[{"type": "text", "text": "noted"}])
"""
HANGS = "import time; time.sleep(600)"
FLOODS = "while True: print('x' * 65536)"


def server(script: str, *arguments: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", script, *arguments]}


def name(monkeypatch: pytest.MonkeyPatch, place: Path, **servers: dict[str, Any]) -> Path:
    """Have the owner name these servers, in a file of this place."""
    place.mkdir(exist_ok=True)
    file = place / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    monkeypatch.setitem(conf.__dict__, "bridge_claude_servers", file)
    return file


def tools_of(model: Model) -> set[str]:
    return {one["name"] for one in model.requests[-1]["tools"]}


async def test_it_knows_no_other_session(model: Model, session: Drive) -> None:
    await session.turn("play:hello")
    assert "Bash" in tools_of(model) and tools_of(model).isdisjoint({"SendMessage", "ListAgents"})


async def test_a_server_of_the_owner_asks_whatever_it_says_of_itself(
    model: Model, drive: Drive, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside it the repository's server is not started, and those that hang or flood harm none."""
    ran, theirs = tmp_path / "ran", tmp_path / "theirs"
    own = server(SERVER, str(ran))
    name(monkeypatch, tmp_path / "o", own=own, hangs=server(HANGS), floods=server(FLOODS))
    (root / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"its": server(f"open({str(theirs)!r}, 'w')")}})
    )
    await drive.start(root)
    prompt = model.play("note", [Tool("mcp__own__note", {})], [Text("Done.")])
    refused = await drive.turn(prompt, REJECTED)
    assert only(ApprovalAsked, refused).call.tool == "mcp__own__note" and not ran.exists()
    done = await drive.turn(prompt, APPROVED)
    only(ToolSucceeded, done)
    assert ran.read_text() == "ran"
    assert not theirs.exists()


async def test_skills_of_the_owner(
    model: Model, drive: Drive, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook in such a directory, as a plug-in might have one, is not run."""
    skills, ran = tmp_path / "skills", tmp_path / "ran"
    (skills / "tea").mkdir(parents=True)
    (skills / "tea/SKILL.md").write_text("---\nname: tea\ndescription: Brews.\n---\nPour at 80.")
    hook = {"hooks": [{"type": "command", "command": f"touch {ran}"}]}
    (skills / "hooks").mkdir()
    (skills / "hooks/hooks.json").write_text(json.dumps({"hooks": {"SessionStart": [hook]}}))
    monkeypatch.setitem(conf.__dict__, "bridge_claude_skills", [str(skills)])
    await drive.start(root)
    prompt = model.play("tea", [Tool("Skill", {"skill": "owner:tea"})], [Text("Done.")])
    said = await drive.turn(prompt, APPROVED)
    assert only(ApprovalAsked, said).call.tool == "Skill" and text(said) == "Done."
    assert any("Pour at 80." in json.dumps(one["messages"]) for one in model.requests)
    assert not ran.exists()


@pytest.mark.parametrize("what", ["in a root", "for all", "missing", "no JSON", "no servers"])
async def test_what_others_can_change_or_nobody_can_read_starts_nothing(
    what: str,
    surroundings: dict[str, str],
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = name(monkeypatch, root if what == "in a root" else tmp_path / "o")
    if what == "for all":
        file.chmod(0o666)
    elif what == "missing":
        file.unlink()
    elif what.startswith("no"):
        file.write_text("{" if what == "no JSON" else "{}")
    driver = claude_driver()
    with pytest.raises(CannotStart, match="BRIDGE_CLAUDE_SERVERS is no"):
        await driver.start(root)
    await driver.close()
