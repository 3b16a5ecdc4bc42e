"""git_diff and git_diff_response (spec, Diff file, Hunk, Diff line; D10)."""

import json
import os

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, changes, lines

pytestmark = pytest.mark.spec("ws.git_diff", "ws.git_diff_response")


@pytest.mark.spec("git.diff.*", "git.hunk.*", "git.line.*")
def test_files_hunks_and_lines(repository: Repository, work: Work) -> None:
    """One file with two hunks, its lines in order, each without its sign and its end."""
    before = [f"line {number}" for number in range(1, 31)]
    repository.commit_files({"a.txt": "\n".join(before) + "\n"})
    after = [*before[:1], "two", *before[2:27], "inserted", *before[27:]]
    repository.write("a.txt", "\n".join(after) + "\n")
    (file,) = work.diff()
    names = dict.fromkeys(("path", "old_path", "new_path"), "a.txt")
    assert file == file | names | {"status": "modified", "additions": 2, "deletions": 1}
    first, second = file["hunks"]
    assert first == first | {"old_start": 1, "old_lines": 5, "new_start": 1, "new_lines": 5}
    assert first["header"].startswith("@@ -1,5 +1,5 @@")
    assert second["header"].startswith("@@ -25,6 +25,7 @@")
    assert [(line["type"], line["content"]) for line in first["lines"]] == [
        ("context", "line 1"),
        ("removed", "line 2"),
        ("added", "two"),
        *(("context", f"line {number}") for number in (3, 4, 5)),
    ]
    assert [line["content"] for line in second["lines"] if line["type"] == "added"] == ["inserted"]


@pytest.mark.spec("git.diff.cached")
def test_cached_and_not(repository: Repository, work: Work) -> None:
    """D10: the index against the last commit, or the work tree against the index. Git's remark
    about a missing end of line is no line of the file: `no_newline` on the line that ends it.
    """
    repository.commit_files({"a": "1\n2"})
    repository.write("a", "1\n3")
    repository.git("add", "a")
    repository.write("a", "1\n4")
    for cached, before, after in ((True, "2", "3"), (False, "3", "4")):
        (hunk,) = work.diff(cached=cached)[0]["hunks"]
        found = [(line["type"], line["content"], line.get("no_newline")) for line in hunk["lines"]]
        changed = [("removed", before, True), ("added", after, True)]
        assert found == [("context", "1", None), *changed]


@pytest.mark.spec("git.diff.files")
def test_all_or_some_files(repository: Repository, work: Work) -> None:
    """D12: what is unchanged, or gone from index or work tree alone, is no missing file."""
    repository.commit_files(dict.fromkeys(("a", "b", "sub/c", "same", "removed"), "1\n"))
    repository.write_files(dict.fromkeys(("a", "b", "sub/c"), "2\n"))
    repository.git("rm", "-q", "removed")
    (repository.path / "link").symlink_to("/etc")
    wanted = {(): ["a", "b", "sub/c"], ("b",): ["b"], ("same",): [], ("removed",): []}
    wanted |= {("a", "sub"): ["a", "sub/c"], ("./a", "sub/../b"): ["a", "b"]}
    for asked, expected in wanted.items():
        assert sorted(file["path"] for file in work.diff(*asked)) == expected, asked
    assert [file["status"] for file in work.diff("removed", cached=True)] == ["deleted"]
    for name in ("missing", "same/below", "link/passwd", "--help", ":(top)"):
        assert_refused(work.ask_diff("same", name), "FILE_NOT_FOUND", True, work.sid)


def test_before_the_first_commit(repository: Repository, work: Work) -> None:
    repository.write("a", "1\n")
    repository.git("add", "a")
    repository.write("untracked", "1\n")
    (file,) = work.diff(cached=True)
    assert (file["path"], file["status"], lines(file, "added")) == ("a", "added", ["1"])
    assert work.diff() == []
    seen = work.status()
    assert (seen["branch"], seen["ahead"], seen["behind"]) == ("main", 0, 0)
    assert changes(seen) == {"a": ("added", 1, 0), "untracked": ("untracked", 1, 0)}


