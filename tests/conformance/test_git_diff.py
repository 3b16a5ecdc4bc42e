"""git_diff and git_diff_response (spec, Diff file, Hunk, Diff line; D10): files, hunks and lines as
the spec types them.
"""

from __future__ import annotations

import json

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, changes, lines
from tests.conformance.test_git_status import ODD_NAMES

pytestmark = pytest.mark.spec("ws.git_diff", "ws.git_diff_response")


@pytest.mark.spec(
    "git.diff.path",
    "git.diff.old_path",
    "git.diff.new_path",
    "git.diff.status",
    "git.diff.additions",
    "git.diff.deletions",
    "git.diff.hunks",
    "git.hunk.*",
    "git.line.*",
)
def test_files_hunks_and_lines(repository: Repository, work: Work) -> None:
    """Spec: one file with two hunks, its lines in order, each without its sign and its end."""
    before = [f"line {number}" for number in range(1, 31)]
    repository.commit_files({"a.txt": "\n".join(before) + "\n"})
    after = [*before[:1], "two", *before[2:27], "inserted", *before[27:]]
    repository.write("a.txt", "\n".join(after) + "\n")
    (file,) = work.diff()
    assert (file["path"], file["old_path"], file["new_path"], file["status"]) == (
        "a.txt",
        "a.txt",
        "a.txt",
        "modified",
    )
    assert (file["additions"], file["deletions"]) == (2, 1)
    first, second = file["hunks"]
    assert first == first | {"old_start": 1, "old_lines": 5, "new_start": 1, "new_lines": 5}
    assert first["header"].startswith("@@ -1,5 +1,5 @@")
    assert second["header"].startswith("@@ -25,6 +25,7 @@")
    assert [(line["type"], line["content"]) for line in first["lines"]] == [
        ("context", "line 1"),
        ("removed", "line 2"),
        ("added", "two"),
        ("context", "line 3"),
        ("context", "line 4"),
        ("context", "line 5"),
    ]
    assert [line["content"] for line in second["lines"] if line["type"] == "added"] == ["inserted"]


@pytest.mark.spec("git.diff.cached")
def test_cached_and_not(repository: Repository, work: Work) -> None:
    """Spec, git_diff; D10: cached false is the work tree against the index, cached true the index
    against the last commit.
    """
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    repository.git("add", "a")
    repository.write("a", "3\n")
    (staged,), (unstaged,) = work.diff(cached=True), work.diff(cached=False)
    assert (lines(staged, "removed"), lines(staged, "added")) == (["1"], ["2"])
    assert (lines(unstaged, "removed"), lines(unstaged, "added")) == (["2"], ["3"])


@pytest.mark.spec("git.diff.files")
def test_all_or_some_files(repository: Repository, work: Work) -> None:
    """Spec, git_diff: null means all changes; a directory means what is in it; a file that has none
    has none.
    """
    repository.commit_files({"a": "1\n", "b": "1\n", "sub/c": "1\n", "same": "1\n"})
    for name in ("a", "b", "sub/c"):
        repository.write(name, "2\n")
    assert sorted(file["path"] for file in work.diff()) == ["a", "b", "sub/c"]
    assert [file["path"] for file in work.diff("b")] == ["b"]
    assert sorted(file["path"] for file in work.diff("a", "sub")) == ["a", "sub/c"]
    assert sorted(file["path"] for file in work.diff("./a", "sub/../b")) == ["a", "b"]
    assert work.diff("same") == []


def test_before_the_first_commit(repository: Repository, work: Work) -> None:
    """Issue: no commit yet: what is staged is added."""
    repository.write("a", "1\n")
    repository.git("add", "a")
    (file,) = work.diff(cached=True)
    assert (file["path"], file["status"], lines(file, "added")) == (
        "a",
        "added",
        ["1"],
    ) and work.diff() == []


def test_untracked_files_when_named(repository: Repository, work: Work) -> None:
    """Issue: untracked files when they are named, and only then; the index stays as it was."""
    repository.commit_files({"a": "1\n"})
    repository.write("new dir/new", "1\n2\n")
    assert work.diff() == []
    (file,) = work.diff("new dir/new")
    assert file["path"] == "new dir/new"
    assert file["additions"] == 2
    assert file["deletions"] == 0
    assert lines(file, "added") == ["1", "2"]
    assert file["status"] in ("untracked", "added") and repository.staged() == []


def test_a_rename_by_either_name(repository: Repository, work: Work) -> None:
    """Spec, Diff file: old_path and new_path; renamed, with what changed besides, also when it is
    asked for alone.
    """
    content = "".join(f"line {number}\n" for number in range(20))
    repository.commit_files({"old name": content, "other": "1\n"})
    repository.git("mv", "old name", "new name")
    repository.write("new name", content + "more\n")
    repository.write("other", "2\n")
    repository.git("add", "-A")
    for name in ("old name", "new name"):
        (file,) = work.diff(name, cached=True)
        assert file["path"] == "new name" and file["status"] == "renamed"
        assert (file["old_path"], file["new_path"]) == ("old name", "new name")
        assert (file["additions"], file["deletions"], lines(file, "added")) == (1, 0, ["more"])
    both = work.diff("old name", "other", cached=True)
    assert {file["path"] for file in both} == {"new name", "other"}


