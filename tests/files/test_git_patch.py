"""What git writes, as text: patches and states (STACK 13; D10)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as some

from bridge_project.protocol.jsontext import dumps_unicode
from files_app.git import patch
from files_app.git.patch import Budget
from files_app.git.status import parse

PLENTY = 10**9
# What breaks readers of diffs: their own marks, other ends of lines, bytes that are no text.
LINES = some.lists(
    some.one_of(
        some.sampled_from(
            [
                b"",
                b"-- a/x",
                b"++ b/x",
                b"@@ -1 +1 @@",
                b"diff --git a/x b/x",
                b"\\ No newline",
                b"rename to x",
                b"\r",
                b"\xe2\x80\xa8",
                b"\xff",
            ]
        ),
        some.binary(max_size=6).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"")),
    ),
    max_size=12,
)


def git(*arguments: str, cwd: str, stdin: bytes = b"") -> bytes:
    environment = {"PATH": os.environ["PATH"], "HOME": cwd, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, input=stdin, capture_output=True, timeout=20
    ).stdout


def plenty() -> Budget:
    return Budget(PLENTY, PLENTY)


def text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


# -- patches ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(old=LINES, new=LINES, old_ends=some.booleans(), new_ends=some.booleans())
def test_a_diff_of_anything_gives_back_both_files(
    old: list[bytes], new: list[bytes], old_ends: bool, new_ends: bool
) -> None:
    """Context and removed lines are the old file, context and added ones the new; counts and the
    missing newline are right.
    """
    with tempfile.TemporaryDirectory() as directory:
        for name, lines, ends in (("old", old, old_ends), ("new", new, new_ends)):
            Path(directory, name).write_bytes(
                b"\n".join(lines) + (b"\n" if ends and lines else b"")
            )
        before, after = Path(directory, "old").read_bytes(), Path(directory, "new").read_bytes()
        data = git(
            "diff", "--no-index", "--text", "--unified=1000", "--", "old", "new", cwd=directory
        )
    if before == after:
        assert data == b""
        return
    ((name, section),) = patch.parse(data, plenty()).items()
    assert (name, section.cut) == ("new", False)
    for kinds, content in ((("context", "removed"), before), (("context", "added"), after)):
        said = [line for hunk in section.hunks for line in hunk.lines if line.type in kinds]
        assert [line.content for line in said] == [
            text(line)
            for line in content.split(b"\n")[: None if content[-1:] not in (b"\n", b"") else -1]
        ]
        if said:
            assert bool(said[-1].no_newline) == (not content.endswith(b"\n"))
            assert not any(line.no_newline for line in said[:-1] if line.type == "context")
    for hunk in section.hunks:
        assert hunk.old_lines == sum(
            line.type != "added" for line in hunk.lines
        ) and hunk.new_lines == sum(line.type != "removed" for line in hunk.lines)


SECTIONS = b"""diff --git a/script b/script
old mode 100644
new mode 100755
diff --git a/gone b/gone
deleted file mode 100644
index e69de29..0000000
diff --git a/image b/image
index 61c4ad4..3b1f9ab 100644
Binary files a/image and b/image differ
diff --git a/x b/x b/x b/x b/x b/x
similarity index 90%
rename from x
rename to x b/x b/x b/x b/x
index 61c4ad4..3b1f9ab 100644
--- a/x
+++ b/x b/x b/x b/x b/x\t
@@ -1 +1 @@ def heading():
-old
+new
diff --git a/link b/link
deleted file mode 120000
--- a/link
+++ /dev/null
@@ -1 +0,0 @@
-target
\\ No newline at end of file
diff --git a/link b/link
new file mode 100644
--- /dev/null
+++ b/link
@@ -0,0 +1,2 @@
+1
+2
* Unmerged path conflict
diff --git "a/tab\\t\\303\\274" "b/tab\\t\\303\\274"
index 61c4ad4..3b1f9ab 100644
--- "a/tab\\t\\303\\274"
+++ "b/tab\\t\\303\\274"
@@ -1,0 +2 @@
+--- a/x
"""


def test_the_kinds_of_sections() -> None:
    """Modes, empty and binary files have no lines; a file that became another kind of thing is one;
    names are right, however they are written.
    """
    found = patch.parse(SECTIONS, plenty())
    assert {
        name: [[line.content for line in hunk.lines] for hunk in section.hunks]
        for name, section in found.items()
    } == {
        "script": [],
        "gone": [],
        "image": [],
        "x b/x b/x b/x b/x": [["old", "new"]],
        "link": [["target"], ["1", "2"]],
        "tab\tü": [["--- a/x"]],
    }
    assert found["x b/x b/x b/x b/x"].hunks[0].header == "@@ -1 +1 @@ def heading():"
    assert not any(section.cut for section in found.values())


@given(end=some.integers(0, len(SECTIONS)))
def test_a_patch_without_its_end(end: int) -> None:
    """Whatever is missing, what is there is right, and the last section says that its end is
    missing.
    """
    whole, found = patch.parse(SECTIONS, plenty()), patch.parse(SECTIONS[:end], plenty(), cut=True)
    *complete, last = found.items() or [("", None)]
    for name, section in complete:
        if name != last[0]:
            assert section == whole[name]
    assert last[1] is None or last[1].cut


def test_only_what_is_wanted_is_paid_for() -> None:
    budget = Budget(PLENTY, 2)
    assert (
        list(
            patch.parse(SECTIONS, budget, wanted={"x b/x b/x b/x b/x"})["x b/x b/x b/x b/x"]
            .hunks[0]
            .lines
        )
        != []
    )
    assert budget.lines == 0
    assert patch.parse(SECTIONS, Budget(PLENTY, 1), wanted={"tab\tü"})["tab\tü"].cut is False


@given(
    lines=some.lists(some.text(alphabet='a"\\\x01ü\t😀', max_size=30), min_size=1, max_size=30),
    room=some.integers(0, 3000),
    most=some.integers(0, 40),
)
def test_what_is_said_stays_in_the_budget(lines: list[str], room: int, most: int) -> None:
    """Bytes of JSON, and lines; the cut is where it ends, and never in a line."""
    data = (
        b"diff --git a/f b/f\n--- a/f\n+++ b/f\n"
        + f"@@ -0,0 +1,{len(lines)} @@\n".encode()
        + b"".join(b"+" + line.encode() + b"\n" for line in lines)
    )
    section = patch.parse(data, Budget(room, most))["f"]
    said = [line for hunk in section.hunks for line in hunk.lines]
    assert len(dumps_unicode([hunk.wire() for hunk in section.hunks]).encode()) <= max(room, 2)
    assert len(said) <= most
    assert [line.content for line in said] == lines[: len(said)]
    assert section.cut == (len(said) < len(lines))


# -- states ----------------------------------------------------------------------------------------


@given(
    names=some.dictionaries(
        some.text(alphabet='aü \n"#?12u', min_size=1, max_size=8),
        some.sampled_from("12u?"),
        max_size=8,
    ),
    cut=some.integers(0, 2000),
)
def test_a_state_names_what_was_listed(names: dict[str, str], cut: int) -> None:
    """Whatever names look like, and wherever the list ends."""
    head = f"100644 100644 100644 {'a' * 40} {'b' * 40}"
    kinds = {
        "1": f"1 .M N... {head} ",
        "2": f"2 R. N... {head} R90 ",
        "u": f"u UU N... {head} 100644 {'c' * 40} ",
        "?": "? ",
    }
    records = [
        kinds[kind] + name + ("\0old " + name) * (kind == "2") for name, kind in names.items()
    ]
    data = "".join(
        record + "\0" for record in ["# branch.oid (initial)", "# branch.head m", *records]
    ).encode()
    words = {"1": "modified", "2": "renamed", "u": "modified", "?": "untracked"}
    assert {entry.name: entry.status for entry in parse(data).entries.values()} == {
        name: words[kind] for name, kind in names.items()
    }
    assert parse(data[:cut], cut=True).entries.keys() <= names.keys()