def test_untracked_files_when_named_and_only_then(repository: Repository, work: Work) -> None:
    """As new ones, and as git shows them once they are added."""
    repository.commit_files({"a": "1\n"})
    contents = {"text": b"1\n\n2\r\n", "empty": b"", "latin": b"caf\xe9\n", "end": b"1\n2"}
    for name, content in (contents | {"binary": b"1\n\0", "script": b"x\n"}).items():
        repository.write(f"new dir/{name}", content)
    (repository.path / "new dir/script").chmod(0o755)
    (repository.path / "new dir/link").symlink_to("/etc/passwd")
    assert work.diff() == []
    untracked = work.diff("new dir")
    assert {file["status"] for file in untracked} == {"untracked"}
    repository.git("add", "new dir")
    added = work.diff("new dir", cached=True)
    assert [file | {"status": "added"} for file in untracked] == added
    shown = {file["path"]: lines(file, "added") for file in added}
    assert (shown["new dir/text"], shown["new dir/link"]) == (["1", "", "2\r"], ["/etc/passwd"])


@pytest.mark.spec("git.diff.charset")
def test_other_encodings(repository: Repository, work: Work) -> None:
    """Decoded, with the name; each side by itself; what is not sure has U+FFFD (D11)."""
    ways = {
        "shift_jis": "ファイルが見つからない場合はエラー",
        "iso-8859-1": "Höhe",
        "utf-16": "größe",
        "utf-8": "é",
    }
    repository.commit_files({name: f"{text}\n\n1\n".encode(name) for name, text in ways.items()})
    repository.write("half", "naïve é".encode() + b" caf\xe9\n")
    for name, text in ways.items():
        repository.write(name, f"{text}\n\n2\n".encode(name))
        repository.write(f"new {name}", f"{text}\n".encode(name))
    repository.write("iso-8859-1", "Höhe\n\n2\n".encode())  # converted
    for cached in (False, True):
        found = {file["path"]: file for file in work.diff(".", cached=cached)}
        names = {name: found[name].get("charset") for name in ways}
        expected = {"shift_jis": "shift_jis", "utf-16": "utf-16le", "utf-8": None}
        assert names == expected | {"iso-8859-1": "iso-8859-1"}
        for name, text in ways.items():
            assert lines(found[name], "added")[-1] == "2" and "binary" not in found[name]
            assert lines(found[f"new {name}"], "added") == [text]
        assert lines(found["shift_jis"], "context") == ["ファイルが見つからない場合はエラー", ""]
        assert lines(found["iso-8859-1"], "removed") == ["Höhe", "1"]
        assert lines(found["iso-8859-1"], "added") == ["Höhe", "2"]
        assert (found["utf-16"]["additions"], found["utf-16"]["deletions"]) == (1, 1)
        assert lines(found["half"], "added") == ["naïve é caf\ufffd"]
        repository.git("add", "-A")


# what breaks readers of diffs: their own marks, other ends of lines, bytes that are no text
MARKS = [b"", b"-- a/x", b"++ b/x", b"@@ -1 +1 @@", b"diff --git a/x b/x", b"--- a/a", b"+++ b/a"]
MARKS += [b"rename to x", b"\\ No newline at end of file", b"\r", b"\xe2\x80\xa8", b"\xff"]
MARKS += [b"before\rafter\r", b"\f", b"\x0b\x1c\x1d\x1e", b"\xc2\x85", b" ", b"\t"]


def test_lines_that_look_like_a_diffs_own(repository: Repository, work: Work) -> None:
    said = [mark.decode(errors="replace") for mark in MARKS]
    repository.commit_files({"a": b"\n".join(MARKS) + b"\n", "b": "1\n"})
    for kind, content in (("removed", b""), ("added", b"\n".join(MARKS) + b"\n")):
        repository.write("a", content)
        repository.write("b", f"{kind}\n")
        a, b = work.diff()
        assert lines(a, kind) == said and lines(b, "added") == [kind]
        repository.commit()


ODD_NAMES = ["x b/x", "x b/y b/x", 'say "x"', "back\\slash", "two\nlines", "a\ttab", "end "]
ODD_NAMES += ["@@ -1 +1", "--- a/x", "b/b", "ümlaut", os.fsdecode(b"bad \xff"), " b/x", "-- b/x"]


def test_each_odd_name_has_its_own_lines(repository: Repository, work: Work) -> None:
    """Names that a reader of diffs could take for two names, for a line, or for quoted ones."""
    files = {name: f"{number}\n" for number, name in enumerate(ODD_NAMES)}
    repository.commit_files(files)
    repository.write_files({name: f"new {content}" for name, content in files.items()})
    expected = {
        name.encode(errors="surrogateescape").decode(errors="replace"): name for name in files
    }
    found = work.diff()
    assert {file["path"] for file in found} == set(expected)
    for file in found:
        content = files[expected[file["path"]]].strip()
        assert (lines(file, "removed"), lines(file, "added")) == ([content], [f"new {content}"])


