"""The table of real agents: how each is started, told of its model, and what it lacks here."""

import os
import shlex
import shutil
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sessions_app.agents.claude import program as claude
from tests.agents.install import AGENTS, missing_agents, missing_vibe, node_directory, of_here


@dataclass(frozen=True, slots=True)
class Real:
    """An agent of the table.

    ``barred``: as ``allowing``, files of repositories in which it is not started. ``directory``:
    where the bridge finds its program, if anywhere; ``command``: its line, where it
    needs one. ``settings``: the file of its settings
    below the home, with ``written`` in it; ``environment`` tells it of its model. In both {url} is
    the model's address and {program} that of the claude-code program. ``allowing``: files of a
    repository that allow everything, by their path, in which {ran} is a file to make: each its
    text, or the name of a text of the table. ``needs``: programs of the machine. ``memory``: which
    files of MEMORY its model is given. ``modifies``: it runs a call as a person changed it.
    ``failure``: how it ends a turn whose model has failed. ``streams``: it passes words on as they
    come, and not each text when it is whole. ``reads_unasked``: it runs commands
    that only read without asking, and no way is known to have it ask.
    """

    name: str
    settings: str
    written: str
    environment: dict[str, str]
    allowing: dict[str, str]
    needs: list[str]
    memory: list[str]
    modifies: bool = False
    failure: str = "error"
    streams: bool = True
    reads_unasked: bool = False
    barred: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    command: list[str] = field(default_factory=list)

    @property
    def asks(self) -> bool | None:
        """What the bridge promises of it."""
        return None if self.reads_unasked else True


def _read() -> tuple[dict[str, Real], list[str]]:
    """The agents by name, and MEMORY."""
    table = tomllib.loads(Path(__file__).with_name("agents.toml").read_text(encoding="utf-8"))
    agents = {}
    for name, row in table["agents"].items():
        row |= {key: [of_here(word) for word in row.get(key, ())] for key in ("command", "needs")}
        row["directory"] = of_here(row.get("directory", ""))
        row["allowing"] = {
            path: table["texts"].get(text, text) for path, text in row["allowing"].items()
        }
        barred = row.get("barred", {}).items()
        row["barred"] = {path: table["texts"].get(text, text) for path, text in barred}
        agents[name] = Real(name, **row)
    return agents, table["memory"]


REAL, MEMORY = _read()


def lacks(agent: Real) -> str:
    """Why this agent cannot be run here, in a line; empty when it can."""
    return next(filter(None, (_missing(need, agent.name) for need in agent.needs)), "")


def _missing(need: str, name: str) -> str:
    if need == "npm":
        return missing_agents()
    if need == "vibe":
        return missing_vibe()
    if need == "claude-code":
        install = "pip install -r requirements-claude.txt"
        return "" if claude.program() else f"{name} needs the claude-code program: {install}"
    if need == "bwrap":
        install = "Debian: apt install bubblewrap"
        return "" if shutil.which("bwrap") else f"{name} needs bubblewrap ({install})"
    there = (AGENTS / "node_modules" / need).exists()
    return "" if there else f"{name} has no program for this system"


def settle(agent: Real, url: str, home: Path) -> dict[str, str]:
    """Make its home, with nothing in it but how it reaches the model; its environment."""
    settings = home / agent.settings
    settings.parent.mkdir(parents=True)
    settings.write_text(agent.written.replace("{url}", url))
    parts = (agent.directory, str(node_directory() or ""), os.environ["PATH"])
    path = os.pathsep.join(filter(None, parts))
    own = {"HOME": str(home), "NO_BROWSER": "1", "PATH": path, "BRIDGE_AGENTS": agent.name}
    filled = {
        name: value.format(url=url, home=home, program=claude.program())
        for name, value in agent.environment.items()
    }
    if agent.command:
        own["BRIDGE_AGENTS"] = "off"
        own["BRIDGE_ACP_AGENTS"] = f"{agent.name}={shlex.join(agent.command)}"
    return own | filled


def of_agents(environment: Iterable[str]) -> Iterator[str]:
    """Names of variables that say something to an agent: those of whoever runs the tests."""
    prefixes = ("ANTHROPIC_", "CLAUDE", "OPENCODE_", "CODEX_", "XDG_", "GOOGLE_", "GEMINI_")
    more = (
        "OPENAI_",
        "MISTRAL_",
        "QWEN_",
        "VIBE_",
        "COPILOT_",
        "KIMI_",
        "FACTORY_",
        "GH_",
        "GITHUB_",
    )
    return (name for name in environment if name.startswith((*prefixes, *more)))
