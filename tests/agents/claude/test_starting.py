"""How a session of the real claude-code begins, and what of its surroundings it is given (D35,
D45).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from sessions_app.agents.claude import agent
from sessions_app.agents.driver import (
    ApprovalAsked,
    CannotResume,
    CannotStart,
    Start,
    ToolStarted,
    Verdict,
)
from tests.agents.claude.model import Model, Text, Tool
from tests.agents.claude.session import Session, driver_of, only, pid_of

REFUSES = r"""#!/bin/sh
read -r request
id=$(printf '%s' "$request" | sed 's/.*"request_id": "\([^"]*\)".*/\1/')
echo '{"type": "control_response", "response": {"subtype": "error", "request_id": "'"$id"'", "error": "not today"}}'
cat
"""


@pytest.mark.parametrize(
    "resume_id", ["0a0a0a0a-0000-4000-8000-000000000000", "no-uuid", "--version"]
)
async def test_an_unknown_session_cannot_be_resumed(directory: Path, resume_id: str) -> None:
    driver = driver_of()
    with pytest.raises(CannotResume, match="cannot continue"):
        await driver.start(Start("a-session", directory, resume_id))
    await driver.close()


async def test_no_secret_of_the_bridge_reaches_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its name nor by its value; what the agent needs does (issue: a scrubbed
    environment).
    """
    secrets = {
        "BRIDGE_HOOK_TOKEN": "h" * 40,
        "BRIDGE_ANYTHING": "a" * 40,
        "DATABASE_URL": "postgres://u:p4ssw0rd4you@h/d",
        "REDIS_URL": "redis://:p4ssw0rd4you@h/0",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    async with Session(directory) as session:
        program = psutil.Process(pid_of(session))
        assert (found := agent.program()) is not None and found.samefile(program.exe())
        environ = program.environ()
    assert not secrets.keys() & environ.keys()
    assert not set(secrets.values()) & set(environ.values())
    assert environ["ANTHROPIC_API_KEY"] == "not-a-key"


async def test_nothing_that_is_configured_is_run(model: Model, directory: Path) -> None:
    """Hooks, permissions and servers of the user's and the repository's settings (issue:
    setting_sources=[]).
    """
    (directory / ".claude").mkdir()
    own = Path(os.environ["CLAUDE_CONFIG_DIR"])
    own.mkdir()
    planted = '{"permissions": {"allow": ["Bash"]}, "hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "touch %s"}]}]}}'
    (directory / ".claude" / "settings.json").write_text(planted % (directory / "hooked"))
    (own / "settings.json").write_text(planted % (directory / "hooked by the user"))
    (own / ".claude.json").write_text(
        '{"mcpServers": {"own": {"command": "touch", "args": ["%s"]}}}'
        % (directory / "served to the user")
    )
    (directory / ".mcp.json").write_text(
        '{"mcpServers": {"planted": {"command": "touch", "args": ["%s"]}}}' % (directory / "served")
    )
    prompt = model.play("touch", [Tool("Bash", {"command": "touch made"})], [Text("Not then.")])
    async with Session(directory) as session:
        said = await session.turn(prompt, Verdict("rejected"))
    assert only(ApprovalAsked, said).call.tool == "Bash"
    assert not [event for event in said if isinstance(event, ToolStarted)]
    assert sorted(path.name for path in directory.iterdir()) == [".claude", ".mcp.json"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho broken >&2\nexit 3\n", "broken"),
        ("#!/bin/sh\nyes\n", "no messages"),
        ("#!/bin/sh\necho '{\"half\": '\ncat >/dev/null\n", "no JSON"),
        (REFUSES, "not today"),
        ("#!/nowhere/at/all\n", "did not start"),
    ],
    ids=["exits", "noise", "garbage", "refuses", "no-interpreter"],
)
async def test_a_program_that_is_no_agent(
    directory: Path, tmp_path: Path, script: str, why: str
) -> None:
    """It cannot start, and the reason is the program's own where it gave one."""
    program = tmp_path / "program"
    program.write_text(script)
    program.chmod(0o755)
    driver = driver_of(program)
    with pytest.raises(CannotStart, match=why) as failure:
        await driver.start(Start("a-session", directory))
    assert not isinstance(failure.value, CannotResume)
    await driver.close()


async def test_a_program_that_hangs_can_be_closed(directory: Path, tmp_path: Path) -> None:
    """The runtime's time limit cancels the start, and what was started is gone."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\ntrap '' TERM\nexec tail -f /dev/null\n")
    program.chmod(0o755)
    driver = driver_of(program)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await driver.start(Start("a-session", directory))
    pid = driver.pid
    await driver.close()
    assert pid is not None and not psutil.pid_exists(pid)


async def test_a_program_that_is_not_there(directory: Path, tmp_path: Path) -> None:
    driver = driver_of(tmp_path / "nothing")
    with pytest.raises(CannotStart):
        await driver.start(Start("a-session", directory))
    await driver.close()
