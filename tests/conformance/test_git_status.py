"""git_status_request and git_status_response (spec, Git resources; D7, D10)."""

import os
import shutil
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, changes, digest, lines
from tests.conformance.samples import hook, new_session, prompt

pytestmark = pytest.mark.spec("ws.git_status_request", "ws.git_status_response")


@pytest.mark.spec("git.change.*")
def test_each_kind_of_change(repository: Repository, work: Work) -> None:
    """What was added and is gone again is none. A new directory is one entry, with the lines of all
    its files; a renamed file has those that changed besides, also where it is no rename any more.
    """
    tracked = {"staged": "1\n", "removed": "1\n", "deleted": "1\n2\n", ".gitignore": "*.log\n"}
    tracked |= {"modified": "1\n2\n3\n", "old name": "a\nb\nc\nd\ne\n", "moved": "d\ne\nf\n"}
    unlisted = {"unlisted": "u\nv\n", "unlisted and changed": "w\nx\n"}
    repository.commit_files(tracked | unlisted | {"p": "p\nq\nr\n"})
    repository.write("modified", "1\ntwo\n3\n4\n")
    repository.write("staged", "1\n2\n")
    repository.write("added", "1\n2\n3\n")
    repository.write("soon gone", "1\n")
    repository.git("add", "staged", "added", "soon gone")
    repository.write("staged", "1\n2\n3\n")
    repository.git("rm", "-q", "removed")
    repository.git("rm", "-q", "--cached", *unlisted)
    repository.write("unlisted and changed", "w\nx\ny\n")
    for old, new in {"old name": "new name", "moved": "and gone", "p": "rewritten"}.items():
        repository.git("mv", old, new)
    repository.write("new name", "a\nb\nc\nd\ne\nmore\n")
    repository.write("rewritten", "x\ny\n")
    for name in ("deleted", "and gone", "soon gone"):
        (repository.path / name).unlink()
    files = {"untracked": "1\n2", "binary": "\0\n\n", "new/x": "1\n", "new/deep/y": "1\n2\n"}
    files |= {"too large to be counted": "1\n" * 9_000_000}
    repository.write_files(files | {"new/z.log": "1\n", "ignored.log": "1\n"})
    (repository.path / "out").symlink_to("/etc/passwd")
    payload = work.status()
    assert payload["is_clean"] is False
    untracked = {"untracked": 2, "binary": 0, "too large to be counted": 0, "new/": 3, "out": 1}
    expected = {name: ("untracked", count, 0) for name, count in untracked.items()}
    expected |= {"modified": ("modified", 2, 1), "staged": ("modified", 2, 0)}
    expected |= {"added": ("added", 3, 0), "moved": ("deleted", 0, 3)}
    expected |= {"deleted": ("deleted", 0, 2), "removed": ("deleted", 0, 1)}
    expected |= {"new name": ("renamed", 1, 0), "rewritten": ("renamed", 2, 3)}
    expected |= {"unlisted": ("deleted", 0, 2), "unlisted and changed": ("modified", 1, 0)}
    assert changes(payload) == expected


def test_the_branch_is_named_as_in_session_ready(repository: Repository, work: Work) -> None:
    """Also one with a slash, one that is not UTF-8, and a detached head, which is no branch."""
    detached = f"({repository.commit_files({'a': '1'})[:12]})"
    names = {"feature/ümlaut-1": "feature/ümlaut-1", os.fsdecode(b"caf\xe9"): "caf\ufffd"}
    for given, name in (names | {"": detached}).items():
        repository.git("checkout", "-q", *(["-b", given] if given else ["--detach"]))
        assert work.status()["branch"] == name
        told = work.phone.join(work.sid)["payload"]["branch"]
        assert ascii(told) == ascii(name), "half a character could not be shown"


@pytest.mark.spec("git.status.*")
def test_a_clean_repository(repository: Repository, work: Work) -> None:
    """Ahead of its upstream, and behind it, whatever the branch is called."""
    base, name = repository.commit(), 'a"B.ü]=#;'
    for _ in range(3):
        repository.commit("theirs")
    repository.git("update-ref", f"refs/remotes/origin/{name}", "HEAD")
    repository.git("checkout", "-q", "-b", name, base)
    for _ in range(2):
        repository.commit("ours")
    repository.git("config", "remote.origin.url", "/nowhere")
    repository.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    repository.git("branch", "-q", f"--set-upstream-to=origin/{name}")
    payload = work.status()
    clean = {"branch": name, "ahead": 2, "behind": 3, "is_clean": True, "changes": []}
    assert payload == payload | clean
    assert payload.get("commit") is None, "D10: only in the answer to git_commit"


def test_a_file_changed_in_the_second_of_its_staging(repository: Repository, work: Work) -> None:
    """The copy of the index keeps its time, which git compares."""
    repository.git("config", "core.trustctime", "false")  # a time that no test can set
    then = (10**9, 10**9)
    os.utime(repository.write("a", "1\n"), then)
    repository.git("add", "a")
    os.utime(repository.write("a", "2\n"), then)
    os.utime(repository.path / ".git/index", then)
    assert [file["additions"] for file in work.diff()] == [1]


