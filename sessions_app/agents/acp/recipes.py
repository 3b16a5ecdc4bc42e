"""Make each known ACP agent ask before it acts: modes, options, environment (D59).

A recipe is found by the program in the agent's command line, else by the name that the agent gives
itself. The name that the user chose in BRIDGE_ACP_AGENTS decides nothing.

What a repository brings along (servers, hooks, plug-ins, rules) would run or allow things unasked
too, so a recipe also switches that off where the agent can. tests/agents/real tries every recipe.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessions_app.agents.past.claude import ClaudeStore
from sessions_app.agents.past.store import Store

NOT_SEEN = "Nothing tells the bridge whether a terminal has its sessions open."
_DIRECTORY = "{directory}"  # stands for the working directory, inside a JSON string
_FILES = "{files}"  # for a directory of the session's own, which has the files of the recipe


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hold how one agent is found, started and made to ask.

    ``name``, ``product`` and ``command`` (its program and arguments) are those of an agent that is
    looked for (D75). ``programs``: names of its program and packages, and what it calls itself.
    ``modes``: those in which it asks, of which the first that it offers is set, by the
    configuration option that it has for that, and else by ``session/set_mode``; ``held`` are
    options set besides. What an option is has to be confirmed.
    ``options`` follow all others in its command line, ``environment`` wins over the line's,
    ``defaults`` does not; ``files`` are what variables point to; ``meta`` is sent when a session
    begins. ``log_in`` is the command with which its user logs in. It does not start in a repository
    with a file of ``barred``: what it runs unasked, and cannot be told not to. One that
    ``reads_unasked`` asks about some commands only, so nobody is promised that it asks. ``offers``
    are the ids of options that a person may choose besides the model and how long it thinks (D69).

    ``resume`` is the command that continues a session in a terminal, {id} for its id, of an agent
    whose past sessions are listed; of others ``no_past`` says why not (D67). One that was not seen
    to show there what was said here is ``unshown``. One that lists a single ``directory_at_a_time``
    is asked about each. ``store``: another agent's, in which it keeps its sessions.
    """

    programs: frozenset[str]
    modes: tuple[str, ...]
    log_in: str
    name: str = ""
    product: str = ""
    command: tuple[str, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    barred: str = ""
    reads_unasked: bool = False
    offers: frozenset[str] = frozenset()
    resume: str = ""
    no_past: str = NOT_SEEN
    unshown: bool = False
    directory_at_a_time: bool = False
    store: Store | None = None

    @property
    def asks(self) -> bool | None:
        """Return what is promised of it: None, nothing."""
        return None if self.reads_unasked else True

    def is_called(self, name: str) -> bool:
        """Return whether a name is one of its own."""
        return name.lower() in self.programs


# Reading asks only for what may hold secrets, as by opencode's own defaults; what has no name here,
# such as a tool of an MCP server, asks. "edit", "bash" and the like are named because the user's
# configuration may name them, and a name counts more than "*". There are no subagents: opencode
# 1.18 asks about a subagent's calls without telling anybody, and its turn never ends.
_OPENCODE_PERMISSION = {
    **dict.fromkeys(("*", "edit", "bash", "webfetch", "websearch", "external_directory"), "ask"),
    "read": {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"},
    **dict.fromkeys(("glob", "grep", "list", "todowrite", "skill", "question"), "allow"),
    "task": "deny",
}


# What droid runs unasked by itself; in its list of what to deny it asks.
_DROID_ALLOWS = [
    *("ls", "pwd", "dir"),
    *(f"git {word}" for word in ("status", "diff", "log", "show", "blame", "ls-files")),
]


def _adapter(name: str) -> frozenset[str]:
    """Return the names of an adapter that moved from one publisher to another."""
    return frozenset({name, f"@zed-industries/{name}", f"@agentclientprotocol/{name}"})


RECIPES = (
    Recipe(
        name="qwen",
        product="Qwen Code",
        command=("qwen", "--acp"),
        programs=frozenset({"qwen", "qwen-code", "@qwen-code/qwen-code"}),
        modes=("default",),
        log_in="qwen",
        # It trusts every directory by itself: rules of the repository, its hooks and its servers.
        environment={
            "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{_FILES}/settings.json",
            "QWEN_CODE_TRUSTED_FOLDERS_PATH": f"{_FILES}/folders.json",
        },
        files={
            "settings.json": json.dumps(
                {
                    "$version": 4,
                    "security": {"folderTrust": {"enabled": True}},
                    "permissions": {"ask": ["Bash"]},  # else it runs `ls` and the like unasked
                }
            ),
            "folders.json": f'{{"{_DIRECTORY}": "DO_NOT_TRUST"}}',
        },
        resume="qwen --resume {id}",
        directory_at_a_time=True,
    ),
    Recipe(
        name="gemini",
        product="Gemini CLI",
        command=("gemini", "--acp"),
        programs=frozenset({"gemini", "gemini-cli", "@google/gemini-cli"}),
        modes=("default",),
        log_in="gemini",
        reads_unasked=True,
        no_past="It does not list its sessions.",
    ),
    Recipe(
        name="claude-agent-acp",
        product="Claude Code's adapter",
        command=("claude-agent-acp",),
        programs=_adapter("claude-agent-acp")
        | {"claude-code-acp", "@zed-industries/claude-code-acp"},
        modes=("default",),
        log_in="claude /login",
        # The user's settings, and not the repository's, whose hooks and servers would be started;
        # by itself it runs `ls` and the like unasked.
        meta={
            "claudeCode": {
                "options": {
                    "settingSources": ["user"],
                    "settings": {"permissions": {"ask": ["Bash"]}},
                }
            }
        },
        resume="claude --resume {id}",
        store=ClaudeStore(),
    ),
    Recipe(
        name="opencode",
        product="OpenCode",
        command=("opencode", "acp"),
        programs=frozenset({"opencode", "opencode-ai"}),
        modes=("build",),
        log_in="opencode auth login",
        environment={
            "OPENCODE_PERMISSION": json.dumps(_OPENCODE_PERMISSION),
            # The repository's opencode.json counts more than OPENCODE_PERMISSION where it has
            # permissions for an agent, and its servers and plug-ins are started unasked.
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        },
        defaults={"OPENCODE_CONFIG_CONTENT": f'{{"instructions": ["{_DIRECTORY}/AGENTS.md"]}}'},
        resume="opencode --session {id}",
        unshown=True,
    ),
    Recipe(
        name="copilot",
        product="GitHub Copilot CLI",
        command=("copilot", "--acp"),
        programs=frozenset({"copilot", "@github/copilot"}),
        modes=("https://agentclientprotocol.com/protocol/session-modes#agent",),
        held={"allow_all": "off"},
        environment={"COPILOT_ALLOW_ALL": "false"},
        barred=".github/hooks/*.json",
        log_in="copilot login",
        resume="copilot --resume={id}",
    ),
    Recipe(
        name="kimi",
        product="Kimi Code",
        command=("kimi", "acp"),
        programs=frozenset({"kimi", "kimi code cli", "kimi-code", "@moonshot-ai/kimi-code"}),
        modes=("default",),
        log_in="kimi login",
        resume="kimi --session {id}",
    ),
    Recipe(
        name="droid",
        product="Factory's droid",
        command=("droid", "exec", "--output-format", "acp"),
        programs=frozenset({"droid", "@factory/cli"}),
        modes=("normal",),
        log_in="droid",
        # What a repository's settings allow, start or hook in, runs unasked, whatever is set here.
        barred=".factory/*.json",
        options=("--settings", f"{_FILES}/settings.json"),
        files={"settings.json": json.dumps({"commandDenylist": _DROID_ALLOWS})},
        no_past="Whether its sessions go on here was not tried.",
    ),
    Recipe(
        name="vibe",
        product="Mistral Vibe",
        command=("vibe-acp",),
        # in a terminal it becomes vibe-rs, and starts vibe-app-server
        programs=frozenset(
            {
                *("vibe", "vibe-acp", "vibe-rs", "vibe-app-server"),
                *("mistral-vibe", "@mistralai/mistral-vibe"),
            }
        ),
        modes=("ask", "default"),
        log_in="vibe --setup",
        environment={"VIBE_TOOLS": '{"bash": {"allowlist": []}}'},  # of commands that do not ask
        resume="vibe --resume {id}",
        unshown=True,
    ),
)

ROWS = {one.name: one for one in RECIPES if one.name}  # of the agents that are looked for


def of_name(name: str) -> Recipe | None:
    """Return the recipe of an agent by its name in ``initialize``."""
    return next((one for one in RECIPES if one.is_called(name)), None)


def of_line(command: Sequence[str]) -> Recipe | None:
    """Return the recipe of an agent by its command line."""
    return _find(command)[0]


def barred_by(command: Sequence[str], directory: Path) -> str:
    """Return the repository's file that bars its agent, else an empty text."""
    recipe = of_line(command)
    if recipe is None or not recipe.barred:
        return ""
    for level in (directory, *directory.parents):
        if found := next(level.glob(recipe.barred), None):
            return found.name
        if (level / ".git").exists():
            break
    return ""


def launch(
    command: Sequence[str], directory: Path, files: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment with which the agent asks.

    The files of the recipe are written to ``files``. An unknown program is returned as it is.
    """
    recipe, after_env = _find(command)
    if recipe is None:
        return list(command), {}

    def filled(text: str) -> str:
        inside = json.dumps(str(directory), ensure_ascii=False)[1:-1]
        return text.replace(_DIRECTORY, inside).replace(_FILES, str(files))

    for name, text in recipe.files.items():
        (files / name).write_text(filled(text))
    line = [*command, *map(filled, recipe.options)]
    ours = {name: filled(value) for name, value in recipe.environment.items()}
    unset = {name: text for name, text in recipe.defaults.items() if name not in os.environ}
    if after_env and ours:  # `env` of the line would set its variables after ours
        line[after_env:after_env] = ["env", *(f"{name}={value}" for name, value in ours.items())]
    return line, {name: filled(text) for name, text in unset.items()} | ours


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Of node: the options that take the next word, and those that do not.
_NODE = (
    {
        *("-r", "--require", "--import", "-C", "--conditions"),
        *("--loader", "--experimental-loader", "--env-file"),
    },
    {
        *("--no-warnings", "--no-deprecation", "--trace-warnings", "--trace-deprecation"),
        *("--enable-source-maps", "--preserve-symlinks", "--max-old-space-size"),
    },
)
# Program → the same of it. After any other option, such as one with code, the line is not known:
# what follows may be a value, and not the program.
_OPTIONS: dict[str, tuple[set[str], set[str]]] = {
    "env": ({"-u", "--unset", "-C", "--chdir"}, {"-", "-i", "--ignore-environment"}),
    "npx": (
        {"-p", "--package"},
        {"-y", "--yes", "-q", "--quiet", "--no", "--no-install", "--prefer-offline", "--offline"},
    ),
    "node": _NODE,
    "nodejs": _NODE,
}


def _find(command: Sequence[str]) -> tuple[Recipe | None, int]:
    """Find the program behind env, npx or node: its recipe, the end of env's words."""
    at: int | None = 0
    after_env = 0
    while at is not None and at < len(command):
        program = os.path.basename(command[at])
        if program not in _OPTIONS:
            names = names_of(command[at])
            return next((one for one in RECIPES if names & one.programs), None), after_env
        at = _skip_options(command, at + 1, *_OPTIONS[program])
        if program == "env":
            while at is not None and at < len(command) and _ASSIGNMENT.match(command[at]):
                at += 1
            after_env = at or 0
    return None, 0


def _skip_options(command: Sequence[str], at: int, takes: set[str], flags: set[str]) -> int | None:
    """Return where the options end; None after one that is not known."""
    while at < len(command) and command[at].startswith("-"):
        word = command[at]
        option, given, _ = word.partition("=")
        if word == "--":
            return at + 1
        if option not in takes | flags:
            return None
        at += 1 if given or option in flags else 2
    return at


def names_of(word: str) -> set[str]:
    """Return the names of a program, script or npm package: its own, its package's."""
    scope = "@" if word.startswith("@") else ""
    package = scope + word.removeprefix("@").partition("@")[0]  # without a version
    names = {package, re.sub(r"\.(js|mjs|cjs|exe)$", "", os.path.basename(word))}
    if (inside := word.rpartition("/node_modules/")[2]) != word:
        parts = inside.split("/")
        names.add("/".join(parts[:2]) if inside.startswith("@") else parts[0])
    return names
