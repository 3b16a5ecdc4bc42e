"""The tree itself: nothing of one machine in it, every requirement pinned, links that lead on."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".html", ".js", ".ts", ".css", ".yml", ".yaml", ""}

# what must not be in a file that others get
FORBIDDEN = {
    "a directory of one machine": re.compile(
        re.escape(f"{REPOSITORY}/")
        + r"|(?<![\w.}])/(?:root|opt(?!/homebrew/bin)|Users(?!/you\b))/\w|(?<![\w.}])/home/(?!me\b|you\b|a\b|alice\b|dev\b|user\b|jane\b)\w+/"
    ),
    "a package index": re.compile(
        r"--(?:extra-)?index-url|--find-links|--trusted-host|\bpypi\.(?:org|python)|pythonhosted"
    ),
}


def tracked() -> list[Path]:
    """Every file that a clone has or will have."""
    files = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(files, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    paths = [REPOSITORY / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        if path.suffix in TEXT and path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found, "\n".join(found)


def test_lines_have_a_hundred_columns() -> None:
    """In pages without their tables and examples, which cannot be wrapped; Python is ruff's."""
    found = []
    for path in tracked():
        if path.suffix in {".md", ".js", ".ts", ".css", ".html"}:
            text = re.sub(r"(?ms)^( *)```.*?^\1```|^ *\|.*?$", "", path.read_text(encoding="utf-8"))
            wide = [line for line in text.splitlines() if len(line) > 100 and line[:4].strip()]
            found += [f"{path.relative_to(REPOSITORY)}: {line[:80]}" for line in wide]
    assert not found, "\n".join(found)


def test_first_lines_of_docstrings_have_eighty_characters() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = []
    for path in tracked():
        if path.suffix == ".py" and not {"tests", "migrations"} & set(path.parts):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts = [
                ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)
            ]
            found += [f"{path.name}: {text}" for text in texts if len(text.split("\n")[0]) > 80]
    assert not found, "\n".join(found)


def test_every_requirement_is_pinned_once() -> None:
    names = ("requirements.txt", "requirements-claude.txt", "tests/requirements.txt")
    lines = [line for name in names for line in (REPOSITORY / name).read_text().splitlines()]
    every = [Requirement(one.split(" #")[0]) for one in lines if re.match("[a-zA-Z]", one)]
    assert len({canonicalize_name(one.name) for one in every}) == len(every) > 50
    for one in every:
        (specifier,) = one.specifier
        assert specifier.operator == "==" and "*" not in specifier.version, one


def test_every_link_in_the_documents_leads_somewhere() -> None:
    pages = [path for path in tracked() if path.suffix == ".md"]
    broken = [
        f"{page.relative_to(REPOSITORY)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert len(pages) > 5 and not broken
