"""Real agents for tests, from npm: pinned, in a directory that git does not see."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from bridge_project.bootstrap import PROJECT, only_one, run_step

AGENTS = Path(PROJECT, ".agents")
PINS = Path(PROJECT, "tests", "agents", "real", "package.json")
OLDEST_NODE = 20
REQUIRED = "TEST_AGENTS_REQUIRED"  # in the environment: agents that cannot be run are no reason to skip


def missing_agents() -> str:
    """Why the real agents cannot be run here, in a line; empty when they can."""
    if why_not := missing_node():
        return why_not
    return "" if _installed() == _pinned() else "The agents are not installed: make test-agents."


def missing_node() -> str:
    """What of Node the machine lacks."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node is missing: install the packages nodejs and npm (Debian: apt install nodejs npm)."
    try:
        done = subprocess.run(["node", "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True, text=True)
        version = done.stdout.strip()
        major = int(version.lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return "node does not say which version it is."
    return "" if major >= OLDEST_NODE else f"Node {OLDEST_NODE} or newer is needed by the agents, here is {version}."


def _installed() -> str:
    try:
        return (AGENTS / "installed").read_text()
    except OSError:
        return ""


def _pinned() -> str:
    return hashlib.sha256(PINS.read_bytes()).hexdigest()


def install_agents() -> None:
    """`.agents` with what is pinned: packages that bring all they need, so no lock file. Raises Missing. None runs a script of its own."""
    if not missing_agents():
        return
    with only_one() as lock:
        AGENTS.mkdir(exist_ok=True)
        shutil.copyfile(PINS, AGENTS / "package.json")
        options = ["--ignore-scripts", "--omit=optional", "--no-package-lock", "--no-audit", "--no-fund", "--no-update-notifier"]
        run_step(["npm", "install", "--prefix", os.fspath(AGENTS), *options], "Installing the agents", None, lock)
        (AGENTS / "installed").write_text(_pinned())
