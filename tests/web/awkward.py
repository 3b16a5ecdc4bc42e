"""A repository as real ones are: every kind of change, and names of every kind."""

from pathlib import Path

from tests.conformance.repositories import Repository

MARKUP = "<img src=x onerror=alert(1)>.txt"
HIDDEN = "invoice\u202efdp.exe"  # looks like "invoiceexe.pdf"
NAMES = ("with space.txt", "-rf", "ünïcödé ✓.txt", 'quo"te.txt', "new\nline.txt", MARKUP, HIDDEN)
LONG = "deep/" + "a-rather-long-directory-name/" * 4 + "and_a_file_with_a_long_name.py"
LINES = 5_000


def numbered(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


def begin(directory: Path) -> Repository:
    """Make a repository with one commit and an author of its own."""
    repository = Repository(directory)
    repository.commit_files(
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
    return repository


def make_changes(repository: Repository) -> None:
    """Leave a change of every kind in the work tree."""
    repository.git("mv", "old_name.py", "new_name.py")
    changes: dict[str, str | bytes] = {
        "app.py": "def greet(name):\n    return f'Hello, {name}!'\n",
        "logo.png": bytes(reversed(range(256))),
        "large.txt": numbered(LINES, "changed"),
        "both.txt": "one\n2\nthree\n",
        "wide.txt": "a line that is far too wide for a phone " * 20 + "\n",
        LONG: "return\n",
        "new directory/first.txt": "1\n",
        "new directory/second.txt": "2\n",
        **dict.fromkeys(NAMES, "something\n"),
    }
    for name, content in changes.items():
        repository.write(name, content)
    (repository.path / "gone.txt").unlink()
    repository.git("add", "both.txt")
    repository.write("both.txt", "one\n2\n3\n")
