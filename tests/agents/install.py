"""Real agents for tests, from npm: pinned, in a directory that git does not see."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from bridge_project.operations.setup import PROJECT, only_one, run_step

AGENTS = Path(PROJECT, ".agents")
PINS = Path(PROJECT, "tests", "agents", "real", "package.json")
OLDEST_NODE = 20
# in the environment: agents that cannot be run are no reason to skip
REQUIRED = "TEST_AGENTS_REQUIRED"


def missing_agents() -> str:
    """Why the real agents cannot be run here, in a line; empty when they can."""
    if why_not := missing_node():
        return why_not
    return "" if _installed() == _pinned() else "The agents are not installed: make test-agents."


def missing_node() -> str:
    """What of Node the machine lacks."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return (
            "Node is missing: install the packages nodejs and npm (Debian: apt install nodejs npm)."
        )
    try:
        done = subprocess.run(
            ["node", "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=True,
            text=True,
        )
        version = done.stdout.strip()
        major = int(version.lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return "node does not say which version it is."
    return (
        ""
        if major >= OLDEST_NODE
        else f"Node {OLDEST_NODE} or newer is needed by the agents, here is {version}."
    )


def _installed() -> str:
    try:
        return (AGENTS / "installed").read_text()
    except OSError:
        return ""


def _pinned() -> str:
    return hashlib.sha256(PINS.read_bytes()).hexdigest()


def _systems() -> dict[str, str] | None:
    """What npm's packages of programs call this system; None where it has none for it."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(
        platform.machine().lower()
    )
    if machine is None or sys.platform not in ("linux", "darwin"):
        return None
    system = f"{sys.platform}-{machine}"
    # for processors without AVX2
    return {"system": system, "baseline": f"{system}-baseline" if machine == "x64" else system}


def programs() -> list[str]:
    """Packages that hold an agent's program for this system, with their versions.

    They are named because what is optional is left out, which is how the agents would bring them.
    """
    systems = _systems()
    pins = json.loads(PINS.read_text()).get("programs", {}) if systems else {}
    return [f"{name.format_map(systems)}@{version}" for name, version in pins.items()]


def program_of(package: str, name: str) -> str:
    """The path of such a program below node_modules."""
    return f"{package.format_map(_systems() or {'system': 'none', 'baseline': 'none'})}/bin/{name}"


def missing_vibe() -> str:
    """Why mistral-vibe cannot be run here, in a line; empty when it can."""
    if (AGENTS / "vibe" / "bin" / "vibe-acp").exists():
        return ""
    return (
        "mistral-vibe is not installed: make test-agents."
        if _newer_python()
        else "mistral-vibe needs Python 3.12 or newer."
    )


def _newer_python() -> str:
    """A Python that mistral-vibe runs on, if there is one."""
    for name in (sys.executable, "python3", "python3.14", "python3.13", "python3.12"):
        check = [name, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"]
        if (
            shutil.which(name)
            and subprocess.run(
                check, capture_output=True, stdin=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        ):
            return name
    return ""


def install_agents() -> None:
    """`.agents` with what is pinned: packages that bring all they need, so no lock file. Raises
    Missing. None runs a script of its own.
    """
    if not missing_agents():
        return
    with only_one() as lock:
        AGENTS.mkdir(exist_ok=True)
        shutil.copyfile(PINS, AGENTS / "package.json")
        options = [
            "--ignore-scripts",
            "--omit=optional",
            "--no-package-lock",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
        ]
        run_step(
            ["npm", "install", "--prefix", os.fspath(AGENTS), *options, *programs()],
            "Installing the agents",
            lock,
        )
        if python := _newer_python():
            version = json.loads(PINS.read_text()).get("python", {}).get("mistral-vibe")
            run_step(
                [python, "-m", "venv", os.fspath(AGENTS / "vibe")], "Installing mistral-vibe", lock
            )
            run_step(
                [
                    os.fspath(AGENTS / "vibe/bin/python"),
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    f"mistral-vibe=={version}",
                ],
                "Installing mistral-vibe",
                lock,
            )
        (AGENTS / "installed").write_text(_pinned())
