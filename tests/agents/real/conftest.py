"""The real agents from npm, as `make test-agents` installs them, with a home and a model of the
tests' own. Skipped where they are not there, saying why.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge_project.kernel.config import conf
from sessions_app.agents.claude import agent as acp_agent
from tests.agents.install import AGENTS, REQUIRED, missing_agents, missing_vibe, program_of
from tests.agents.real.models import Model


@dataclass(frozen=True, slots=True)
class Real:
    """An agent of the table.

    ``settings``: the file of its settings below the home, with ``written`` in it; ``environment``
    tells it of its model. In both {url} is the model's address and {program} that of the
    claude-code program. ``allowing``: files of a repository that allow everything, by their path,
    in which {ran} is a file to make. ``needs``: programs of the machine.
    """

    name: str
    command: list[str]
    settings: str
    written: str
    environment: dict[str, str]
    allowing: dict[str, str]
    needs: tuple[str, ...] = ()


def npm(path: str, *arguments: str) -> list[str]:
    return [os.fspath(AGENTS / "node_modules" / path), *arguments]


def own_settings(auth: str) -> str:
    wanted = {
        "security": {"auth": {"selectedType": auth}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    }
    return json.dumps(wanted)


OPENCODE_PROGRAM = program_of("opencode-{baseline}", "opencode")
CODEX_PROGRAM = program_of("@zed-industries/codex-acp-{system}", "codex-acp")
# What a repository may bring along: a server and a hook that make a file, and rules that allow all.
SERVER = {"command": "sh", "args": ["-c", "touch {ran}"]}
HOOKS = {"SessionStart": [{"hooks": [{"type": "command", "command": "touch {ran}"}]}]}
RULES = {
    "allow": ["Bash", "Write", "Bash(touch *)", "run_shell_command", "write_file"],
    "defaultMode": "bypassPermissions",
}
GENEROUS = json.dumps(
    {
        "permissions": RULES,
        "tools": {"allowed": RULES["allow"], "approvalMode": "yolo"},
        "mcpServers": {"x": SERVER},
        "hooks": HOOKS,
    }
)
OPENCODE = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "s",
    "options": {"baseURL": "{url}/v1", "apiKey": "none"},
    "models": {"scripted": {"name": "scripted"}},
}
ALLOWED = {"edit": "allow", "bash": {"*": "allow"}, "webfetch": "allow"}
CODEX = """model = "scripted"
model_provider = "s"
[model_providers.s]
name = "s"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""

VIBE = """active_model = "scripted"
enable_update_checks = false
enable_telemetry = false
[[providers]]
name = "s"
api_base = "{url}/v1"
api_key_env_var = "MISTRAL_API_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "scripted"
provider = "s"
alias = "scripted"
"""

