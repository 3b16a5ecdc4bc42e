"""What git shows is shown (D63): in each situation plain git and the bridge are asked."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, owner

pytestmark = pytest.mark.spec("git.as_git")


def seal(repository: Repository, *where: str) -> None:
    """A filter of the repository's own that must run, as git-crypt's."""
    for key, value in (("clean", "tr a-z n-za-m"), ("smudge", "tr a-z n-za-m"), ("required", "1")):
        repository.git("config", *where, f"filter.seal.{key}", value)


def row(status: dict[str, Any], path: str) -> dict[str, Any]:
    return next(one for one in status["changes"] if one["path"] == path)


def seal_by_include(repository: Repository) -> None:
    seal(repository, "--file", str(repository.path / ".git/more"))
    repository.git("config", "include.path", "more")


FILTERS: dict[str, Callable[[Repository], None]] = {"config": seal, "include": seal_by_include}


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("where", [".gitattributes", ".git/info/attributes"])
def test_a_filtered_file_is_not_known(
    repository: Repository, work: Work, how: str, where: str
) -> None:
    """Touched and unchanged, git shows nothing; the bridge says that it does not know."""
    FILTERS[how](repository)
    repository.write(where, "*.key filter=seal\n")
    os.utime(repository.write("a.key", "secret\n"), (1, 1))  # else git would read it again
    repository.commit_files({"b.txt": "1\n"})
    assert repository.git("cat-file", "blob", "HEAD:a.key") == "frperg\n"
    assert work.status()["changes"] == []
    repository.write("a.key", "secret\n")
    status = work.status()
    change = {"path": "a.key", "status": "modified", "additions": 0, "deletions": 0}
    unknown = {"conflicted": False, "staged": False, "counted": False, "filtered": True}
    assert status["changes"] == [change | unknown] and status["is_clean"] is True
    (file,) = work.diff()
    assert (file["counted"], file["filtered"], file["hunks"]) == (False, True, [])
    assert repository.porcelain() == ""
    repository.write("b.txt", "2\n")
    status = work.status()
    assert status["is_clean"] is False and row(status, "b.txt")["counted"] is True


def test_no_work_tree(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """A bare repository with work trees beside it: none at the top, as usual below."""
    repository.commit_files({"a": "1\n"})
    project = repository.path.with_name(f"{repository.path.name} project")
    repository.git("clone", "-q", "--bare", str(repository.path), str(project / ".bare"))
    (project / ".git").write_text("gitdir: ./.bare\n")
    repository.git("worktree", "add", "-q", "main", cwd=project)
    top = Work(shared, phone, project)
    for answer in (top.ask("git_status_request"), top.ask_diff(), top.commit("Empty")):
        assert "work tree" in assert_refused(answer, "GIT_ERROR", True)["message"]
    assert repository.git("ls-tree", "--name-only", "main", cwd=project) == "a\n"
    assert Work(shared, phone, project / "main").status()["repository"] == str(project / "main")
    repository.git("config", "core.bare", "true")
    said = assert_refused(
        Work(shared, phone, repository.path).ask("git_status_request"), "GIT_ERROR", True
    )
    assert "work tree" in said["message"]


def test_another_work_tree_inside(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """`core.worktree` names one: that is where git looks for files."""
    repository.commit_files({"a": "1\n"})
    other = repository.path / "other"
    repository.write("other/a", "2\n")
    repository.git("config", "core.worktree", str(other))
    status = Work(shared, phone, other).status()
    assert status["repository"] == str(other)
    assert [(one["path"], one["status"]) for one in status["changes"]] == [("a", "modified")]


def test_an_object_that_is_missing(
    shared: Bridge, repository: Repository, phone: Phone, tmp_path: Path
) -> None:
    """A partial clone: it costs its own row, in the status and in the differences."""
    repository.git("config", "uploadpack.allowFilter", "true")
    for number in range(3):
        repository.commit_files({"f": f"{number}\n" * 5, f"only{number}": "x\n"})
    clone = repository.path.with_name(f"{repository.path.name} clone")
    repository.git("clone", "-q", "--filter=blob:none", f"file://{repository.path}", str(clone))
    repository.git("reset", "-q", "--soft", "HEAD~2", cwd=clone)
    (clone / "only1").write_text("y\n")
    work = Work(shared, phone, clone)
    counted = {one["path"]: one["counted"] for one in work.status()["changes"]}
    assert counted == {"f": False, "only1": True, "only2": True}
    files = {file["path"]: file for file in work.diff(cached=True)}
    assert files["f"]["counted"] is False and files["f"]["hunks"] == []
    assert "counted" not in files["only2"] and files["only2"]["hunks"]


def test_a_file_that_cannot_be_read(repository: Repository, work: Work) -> None:
    """A damaged object: the others are counted."""
    repository.commit_files({"a": "1\n", "b": "another\n"})
    blob = repository.git("rev-parse", ":a").strip()
    broken = repository.path / ".git/objects" / blob[:2] / blob[2:]
    broken.chmod(0o644)
    broken.write_bytes(b"no object")
    repository.write_files({"a": "2\n", "b": "2\n"})
    counted = {one["path"]: one["counted"] for one in work.status()["changes"]}
    assert counted == {"a": False, "b": True}
    assert {file["path"]: file.get("counted") for file in work.diff()} == {"a": False, "b": None}


def stop(repository: Repository, *command: str) -> None:
    subprocess.run(
        ["git", *command],
        cwd=repository.path,
        env=owner() | {"GIT_SEQUENCE_EDITOR": "sed -i 1s/^pick/edit/"},
        capture_output=True,
        check=False,
    )


STATES = {
    "merge": ("merge", "side"),
    "rebase": ("rebase", "side"),
    "edit": ("rebase", "-i", "HEAD~1"),
    "cherry-pick": ("cherry-pick", "side"),
    "revert": ("revert", "HEAD~1"),
    "am": ("am", "--3way", ".git/patches/0001-A-commit.patch"),
    "bisect": ("bisect", "start"),
}


@pytest.mark.parametrize("name", STATES)
def test_what_git_is_in_the_middle_of(repository: Repository, work: Work, name: str) -> None:
    repository.commit_files({"a": "1\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit_files({"a": "side\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"a": "2\n"})
    repository.commit_files({"a": "3\n"})
    assert work.status()["state"] is None
    repository.git("format-patch", "-q", "-1", "-o", ".git/patches", "side")
    stop(repository, *STATES[name])
    status = work.status()
    assert status["state"] == {"edit": "rebase"}.get(name, name)
    conflicted = [one["path"] for one in status["changes"] if one["conflicted"]]
    assert conflicted == (["a"] if name not in ("edit", "bisect") else [])
    assert status["head"] == repository.head()


def test_where_a_branch_belongs(repository: Repository, work: Work) -> None:
    """Its upstream without credentials, and a head that is not there yet."""
    status = work.status()
    assert (status["head"], status["upstream"]) == (None, None)
    repository.commit_files({"a": "1\n"})
    repository.git("remote", "add", "origin", "https://ada:secret@git.example/ada/app.git")
    for key, value in (("remote", "origin"), ("merge", "refs/heads/theirs")):
        repository.git("config", f"branch.main.{key}", value)
    repository.git("update-ref", "refs/remotes/origin/theirs", "HEAD")
    upstream = {"remote": "origin", "branch": "theirs", "url": "https://git.example/ada/app.git"}
    assert work.status()["upstream"] == upstream
    repository.write("b", "1\n")
    repository.git("add", "b")
    assert row(work.status(), "b")["staged"] is True


def refused_for_trust(work: Work, *files: str, **more: Any) -> dict[str, Any]:
    answer = work.ask("git_commit", message="A commit", files=list(files) or None, **more)
    return dict(assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"])


def test_a_filter_is_never_left_out(repository: Repository, work: Work) -> None:
    """Not the plain text, by name or staged: nothing, or what git makes of it at the machine."""
    seal(repository)
    repository.write(".gitattributes", "*.key filter=seal\n")
    repository.commit_files({"a.key": "secret one\n"})
    head = repository.head()
    repository.write_files({"a.key": "secret two\n", "b.key": "secret new\n", "c": "plain\n"})
    details = refused_for_trust(work, "a.key")
    assert [one["name"] for one in details["programs"]] == ["filter.seal.clean"]
    assert {one["command"] for one in details["programs"]} == {"tr a-z n-za-m"}
    refused_for_trust(work, "b.key")
    refused_for_trust(work, "b.key", trust="0" * 64)
    assert (repository.head(), repository.staged()) == (head, [])
    answer = work.ask("git_commit", message="x", files=["a.key"], trust=details["digest"])
    assert answer["payload"]["commit"]["summary"] == "x"
    assert repository.git("cat-file", "blob", "HEAD:a.key") == "frperg gjb\n"
    work.committed("new", ["b.key"])
    assert repository.git("cat-file", "blob", "HEAD:b.key") == "frperg arj\n"
    repository.write("a.key", "secret two\n")
    assert set(work.changes()) == {"c"}, "trusted, so the filter says that nothing has changed"
    repository.write("a.key", "secret three\n")
    assert work.changes()["a.key"] == ("modified", 1, 1)
    repository.git("config", "filter.seal.clean", "cat")
    assert refused_for_trust(work, "a.key")["digest"] != details["digest"]
    assert row(work.status(), "a.key")["filtered"] is True


def test_a_hook_that_changes_is_asked_about_again(repository: Repository, work: Work) -> None:
    """Its bytes, a link's target, and the directory that a setting names."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    hook = repository.hook("pre-commit", "exit 0")
    digests = {refused_for_trust(work, "a")["digest"]}
    repository.hook("pre-commit", "exit 0 # changed")
    digests.add(refused_for_trust(work, "a")["digest"])
    hook.unlink()
    hook.symlink_to(repository.write("tool.sh", "#!/bin/sh\nexit 0\n"))
    (repository.path / "tool.sh").chmod(0o755)
    digests.add(refused_for_trust(work, "a")["digest"])
    repository.git("config", "core.hooksPath", "hooks")
    repository.write("hooks/pre-commit", "#!/bin/sh\nexit 3\n").chmod(0o755)
    digests.add(refused_for_trust(work, "a")["digest"])
    assert len(digests) == 4
    hook.unlink()
    (repository.path / "hooks/pre-commit").unlink()
    work.committed("No hook", ["a"])