@pytest.mark.spec("git.diff.modes")
def test_modes(repository: Repository, work: Work) -> None:
    """Spec, Diff file: old_mode and new_mode are there where they differ; of an added file the new
    one, of a deleted one the old one.
    """
    repository.commit_files({"mode": "1\n", "gone": "1\n", "type": "1\n", "same": "1\n"})
    (repository.path / "mode").chmod(0o755)
    (repository.path / "gone").unlink()
    (repository.path / "type").unlink()
    (repository.path / "type").symlink_to("mode")
    repository.write("same", "2\n")
    repository.write("new", "another\n")
    repository.git("add", "--intent-to-add", "new")
    found = {file["path"]: file for file in work.diff()}
    assert {
        name: (file["status"], file.get("old_mode"), file.get("new_mode"))
        for name, file in found.items()
    } == {
        "mode": ("modified", "100644", "100755"),
        "gone": ("deleted", "100644", None),
        "type": ("modified", "100644", "120000"),
        "same": ("modified", None, None),
        "new": ("added", None, "100644"),
    }
    assert found["mode"]["hunks"] == [] and found["mode"]["additions"] == 0
    assert (lines(found["type"], "removed"), lines(found["type"], "added")) == (["1"], ["mode"])


def test_a_binary_file(repository: Repository, work: Work) -> None:
    """Issue: binary files are named and have no lines."""
    repository.commit_files({"image": b"\x89PNG\x00" * 100})
    repository.write("image", b"\x89PNG\x00\xff" * 100)
    (file,) = work.diff()
    assert (file["path"], file["status"], file["additions"], file["deletions"], file["hunks"]) == (
        "image",
        "modified",
        0,
        0,
        [],
    )


def test_no_newline_at_the_end(repository: Repository, work: Work) -> None:
    """Issue: git's remark about it is no line of the file: `no_newline` on the line that ends it,
    also of a file that is new.
    """
    repository.commit_files({"a": "1\n2", "b": "1\n"})
    repository.write("a", "1\n3")
    repository.write("b", "2")
    repository.write("c", "1\n2")
    assert {
        file["path"]: [
            (line["type"], line["content"], line.get("no_newline"))
            for line in file["hunks"][0]["lines"]
        ]
        for file in work.diff("a", "b", "c")
    } == {
        "a": [("context", "1", None), ("removed", "2", True), ("added", "3", True)],
        "b": [("removed", "1", None), ("added", "2", True)],
        "c": [("added", "1", None), ("added", "2", True)],
    }


def test_odd_names(repository: Repository, work: Work) -> None:
    """Issue: names with spaces, quotes, newlines and umlauts, options and patterns among them: as
    they are, and each means itself alone.
    """
    repository.commit_files(dict.fromkeys([*ODD_NAMES, "a.star"], "1\n"))
    for name in (*ODD_NAMES, "a.star"):
        repository.write(name, "2\n")
    assert sorted(file["path"] for file in work.diff()) == sorted([*ODD_NAMES, "a.star"])
    for name in ODD_NAMES:
        (file,) = work.diff(name)
        assert (file["path"], file["old_path"], file["new_path"]) == (name, name, name)


def test_a_directory_inside_a_repository(
    shared: Bridge, repository: Repository, phone: Phone
) -> None:
    """D10: paths are relative to the session's working_directory, those that are asked for and
    those that are answered.
    """
    repository.commit_files({"sub/a": "1\n", "a": "1\n"})
    repository.write("sub/a", "2\n")
    repository.write("a", "3\n")
    work = Work(shared, phone, repository.path / "sub")
    (file,) = work.diff("a")
    assert (file["path"], lines(file, "added")) == ("a", ["2"])
    assert {file["path"] for file in work.diff()} <= {"a", "../a"}


def test_a_conflict(repository: Repository, work: Work) -> None:
    """Issue: conflicts: against our side; of a file that is in conflict without ours there are no
    lines.
    """
    repository.commit_files({"a": "base\n", "gone": "base\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"a": "theirs\n", "gone": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.git("rm", "-q", "gone")
    repository.commit_files({"a": "ours\n"})
    repository.git("merge", "-q", "other", check=False)
    a, gone = sorted(work.diff(), key=lambda file: str(file["path"]))
    assert a["path"] == "a"
    assert a["status"] == "modified"
    assert gone["path"] == "gone"
    assert gone["status"] == "modified"
    assert gone["hunks"] == []
    assert lines(a, "context") == ["ours"] and "theirs" in lines(a, "added")
    seen = work.status()
    assert seen["is_clean"] is False and changes(seen)["a"][0] == "modified"
    assert [file["hunks"] for file in work.diff(cached=True)] == [[], []]


def test_a_large_diff_is_cut_and_says_so(repository: Repository, phone: Phone, work: Work) -> None:
    """Issue: large diffs are cut with a sign that says so: the answer fits max_message_size_mb; the
    connection lives.
    """
    repository.commit_files({"file": "\n"})
    repository.write("file", f"{'x' * 99}\n" * 120_000)
    payload = work.ask("git_diff", files=None, cached=False)["payload"]
    (file,) = payload["files"]
    assert payload["truncated"] is file["truncated"] is True and file["additions"] == 120_000
    assert lines(file, "added") and len(json.dumps(payload)) < 10 * 2**20
    phone.ping()


def test_a_file_that_is_not_there(repository: Repository, work: Work) -> None:
    """D12: what neither git nor the work tree knows is not found; what is only unchanged, or gone
    from one of them, has no changes.
    """
    repository.commit_files({"same": "1\n", "removed": "1\n"})
    repository.git("rm", "-q", "removed")
    (repository.path / "link").symlink_to("/etc")
    assert work.diff("same") == work.diff("removed") == []
    assert [file["status"] for file in work.diff("removed", cached=True)] == ["deleted"]
    for name in ("missing", "same/below", "link/passwd", "--help", ":(top)"):
        answer = work.ask("git_diff", files=["same", name], cached=False)
        assert_refused(answer, "FILE_NOT_FOUND", True, work.sid)