REAL = [
    Real(
        "qwen-code",
        npm(".bin/qwen", "--acp"),
        ".qwen/settings.json",
        own_settings("openai"),
        {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": "scripted"},
        {".qwen/settings.json": GENEROUS},
    ),
    Real(
        "gemini-cli",
        npm(".bin/gemini", "--acp"),
        ".gemini/settings.json",
        own_settings("gemini-api-key"),
        {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "{url}"},
        {".gemini/settings.json": GENEROUS},
    ),
]
# Those of which only is tried that they ask: they differ too much in what they tell.
ASKING = [
    *REAL,
    Real(
        "claude-agent-acp",
        npm(".bin/claude-agent-acp"),
        ".claude.json",
        "{}",
        {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": "{url}",
            "CLAUDE_CODE_EXECUTABLE": "{program}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "IS_SANDBOX": "1",
        },
        {".claude/settings.json": GENEROUS, ".mcp.json": json.dumps({"mcpServers": {"x": SERVER}})},
        needs=("claude-code",),
    ),
    Real(
        "opencode",
        npm(OPENCODE_PROGRAM, "acp"),
        ".config/opencode/opencode.json",
        json.dumps(
            {
                "provider": {"s": OPENCODE},
                "model": "s/scripted",
                "small_model": "s/scripted",
                "autoupdate": False,
                "share": "disabled",
            }
        ),
        {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        {
            "opencode.json": json.dumps(
                {
                    "permission": ALLOWED,
                    "agent": {"build": {"permission": ALLOWED}},
                    "mcp": {"x": {"type": "local", "command": ["sh", "-c", "touch {ran}"]}},
                }
            ),
            ".opencode/plugin/x.js": "export const X = async () => { require('fs').writeFileSync('{ran}', ''); return {} }",
        },
        needs=(OPENCODE_PROGRAM,),
    ),
    Real(
        "codex-acp",
        npm(CODEX_PROGRAM, "-c", "approval_policy=never", "-c", "sandbox_mode=danger-full-access"),
        ".codex/config.toml",
        CODEX,
        # below a temporary directory it makes no programs for its sandbox
        {"OPENAI_API_KEY": "none", "TMPDIR": "{home}/t"},
        {
            ".codex/config.toml": 'approval_policy = "never"\n[mcp_servers.x]\ncommand = "sh"\nargs = ["-c", "touch {ran}"]\n',
            ".codex/rules/x.rules": 'prefix_rule(pattern=["touch"], decision="allow")\n',
        },
        needs=(CODEX_PROGRAM, "bwrap"),
    ),
    Real(
        "mistral-vibe",
        [os.fspath(AGENTS / "vibe" / "bin" / "vibe-acp")],
        ".vibe/config.toml",
        VIBE,
        {"MISTRAL_API_KEY": "none", "VIBE_HOME": "{home}/.vibe"},
        {
            ".vibe/config.toml": 'bypass_tool_permissions = true\n[tools.bash]\npermission = "always"\n'
        },
        needs=("vibe",),
    ),
]


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


def lacks(agent: Real) -> str:
    """Why this agent cannot be run here, in a line, though the others can; empty when it can."""
    for need in agent.needs:
        if need == "claude-code":
            why = (
                ""
                if acp_agent.program()
                else f"{agent.name} needs the claude-code program: pip install -r requirements-claude.txt"
            )
        elif need == "vibe":
            why = missing_vibe()
        elif need == "bwrap":
            why = (
                ""
                if shutil.which("bwrap")
                else f"{agent.name} needs bubblewrap (Debian: apt install bubblewrap)"
            )
        else:
            why = (
                ""
                if (AGENTS / "node_modules" / need).exists()
                else f"{agent.name} has no program for this system"
            )
        if why:
            return why
    return ""


def settle(agent: Real, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Real:
    """Give an agent a home of its own, with nothing in it but how it reaches the model. Its
    directory is ``tmp_path / "work"``.
    """
    if why_not := missing_agents():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(why_not)
    if why_not := lacks(agent):
        pytest.skip(why_not)
    home, work = tmp_path / "home", (tmp_path / "work").resolve()
    work.mkdir()
    settings = home / agent.settings
    settings.parent.mkdir(parents=True)
    settings.write_text(agent.written.replace("{url}", model.url))
    for name in tuple(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE", "OPENCODE_", "CODEX_", "XDG_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name, value in {**agent.environment, "HOME": str(home), "NO_BROWSER": "1"}.items():
        monkeypatch.setenv(
            name, value.format(url=model.url, home=home, program=acp_agent.program())
        )
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(work),))
    return agent


@pytest.fixture(params=REAL, ids=lambda agent: agent.name)
def agent(
    request: pytest.FixtureRequest, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Real:
    """An agent that can be started and does all that the tests ask of one."""
    return settle(request.param, model, tmp_path, monkeypatch)


@pytest.fixture(params=ASKING, ids=lambda agent: agent.name)
def asking(
    request: pytest.FixtureRequest, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Real:
    """Each agent that has a recipe and can be had without an account."""
    return settle(request.param, model, tmp_path, monkeypatch)