@pytest.mark.spec("wscode.GIT_ERROR")
def test_no_repository(shared: Bridge, repository: Repository, sid: str, phone: Phone) -> None:
    """A directory that is gone is none either. D34: a session of a prompt alone, or of a relative
    path, has none: an error, not the bridge's own directory.
    """
    directory = shared.root / "no repository"
    directory.mkdir(exist_ok=True)
    for place in (repository.path / ".git/objects", directory):
        work = Work(shared, phone, place)
        for answer in (work.ask("git_status_request"), work.ask_diff()):
            assert_refused(answer, "GIT_ERROR", True, work.sid)
    shutil.rmtree(directory)
    assert_refused(work.ask("git_status_request"), "FILE_NOT_FOUND", True, work.sid)
    relative = new_session()
    start = {"working_directory": ".", "permission_mode": "default"}
    shared.accept(prompt(sid, 1), hook("SessionStart", relative, start))
    reading = {"path": "manage.py", "offset": 0, "limit": 1}
    for session in (sid, relative):
        phone.join(session)
        for type_, fields in {"git_status_request": {}, "file_read": reading}.items():
            answer = phone.request(type_, {"session_id": session} | fields)
            assert_refused(answer, answer["payload"]["code"], True, session)


HEAD = ".git/HEAD"
HEAD_SAID = "The repository is damaged: its HEAD names no branch and no commit."
OUT = "ref: refs/heads/../../../planted/x\n"
NO_HEADS = ("", "ref: /etc/passwd", "\0\xff", OUT, "ref: refs/heads/b\n", "ref: refs/../hooks/x")
UNKNOWN = ("unheard = true", "refStorage = files:///etc")
DAMAGES = [
    *((".git/objects", ""), (".git/refs", ""), (".git/index", "nonsense")),
    *((".git/config", text) for text in ("[nonsense", *map("[extensions]\n{}\n".format, UNKNOWN))),
    *((".git", text) for text in ("nonsense", "gitdir: gone", "gitdir: \0")),
    *((HEAD, text) for text in NO_HEADS),
]


@pytest.mark.parametrize(("part", "text"), DAMAGES)
def test_a_damaged_repository(repository: Repository, work: Work, part: str, text: str) -> None:
    """A part of it is gone, or is nothing that the bridge understands. Git itself would commit to a
    reference that leads out of its directory, be it named by HEAD or by a branch (D10).
    """
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    repository.write(".git/refs/heads/b", OUT)
    path = repository.path / part
    if path.is_dir():
        path.rename(repository.path / "moved")
    if text or part == HEAD:
        path.write_bytes(text.encode("latin-1"))
    for answer in (work.ask("git_status_request"), work.ask_diff(), work.commit("A", ["a"])):
        said = assert_refused(answer, "GIT_ERROR", True, work.sid)["message"]
        assert part != HEAD or said == HEAD_SAID
    assert not (repository.path / "planted").exists()


def test_shared_indexes_fill_no_disk(repository: Repository, work: Work) -> None:
    """They are copied to the data directory, and take no room here: they have nothing but holes."""
    repository.commit_files({"a": "1\n"})
    repository.git("update-index", "--split-index")
    repository.write("a", "2\n")
    assert work.changes() == {"a": ("modified", 1, 1)}
    for number in range(2):
        with (repository.path / f".git/sharedindex.{number:040}").open("wb") as file:
            file.truncate(limits.GIT_INDEX_MAX_BYTES * 2 // 3)
    said = assert_refused(work.ask("git_status_request"), "GIT_ERROR", True, work.sid)
    assert "larger than the bridge copies" in said["message"]


# -- submodules: git is never run in one (D12) -----------------------------------------------------

MODIFIED = {"sub": ("modified", 0, 0)}


@pytest.fixture
def inside(repository: Repository) -> Path:
    repository.add_submodule("sub")
    return repository.path / "sub"


def test_a_submodule(inside: Path, repository: Repository, work: Work) -> None:
    """Nothing is written there, and what it ignores is no change."""
    repository.write(".git/modules/sub/info/exclude", "ignored\n")
    (inside / "ignored").write_text("1\n")
    assert work.changes() == {}
    (inside / "a").write_text("2\n")
    before = digest(repository.path)
    assert work.changes() == MODIFIED and not work.status()["is_clean"] and work.diff() == []
    assert digest(repository.path) == before
    repository.git("add", "a", cwd=inside)
    assert work.changes() == MODIFIED
    repository.git("reset", "-q", "--hard", cwd=inside)
    assert work.changes() == {}
    (inside / "new").write_text("1\n")
    assert work.changes() == MODIFIED


def test_the_commit_of_a_submodule(inside: Path, repository: Repository, work: Work) -> None:
    """It is shown, listed once, and committed; one that is not checked out is not changed."""
    repository.add_submodule("absent")
    before = repository.git("rev-parse", "HEAD", cwd=inside).strip()
    repository.git("submodule", "--quiet", "deinit", "--force", "absent")
    (inside / "a").write_text("2\n")
    repository.git("commit", "-qam", "more", cwd=inside)
    (inside / "a").write_text("3\n")
    assert work.changes() == {"sub": ("modified", 1, 1)}
    (file,) = work.diff()
    assert lines(file, "removed") == [f"Subproject commit {before}"]
    work.committed("Submodule", ["sub"])
    assert repository.committed() == ["sub"] and work.changes() == MODIFIED


def test_a_submodule_that_leads_out_is_not_looked_into(
    inside: Path, repository: Repository, work: Work, tmp_path: Path
) -> None:
    """Neither at another commit of it nor at what is changed there."""
    (inside / "a").write_text("2\n")
    repository.git("commit", "-qam", "more", cwd=inside)
    (inside / "a").write_text("3\n")
    shutil.move(repository.path / ".git/modules/sub", tmp_path / "sub.git")
    (inside / ".git").write_text(f"gitdir: {tmp_path}/sub.git\n")
    assert work.diff() == [] and work.changes() == {}
    assert_refused(work.commit("Submodule", ["sub"]), "FILE_ACCESS_DENIED", True, work.sid)
