"""How `make test-agents` gets its agents: with npm, pinned, into a directory that git does not see;
and what it says where that cannot be.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from bridge_project.operations.setup import PROJECT, Missing
from tests.agents import install

NPM = """#!/bin/sh
echo "$@" >>{log}
[ -e {fail} ] && echo "npm cannot" && exit 1
mkdir -p "{agents}/node_modules"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a node and an npm of the test's own, and an empty place for the agents."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "mkdir"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setattr(install, "AGENTS", tmp_path / ".agents")
    monkeypatch.setenv("PATH", str(tools))
    program(tools / "node", "#!/bin/sh\necho v20.1.2\n")
    program(
        tools / "npm",
        NPM.format(log=tmp_path / "log", fail=tmp_path / "fail", agents=tmp_path / ".agents"),
    )
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_it_installs_what_is_pinned_once(machine: Path) -> None:
    assert install.missing_agents() == "The agents are not installed: make test-agents."
    install.install_agents()
    install.install_agents()
    [called] = (machine / "log").read_text().splitlines()
    assert called.startswith("install ") and "--ignore-scripts" in called
    assert (machine / ".agents" / "package.json").read_bytes() == install.PINS.read_bytes()
    assert install.missing_agents() == ""


def test_another_pin_is_installed_anew(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install.install_agents()
    (machine / "package.json").write_text("{}")
    monkeypatch.setattr(install, "PINS", machine / "package.json")
    assert install.missing_agents()
    install.install_agents()
    assert len((machine / "log").read_text().splitlines()) == 2


def test_a_failed_installation_says_what_npm_said_and_is_tried_again(machine: Path) -> None:
    (machine / "fail").touch()
    with pytest.raises(Missing, match="npm cannot"):
        install.install_agents()
    (machine / "fail").unlink()
    install.install_agents()
    assert install.missing_agents() == ""


def test_without_node_it_says_which_packages_are_missing(machine: Path) -> None:
    (machine / "bin" / "npm").unlink()
    assert (
        install.missing_node()
        == install.missing_agents()
        == "Node is missing: install the packages nodejs and npm (Debian: apt install nodejs npm)."
    )


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("v18.19.0", "Node 20 or newer is needed by the agents, here is v18.19.0."),
        ("hello", "does not say"),
    ],
)
def test_an_old_node_is_said(machine: Path, says: str, words: str) -> None:
    program(machine / "bin" / "node", f"#!/bin/sh\necho {says}\n")
    assert words in install.missing_node()


def test_everything_is_pinned_to_one_version() -> None:
    pinned = json.loads(install.PINS.read_text())
    pins = pinned["dependencies"] | pinned["programs"]
    assert pins and all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in pins.values())


def test_git_does_not_see_them() -> None:
    assert ".agents/" in Path(PROJECT, ".gitignore").read_text().splitlines()
