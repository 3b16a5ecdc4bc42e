"""A repository as real ones are: every kind of change, and names of every kind."""

import subprocess
from pathlib import Path
from typing import Any

from tests.conformance.repositories import Repository, owner

MARKUP = "<img src=x onerror=alert(1)>.txt"
HIDDEN = "invoice\u202efdp.exe"  # looks like "invoiceexe.pdf"
NAMES = ("with space.txt", "-rf", "ünïcödé ✓.txt", 'quo"te.txt', "new\nline.txt", MARKUP, HIDDEN)
LONG = "deep/" + "a-rather-long-directory-name/" * 4 + "and_a_file_with_a_long_name.py"
LINES = 5_000


def git(directory: Path, *arguments: str) -> str:
    how: dict[str, Any] = {"cwd": directory, "env": owner(), "capture_output": True, "text": True}
    return str(subprocess.run(["git", *arguments], check=True, **how).stdout)


def write(directory: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def numbered(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


def begin(directory: Path) -> Path:
    """Make a repository with one commit and an author of its own."""
    Repository(directory).commit_files(
        {
            "app.py": "def greet(name):\n    return 'Hello ' + name\n",
            "old_name.py": numbered(40, "kept = "),
            "gone.txt": "nobody needs this\n",
            "logo.png": bytes(range(256)),
            "large.txt": numbered(LINES),
            "both.txt": "one\ntwo\nthree\n",
            "wide.txt": "short\n",
            LONG: "pass\n",
        }
    )
    return directory


def make_changes(directory: Path) -> None:
    """Leave a change of every kind in the work tree."""
    git(directory, "mv", "old_name.py", "new_name.py")
    write(
        directory,
        {
            "app.py": "def greet(name):\n    return f'Hello, {name}!'\n",
            "logo.png": bytes(reversed(range(256))),
            "large.txt": numbered(LINES, "changed"),
            "both.txt": "one\n2\nthree\n",
            "wide.txt": "a line that is far too wide for a phone " * 20 + "\n",
            LONG: "return\n",
            "new directory/first.txt": "1\n",
            "new directory/second.txt": "2\n",
            **dict.fromkeys(NAMES, "something\n"),
        },
    )
    (directory / "gone.txt").unlink()
    git(directory, "add", "both.txt")
    write(directory, {"both.txt": "one\n2\n3\n"})


def refuse_commits(directory: Path, sentence: str) -> None:
    """Add a hook that refuses every commit, as a linter does."""
    hook = directory / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\necho '{sentence}' >&2\nexit 1\n")
    hook.chmod(0o755)
