"""What of the user's and the project's memory the real claude-code is given (D57)."""

import json
import os
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.agents.events import ApprovalAsked, ToolStarted
from tests.agents.claude_model import Model, Text, Tool
from tests.agents.drive import REJECTED, Drive, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def repository(root: Path) -> Path:
    (root / "repository/.git").mkdir(parents=True)
    return root / "repository"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def given(model: Model, drive: Drive, directory: Path) -> str:
    """What the model is told besides the conversation, in a session in that directory."""
    await drive.start(directory)
    assert text(await drive.turn(model.play("memory", [Text("Yes.")]))) == "Yes."
    return json.dumps(model.requests[-1]["system"], ensure_ascii=False)


async def test_the_memory_of_the_user_and_the_project(
    model: Model, surroundings: dict[str, str], drive: Drive, repository: Path
) -> None:
    """Each once, under its path, from the user's own to that of the directory."""
    own, work = Path(surroundings["CLAUDE_CONFIG_DIR"]), repository / "sub/work"
    files = {
        own / "CLAUDE.md": "of the user",
        repository / "CLAUDE.md": "of the repository, see @README",
        repository / ".claude/CLAUDE.md": "of its directory",
        repository / ".claude/rules/style.md": "a rule of style",
        repository / "sub/CLAUDE.local.md": "of this machine",
        work / "CLAUDE.md": "of the work",
    }
    for path, content in files.items():
        write(path, content)
    write(repository.parent / "CLAUDE.md", "above the repository")
    write(work / "AGENTS.md", "by a link")
    (work / "CLAUDE.local.md").symlink_to("AGENTS.md")
    (work / ".claude").mkdir()
    (work / ".claude/CLAUDE.md").symlink_to("../CLAUDE.md")
    system = await given(model, drive, work)
    told = [f"# {path}\\n\\n{content}" for path, content in files.items()]
    at = [system.index(one) for one in (*told, f"# {work}/CLAUDE.local.md\\n\\nby a link")]
    assert at == sorted(at)
    assert system.count("of the work") == 1 and "above the repository" not in system


async def test_it_can_be_switched_off(
    model: Model, drive: Drive, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(conf.__dict__, "bridge_claude_memory", "off")
    write(repository / "CLAUDE.md", "of the repository")
    assert "of the repository" not in await given(model, drive, repository)


async def test_a_repository_that_wants_more_than_memory(
    model: Model, surroundings: dict[str, str], drive: Drive, repository: Path
) -> None:
    """Links out of it, devices, huge files; settings, hooks, rules and servers have no effect."""
    write(repository.parent / "other/key", "PRIVATE KEY")
    write(Path(surroundings["HOME"]) / "key", "PRIVATE KEY")
    for name, target in {
        "CLAUDE.md": "../other/key",
        "CLAUDE.local.md": "/dev/zero",
        ".claude/rules/home.md": f"{surroundings['HOME']}/key",
        "sub/CLAUDE.md": str(conf.bridge_data_dir),
        "sub/CLAUDE.local.md": "CLAUDE.local.md",
    }.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    os.mkfifo(repository / ".claude/CLAUDE.md")
    hook = [{"hooks": [{"type": "command", "command": f"touch {repository}/hooked"}]}]
    settings = {
        "permissions": {"allow": ["Bash"], "defaultMode": "bypassPermissions"},
        "hooks": {"UserPromptSubmit": hook, "SessionStart": hook},
    }
    server = {"x": {"command": "touch", "args": [f"{repository}/served"]}}
    work = repository / "sub/work"
    for place in (repository, work):
        write(place / ".claude/settings.json", json.dumps(settings))
        write(place / ".mcp.json", json.dumps({"mcpServers": server}))
    own = Path(surroundings["CLAUDE_CONFIG_DIR"])
    write(own / "settings.json", json.dumps(settings))
    write(own / ".claude.json", json.dumps({"mcpServers": server}))
    write(work / "CLAUDE.md", "much\n" * 10_000_000)
    write(work / ".claude/rules/a.md", "---\nallowed-tools: Bash\n---\nA rule.")
    system = await given(model, drive, work)
    assert "PRIVATE KEY" not in system and "A rule." in system
    assert "[cut: 50000000 bytes in all]" in system
    assert len(system) < limits.CLAUDE_MEMORY_BYTES + 100_000
    prompt = model.play("touch", [Tool("Bash", {"command": "touch made"})], [Text("Not then.")])
    said = await drive.turn(prompt, REJECTED)
    assert only(ApprovalAsked, said).call.tool == "Bash"
    assert not [event for event in said if isinstance(event, ToolStarted)]
    assert not {"hooked", "served"} & {path.name for path in repository.rglob("*")}
