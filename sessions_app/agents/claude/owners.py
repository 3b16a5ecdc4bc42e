"""Give a session the MCP servers and skills that its owner names (D75).

Never what a repository brings: what lies where sessions work, or others write, is refused.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from bridge_project.kernel.config import conf
from sessions_app.agents import found
from sessions_app.agents.driver import CannotStart

PLUGIN = "owner"  # before the names of the skills: owner:NAME


def options(place: Path) -> list[str]:
    """Return the program's options; skills are put into plug-ins in ``place``.

    Raises CannotStart, without naming a path.
    """
    given = []
    if (servers := conf.bridge_claude_servers) is not None:
        _check("BRIDGE_CLAUDE_SERVERS", servers)
        _check_servers(servers)
        given.append(f"--mcp-config={servers}")
    for number, directory in enumerate(conf.bridge_claude_skills):
        _check("BRIDGE_CLAUDE_SKILLS", Path(directory))
        name = PLUGIN if not number else f"{PLUGIN}{number + 1}"
        given.append(f"--plugin-dir={_make_plugin(place / name, name, directory)}")
    return given


def _check(setting: str, path: Path) -> None:
    if not found.is_owners(path):
        why = "is not there, or lies where others may write, or where sessions work"
        raise CannotStart(f"{setting} {why} (BRIDGE_ALLOWED_ROOTS).")


def _check_servers(file: Path) -> None:
    try:
        servers = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        servers = None
    if not isinstance(servers, dict) or not isinstance(servers.get("mcpServers"), dict):
        raise CannotStart('BRIDGE_CLAUDE_SERVERS is no JSON object with "mcpServers".')


def _make_plugin(plugin: Path, name: str, skills: str) -> Path:
    """Make a plug-in that has these skills and nothing else that a plug-in may bring."""
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin/plugin.json").write_text(json.dumps({"name": name}))
    (plugin / "skills").mkdir()
    for skill in _skills(skills):
        (plugin / "skills" / skill.name).symlink_to(skill)
    return plugin


def _skills(directory: str) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if (skill := Path(entry.path) / "SKILL.md").is_file() and found.is_owners(skill):
                yield Path(os.path.realpath(entry.path))
