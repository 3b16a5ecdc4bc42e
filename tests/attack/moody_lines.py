"""The agents that would act unasked: command lines, and programs that are called as real ones."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("moody_agent.py")
NPX = '#!/bin/sh\n[ "$1" = -y ] && shift\nshift\nexec "$(dirname "$0")/opencode" "$@"\n'
# what the repository says, which counts for nothing
ALLOWS_ALL = '{"permission": {"bash": "allow"}}'


KNOWN = {"name": "kimi-code"}  # which asks in its mode "default"


def plays(name: str) -> str:
    """The command line of the moody agent as the agent of this name."""
    return shlex.join([sys.executable, "-IS", str(PROGRAM), name, os.devnull])


def moody(**spec: Any) -> str:
    """A command line that nobody knows, of an agent with this object."""
    return f"{plays('moody')} {shlex.quote(json.dumps(spec))}"


def put(path: Path, line: str, version: str = "echo called 1.2.3.") -> Path:
    """Make a program that runs this line, and says its version in this way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    version = f'[ "$1" != --version ] || {{ {version}; exit; }}'
    path.write_text(f"#!/bin/sh\n{version}\nexec {line}\n")
    path.chmod(0o755)
    return path


def lines(programs: Path) -> dict[str, str]:
    there = shlex.quote(str(programs))
    return {
        # unknown agents: what they or their modes are called is no reason to trust them
        "qwen": moody(modes=["yolo", "default", "ask"]),
        "silent": moody(),
        # agents that are known by what they call themselves
        "careful": moody(modes=["yolo", "default"], **KNOWN),
        "by-option": moody(modes=["yolo", "default"], option=True, **KNOWN),
        "named": moody(modes=["auto", "default"], name="claude-agent-acp"),
        "false-name": moody(**KNOWN),
        "wild": moody(modes=["build", "plan"], **KNOWN),
        "no-such-mode": moody(modes=["build", "plan"], **KNOWN),
        "locked": moody(modes=["yolo", "default"], locked=0, **KNOWN),
        "strays": moody(modes=["yolo", "default"], **KNOWN),
        "strays-by-option": moody(modes=["yolo", "default"], option=True, **KNOWN),
        "stuck": moody(modes=["yolo", "default"], locked=1, **KNOWN),
        "deaf": moody(modes=["yolo", "default"], locked=1, deaf=True, **KNOWN),
        "restless": moody(modes=["yolo", "default"], restless=True, **KNOWN),
        # agents that are known by their line
        "oc": f"{there}/opencode acp",
        "oc-path": "opencode acp",
        "oc-allow": f"env OPENCODE_PERMISSION={{}} OPENCODE_DISABLE_PROJECT_CONFIG=0 {there}/opencode acp",
        "oc-empty": f"env -i {there}/opencode acp",
        "oc-npx": "env FOO=1 OPENCODE_PERMISSION={} npx -y opencode-ai@1.18.33 acp",
        "oc-shell": f"sh -c '{there}/opencode acp'",
        "oc-split": f"env -S '{there}/opencode acp'",
    }


def install(programs: Path) -> dict[str, str]:
    """Make the programs that the lines name; the settings of a bridge that has these agents."""
    programs.mkdir()
    (programs / "opencode").write_text(f'#!/bin/sh\nexec {plays("opencode")} "$@"\n')
    (programs / "npx").write_text(NPX)
    for path in programs.iterdir():
        path.chmod(0o755)
    agents = ";".join(f"{name}={line}" for name, line in lines(programs).items())
    return {
        "BRIDGE_ACP_AGENTS": agents,
        "BRIDGE_ACP_UNASKED": "wild, careful",  # whether they ask or not
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
