"""Configurations, reasons and patches: what goes between git, its repository and a person (D10)."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.resources import DiffLine
from files_app.git import patch
from files_app.git.patch import Budget, Change, Lists
from files_app.git.sandbox import config
from files_app.git.sandbox.error_text import reason
from tests.conformance.repositories import Repository
from tests.files.conftest import refused

# -- configurations --------------------------------------------------------------------------------

VALUES = some.text(alphabet='a "\\\n\t#;=ü[]', max_size=12)
SUBSECTIONS = some.text(alphabet='aB.ü "\\]=', min_size=1, max_size=8)


@given(pairs=some.lists(some.tuples(SUBSECTIONS, VALUES), max_size=5))
def test_git_reads_what_is_written(pairs: list[tuple[str, str]]) -> None:
    branches = [(f"branch.{subsection}.merge", value) for subsection, value in pairs]
    written = [("core.eol", "lf"), *branches]
    assert config.read_file("config", config.text(written), "/") == written


@pytest.mark.parametrize(
    ("key", "value"), [("extensions.unheard", "true"), ("extensions.refstorage", "files:///etc")]
)
def test_a_repository_of_another_kind_is_refused(key: str, value: str) -> None:
    with refused("GIT_ERROR"):
        config.of_repository([(key, value)])


# -- reasons ---------------------------------------------------------------------------------------


def test_a_reason_is_gits_own_without_its_noise_and_names_no_place_outside(tmp_path: Path) -> None:
    top, private = f"{tmp_path}/my root/top", f"{tmp_path}/private dir"
    os.makedirs(top)
    jail = Jail([f"{tmp_path}/my root"])
    noise = f"fatal: \x1b[31mUnable\x1b[0m to create '{top}/.git/index.lock'\nhint: try again\n\n"
    noise += f"error: 10%\r 20%\rdone.\r\nin {top}: no\n"
    said = "Unable to create '.git/index.lock'\ndone.\nin the work tree: no"
    assert reason(noise.encode(), jail, top) == said
    places = "/etc/passwd:3: 'file:///etc/x' see https://example.org/a/b (/users/u/.git), "
    places += f"{private}/index ~/x ../y a/b/c"
    said = "…:3: 'file:…' see https://example.org/a/b (…), … ~/x ../y a/b/c"
    assert reason(places.encode(), jail, top, private) == said


PIECES = ["/", "/etc", "etc", "'", " ", ":", "\n", "…", ".", "x", "https://", "file:"]


@given(said=some.lists(some.sampled_from(PIECES), max_size=30).map("".join))
def test_no_reason_names_an_absolute_path(said: str) -> None:
    cleaned = reason(said.encode(), Jail(["/allowed"]), "/allowed/top")
    parts = " ".join(part for part in cleaned.split() if "://" not in part)
    words = parts.replace("'", " ").replace(":", " ").split()
    assert not any(word.startswith("/") for word in words), cleaned


# -- patches ---------------------------------------------------------------------------------------

# What breaks readers of diffs: their own marks, other ends of lines, bytes that are no text.
MARKS = [b"", b"-- a/x", b"++ b/x", b"@@ -1 +1 @@", b"diff --git a/x b/x", b"\\ No newline"]
MARKS += [b"rename to x", b"\r", b"\xe2\x80\xa8", b"\xff"]
BYTES = some.binary(max_size=6).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b""))
LINES = some.lists(some.sampled_from(MARKS) | BYTES, max_size=12)
LISTED = ("diff", "--raw", "--numstat", "-z", "--patch", "--no-abbrev", "--find-renames")


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


def read(data: bytes) -> dict[str, Change]:
    lists = Lists(data, cut=False)
    patch.read_lines(lists, lists.by_name, Budget(10**9, 10**9), cut=False)
    return lists.by_name


def said(change: Change, *kinds: str) -> list[DiffLine]:
    return [line for hunk in change.hunks for line in hunk.lines if line.type in kinds]


@given(old=LINES, new=LINES, old_ends=some.booleans(), new_ends=some.booleans())
def test_a_diff_of_anything_gives_back_both_files(
    lonely: Repository, old: list[bytes], new: list[bytes], old_ends: bool, new_ends: bool
) -> None:
    """Context and removed lines are the old file, context and added ones the new."""
    before, after = (
        b"\n".join(lines) + b"\n" * (ends and bool(lines))
        for lines, ends in ((old, old_ends), (new, new_ends))
    )
    lonely.write("f", before)
    lonely.git("add", "f")
    lonely.write("f", after)
    data = os.fsencode(lonely.git(*LISTED, "--text", "--unified=1000"))
    if before == after:
        assert data == b""
        return
    change = read(data)["f"]
    assert not change.cut
    assert change.additions == len(said(change, "added"))
    assert change.deletions == len(said(change, "removed"))
    for kind, content in (("removed", before), ("added", after)):
        lines = said(change, "context", kind)
        whole = content.split(b"\n")
        if content[-1:] in (b"\n", b""):
            whole.pop()
        assert [line.content for line in lines] == [one.decode("utf-8", "replace") for one in whole]
        if lines:
            assert bool(lines[-1].no_newline) == (not content.endswith(b"\n"))
            assert not any(line.no_newline for line in lines[:-1] if line.type == "context")
    for hunk in change.hunks:
        kinds = [line.type for line in hunk.lines]
        assert hunk.old_lines == len(kinds) - kinds.count("added")
        assert hunk.new_lines == len(kinds) - kinds.count("removed")
