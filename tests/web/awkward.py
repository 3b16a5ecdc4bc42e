"""A repository as real ones are: every kind of change, and names of every kind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
MARKUP = "<img src=x onerror=alert(1)>.txt"
HIDDEN = "invoice\u202efdp.exe"  # looks like "invoiceexe.pdf"
NAMES = ("with space.txt", "-rf", "ünïcödé ✓.txt", 'quo"te.txt', "new\nline.txt", MARKUP, HIDDEN)
LONG = "deep/" + "a-rather-long-directory-name/" * 4 + "and_a_file_with_a_long_name.py"
LINES = 5_000


def git(directory: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-c", "commit.gpgsign=false", *arguments],
        cwd=directory,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=check,
    )
    return done.stdout


def write(directory: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def numbered(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


def begin(directory: Path) -> Path:
    """Make a repository with one commit and an author of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", "-b", "main")
    git(directory, "config", "user.name", "Ada")
    git(directory, "config", "user.email", "ada@example.org")
    write(
        directory,
        {
            "app.py": "def greet(name):\n    return 'Hello ' + name\n",
            "old_name.py": numbered(40, "kept = "),
            "gone.txt": "nobody needs this\n",
            "logo.png": bytes(range(256)),
            "large.txt": numbered(LINES),
            "both.txt": "one\ntwo\nthree\n",
            "wide.txt": "short\n",
            LONG: "pass\n",
        },
    )
    commit_all(directory, "First")
    return directory


def commit_all(directory: Path, message: str) -> None:
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", message)


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


def make_conflict(directory: Path) -> None:
    """Merge a branch that changed the same line."""
    git(directory, "checkout", "-q", "-b", "other")
    write(directory, {"app.py": "def greet(name):\n    return 'Bonjour ' + name\n"})
    commit_all(directory, "French")
    git(directory, "checkout", "-q", "main")
    write(directory, {"app.py": "def greet(name):\n    return 'Guten Tag ' + name\n"})
    commit_all(directory, "German")
    git(directory, "merge", "other", check=False)


def refuse_commits(directory: Path, sentence: str) -> None:
    """Add a hook that refuses every commit, as a linter does."""
    hook = directory / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\necho '{sentence}' >&2\nexit 1\n")
    hook.chmod(0o755)