def test_a_rename_by_either_name(repository: Repository, work: Work) -> None:
    content = "".join(f"line {number}\n" for number in range(20))
    repository.commit_files({"old name": content, "other": "1\n"})
    repository.git("mv", "old name", "new name")
    repository.write("new name", content + "more\n")
    repository.write("other", "2\n")
    repository.git("add", "-A")
    renamed = {"path": "new name", "status": "renamed", "additions": 1, "deletions": 0}
    for name in ("old name", "new name"):
        (file,) = work.diff(name, cached=True)
        assert file == file | renamed | {"old_path": "old name", "new_path": "new name"}
        assert lines(file, "added") == ["more"]
    both = work.diff("old name", "other", cached=True)
    assert {file["path"] for file in both} == {"new name", "other"}


@pytest.mark.spec("git.diff.modes")
def test_modes_where_they_differ(repository: Repository, work: Work) -> None:
    """Of an added file the new one, of a deleted one the old one. A binary file has no lines."""
    tracked = {"mode": "1\n", "gone": "1\n", "type": "1\n", "same": "1\n"}
    repository.commit_files(tracked | {"image": b"\x89PNG\x00" * 100})
    repository.write("image", b"\x89PNG\x00\xff" * 100)
    (repository.path / "mode").chmod(0o755)
    for name in ("gone", "type"):
        (repository.path / name).unlink()
    (repository.path / "type").symlink_to("mode")
    repository.write("same", "2\n")
    repository.write("new", "another\n")
    repository.git("add", "--intent-to-add", "new")
    found = {file["path"]: file for file in work.diff()}
    modes = {name: (one.get("old_mode"), one.get("new_mode")) for name, one in found.items()}
    expected = {"gone": ("100644", None), "new": (None, "100644")}
    expected |= {"mode": ("100644", "100755"), "type": ("100644", "120000")}
    assert modes == dict.fromkeys(("same", "image"), (None, None)) | expected
    statuses = {name: file["status"] for name, file in found.items()}
    assert statuses == dict.fromkeys(modes, "modified") | {"gone": "deleted", "new": "added"}
    for name in ("mode", "image"):
        assert (found[name]["hunks"], found[name]["additions"]) == ([], 0)
    assert (lines(found["type"], "removed"), lines(found["type"], "added")) == (["1"], ["mode"])


def test_a_directory_of_a_repository(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """D10: paths are relative to the session's working_directory, which may be new to git."""
    repository.commit_files({"sub/a": "1\n", "a": "1\n"})
    repository.write_files({"sub/a": "2\n", "a": "3\n", "new/inner/b": "1\n"})
    work = Work(shared, phone, repository.path / "sub")
    (file,) = work.diff("a")
    assert (file["path"], lines(file, "added")) == ("a", ["2"])
    assert {file["path"] for file in work.diff()} == {"a", "../a"}
    work = Work(shared, phone, repository.path / "new/inner")
    assert set(work.changes()) == {"../", "../../a", "../../sub/a"}
    assert [file["path"] for file in work.diff("../")] == ["b"]


def test_a_large_diff_is_cut_and_says_so(repository: Repository, work: Work) -> None:
    """The answer fits max_message_size_mb: each file is named with its true counts."""
    repository.commit_files({"a": "\n", "b": "\n", "c": "\n"})
    for name, count in {"a": 1, "b": 120_000, "c": 1}.items():
        repository.write(name, f"{'x' * 99}\n" * count)
    payload = work.ask_diff()["payload"]
    about = [(one["path"], one.get("truncated"), one["additions"]) for one in payload["files"]]
    assert about == [("a", None, 1), ("b", True, 120_000), ("c", True, 1)]
    (hunk,) = payload["files"][1]["hunks"]  # its header says what is left of it
    shown = len(lines(payload["files"][1], "added"))
    assert (hunk["new_lines"], hunk["header"]) == (shown, f"@@ -1,1 +1,{shown} @@") and shown > 9999
    assert payload["files"][2]["hunks"] == []
    assert payload["truncated"] is True and len(json.dumps(payload)) < 10 * 2**20
    assert len(lines(work.diff("c")[0], "added")) == 1
