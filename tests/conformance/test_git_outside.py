"""Repositories that want to show something (D10, D12; issue, Build 3): nothing from outside the
roots, whatever a repository says of where it is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, commit, session_in
from tests.conformance.test_git_hostile import look

pytestmark = pytest.mark.spec("git.hostile")
SECRET, NAME = "the secret line", "secret-name.txt"


@pytest.fixture
def secret(tmp_path: Path) -> Repository:
    """A repository outside the roots: committed, changed and untracked files whose names and lines
    must not be shown.
    """
    repository = Repository(tmp_path / "outside")
    repository.commit_files({NAME: f"{SECRET} 1\n", f"changed-{NAME}": f"{SECRET} 2\n"})
    repository.write(f"changed-{NAME}", f"{SECRET} 3\n")
    repository.write(f"untracked-{NAME}", f"{SECRET} 4\n")
    return repository


def git_file(repository: Repository, secret: Repository) -> None:
    shutil.rmtree(repository.path / ".git")
    repository.write(".git", f"gitdir: {secret.path}/.git\n")


def git_link(repository: Repository, secret: Repository) -> None:
    shutil.rmtree(repository.path / ".git")
    (repository.path / ".git").symlink_to(secret.path / ".git")


def common_directory(repository: Repository, secret: Repository) -> None:
    (repository.path / ".git/index").unlink()
    shutil.copytree(repository.path / ".git", repository.path / "mine")
    (repository.path / "mine" / "commondir").write_text(f"{secret.path}/.git\n")
    shutil.rmtree(repository.path / ".git")
    repository.write(".git", "gitdir: mine\n")
    repository.write("mine/HEAD", secret.head() + "\n")


def other_work_tree(repository: Repository, secret: Repository) -> None:
    repository.git("config", "core.worktree", str(secret.path))


def work_tree_above(repository: Repository, secret: Repository) -> None:
    repository.git("config", "core.worktree", "/".join([".."] * 40) + str(secret.path))


WAYS = {
    way.__name__: way
    for way in (git_file, git_link, common_directory, other_work_tree, work_tree_above)
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_from_outside_is_shown(
    shared: Bridge, repository: Repository, secret: Repository, phone: Phone, way: str
) -> None:
    """Issue: work tree and git directory must lie inside a root, whatever core.worktree says; git
    itself, run last, would show it.
    """
    repository.commit_files({"a.txt": "1\n"})
    repository.write("a.txt", "2\n")
    WAYS[way](repository, secret)
    sid = session_in(shared, phone, repository.path)
    answers = look(phone, sid)
    answers.append(phone.request("file_list", {"session_id": sid, "path": "."}))
    answers.append(commit(phone, sid, "Stolen"))
    said = json.dumps(answers)
    assert SECRET not in said and NAME not in said, said[:3000]
    named = phone.request("git_diff", {"session_id": sid, "files": [NAME], "cached": True})
    assert SECRET not in json.dumps(named)  # its name may be in the refusal
    assert all(
        answer["payload"]["recoverable"] is True  # type: ignore[index]
        for answer in answers
        if answer["type"] == "error"
    ), answers
    shown = "".join(
        repository.git(*command, check=False)
        for command in (("status",), ("diff", "--cached"), ("ls-files",))
    )
    assert SECRET in shown or NAME in shown, "no hole: plain git does not show it either"


def test_nothing_outside_is_changed(
    shared: Bridge, repository: Repository, secret: Repository, phone: Phone
) -> None:
    """Issue: a commit into a git directory outside the roots is none."""
    before = (secret.head(), secret.porcelain())
    secret.git("add", "-A")
    staged = secret.staged()
    git_file(repository, secret)
    sid = session_in(shared, phone, repository.path)
    for files in (None, [NAME]):
        assert_refused(commit(phone, sid, "Stolen", files), "FILE_ACCESS_DENIED", True, sid)
        phone.ping()
    assert secret.head() == before[0] and secret.staged() == staged


@pytest.fixture
def above(shared: Bridge) -> Iterator[Repository]:
    """The allowed root lies inside a repository of its owner's."""
    repository = Repository(shared.directory)
    yield repository
    shutil.rmtree(shared.directory / ".git")


def test_a_repository_above_the_root(shared: Bridge, above: Repository, phone: Phone) -> None:
    """Issue: git's search for a repository ends at the root: what lies above is not looked at."""
    above.write(NAME, SECRET)
    inside = shared.root / "plain directory"
    inside.mkdir(exist_ok=True)
    (inside / "a.txt").write_text("1\n")
    answers = look(phone, session_in(shared, phone, inside))
    assert {answer["type"] for answer in answers} == {"error"} and NAME not in json.dumps(answers)
    (above.path / NAME).unlink()


@pytest.mark.parametrize("how", ["directory", "link"])
def test_a_session_that_works_outside(
    shared: Bridge, secret: Repository, phone: Phone, how: str
) -> None:
    """D12: a working_directory outside the roots, or a link that leads there, is refused,
    recoverable.
    """
    directory = secret.path
    if how == "link":
        directory = shared.root / f"link {secret.path.parent.name}"
        directory.symlink_to(secret.path)
    sid = session_in(shared, phone, directory)
    answers = [*look(phone, sid), commit(phone, sid, "Stolen")]
    for answer in answers:
        assert_refused(answer, "FILE_ACCESS_DENIED", True, sid)
    assert SECRET not in json.dumps(answers) and NAME not in json.dumps(answers)


def test_links_in_the_work_tree(
    shared: Bridge, repository: Repository, secret: Repository, phone: Phone
) -> None:
    """Issue: what a link points to outside is never shown: neither the untracked link that is named
    nor a name behind it.
    """
    repository.commit_files({"a.txt": "1\n"})
    (repository.path / "link").symlink_to(secret.path / NAME)
    (repository.path / "directory").symlink_to(secret.path)
    (repository.path / "a.txt").unlink()
    (repository.path / "a.txt").symlink_to(secret.path / NAME)
    sid = session_in(shared, phone, repository.path)
    before = repository.head()
    for files in (["link"], ["directory"], [f"directory/{NAME}"], ["a.txt"], None):
        answer = phone.request("git_diff", {"session_id": sid, "files": files, "cached": False})
        assert SECRET not in json.dumps(answer), answer
    for name in (NAME, "missing"):  # the same answer whether or not something is there
        asked = {"session_id": sid, "files": [f"directory/{name}"], "cached": False}
        assert_refused(phone.request("git_diff", asked), "FILE_NOT_FOUND", True, sid)
        answer = commit(phone, sid, "Behind the link", [f"directory/{name}"])
        assert_refused(answer, "GIT_ERROR", True, sid)
    assert repository.head() == before
    phone.ping()