def test_a_commit_on_something_else_is_refused(repository: Repository, work: Work) -> None:
    """The client says what it has seen: the repository and its last commit."""
    head = repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    for seen in ({"head": "0" * 40}, {"repository": "/elsewhere"}):
        said = assert_refused(work.commit("Other", ["a"], **seen), "GIT_ERROR", True)["message"]
        assert "moved on" in said and repository.head() == head
    answer = work.commit("Same", ["a"], head=head, repository=str(repository.path))
    assert answer["payload"]["head"] == repository.head() != head


def test_a_partial_clone_commits(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """What is made is answered as made, though an object for its counts is missing."""
    repository.git("config", "uploadpack.allowFilter", "true")
    for number in range(3):
        repository.commit_files({"f": f"{number}\n" * 5})
    clone = repository.path.with_name(f"{repository.path.name} clone")
    repository.git("clone", "-q", "--filter=blob:none", f"file://{repository.path}", str(clone))
    for key in ("name", "email"):
        repository.git("config", f"user.{key}", "Ada", cwd=clone)
    repository.git("reset", "-q", "--soft", "HEAD~2", cwd=clone)
    made = Work(shared, phone, clone).committed("Squash")
    assert made["files_changed"] == 1
    assert repository.git("rev-parse", "HEAD", cwd=clone).strip() == made["hash"]


@pytest.mark.parametrize("name", ["merge", "rebase", "am", "cherry-pick", "revert"])
def test_a_conflict_is_resolved_by_name(repository: Repository, work: Work, name: str) -> None:
    """As at the machine: parents and author are the same; with markers in it, it is refused."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.write("a", "side\n")
    author = ("--author", "Grace <grace@example.com>")
    repository.git("commit", "-q", "-a", "-m", "A commit", *author)
    repository.git("format-patch", "-q", "-1", "-o", ".git/patches")
    repository.git("checkout", "-q", "main")
    repository.commit_files({"a": "2\n"})
    repository.commit_files({"a": "3\n", "b": "2\n"})
    stop(repository, *STATES[name])
    before = (repository.head(), repository.index())
    unresolved = assert_refused(work.commit("Mine", ["a"]), "GIT_ERROR", True)["message"]
    assert "markers" in unresolved
    assert_refused(work.commit("Mine", None), "GIT_ERROR", True)
    assert before == (repository.head(), repository.index())
    copy = Repository(repository.path.with_name(f"{repository.path.name} copy"))
    subprocess.run(["cp", "-a", f"{repository.path}/.", str(copy.path)], check=True)
    for one in (repository, copy):
        one.write("a", "resolved\n")
    copy.git("add", "a")
    copy.git("commit", "-q", "-m", "Mine")
    made = work.committed("Mine", ["a"])
    shown = ("log", "-1", "--format=%P %an %ae %s %T")
    assert repository.git(*shown) == copy.git(*shown)
    still = {"rebase": "git rebase --continue.", "am": "git am --skip."}.get(name, "")
    assert (made.get("note") or "").endswith(still) and ("note" in made) == (still != "")
    assert repository.porcelain() == copy.porcelain()


def test_longer_markers_of_a_conflict(repository: Repository, work: Work) -> None:
    """As texts have them whose headings look like the usual ones; such a line is none then."""
    texts = {".gitattributes": "*.rst conflict-marker-size=32\n", "a.rst": "1\n"}
    repository.commit_files(texts)
    repository.git("checkout", "-q", "-b", "side")
    repository.commit_files({"a.rst": "side\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"a.rst": "2\n"})
    stop(repository, "merge", "side")
    assert "markers" in assert_refused(work.commit("Mine", ["a.rst"]), "GIT_ERROR", True)["message"]
    repository.write("a.rst", "<<<<<<< how it looks\n")
    work.committed("Mine", ["a.rst"])
    assert repository.porcelain() == ""


@pytest.mark.parametrize("name", ["cherry-pick", "revert"])
def test_one_of_several_is_resolved(repository: Repository, work: Work, name: str) -> None:
    """What is left of them is said, as git does; then it goes on at the machine."""
    for number in range(4):
        repository.commit_files({"a": f"{number}\n", "b": f"{number}\n"})
    ones = ["HEAD~1", "HEAD"]
    if name == "cherry-pick":
        ones = [repository.git("rev-parse", one).strip() for one in ("main~1", "main")]
        repository.git("reset", "-q", "--hard", "HEAD~3")
    stop(repository, name, *ones)
    repository.write_files({"a": "mine\n", "b": "mine\n"})
    note = work.committed("Mine", ["a", "b"])["note"]
    assert note == f"The {name} still stands; go on with it at the machine: git {name} --continue."
    assert work.status()["state"] == name
    repository.git(name, "--quit")
    assert work.status()["state"] is None


def test_a_hook_that_refuses_says_what_it_changed(repository: Repository, work: Work) -> None:
    """What it has changed in the work tree stays; index and branch are as before."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.hook("pre-commit", "echo hook > b; git add b; echo no >&2; exit 1")
    for files in (None, ["a"]):
        repository.write_files({"a": "2\n", "b": "1\n"})
        repository.git("add", "a")
        before = (repository.head(), repository.index())
        payload = assert_refused(work.commit("No", files), "GIT_ERROR", True)
        assert payload["message"].startswith("no\n") and payload["details"]["changed"] == ["b"]
        assert (repository.head(), repository.index()) == before


@pytest.mark.slow
def test_more_names_than_the_bridge_reads(repository: Repository, work: Work) -> None:
    """34 MB of untracked names: there is a status, and a file can be committed by its name."""
    deep = "/".join(["n" * 240] * 4)
    repository.commit_files({f"{deep}/tracked": "1\n"})
    for number in range(35_000):
        (repository.path / deep / f"{number:05d}").touch()
    repository.write(f"{deep}/tracked", "2\n")
    status = work.status()
    assert row(status, f"{deep}/tracked")["additions"] == 1 and status["truncated"] is True
    work.committed("One", [f"{deep}/tracked"])
    assert work.committed("Another", [f"{deep}/34999"])["files_changed"] == 1
