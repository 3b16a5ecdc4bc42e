"""A repository shows nothing from outside the roots, whatever it says of where it is (D10, D12)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work
from tests.conformance.test_git_hostile import look

pytestmark = pytest.mark.spec("git.hostile")
SECRET, NAME = "the secret line", "secret-name.txt"


@pytest.fixture
def secret(tmp_path: Path) -> Repository:
    """Outside the roots: committed, changed and untracked files that must not be shown."""
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
    (repository.path / ".git").rename(repository.path / "mine")
    repository.write("mine/commondir", f"{secret.path}/.git\n")
    repository.write(".git", "gitdir: mine\n")
    repository.write("mine/HEAD", secret.head() + "\n")


def other_work_tree(repository: Repository, secret: Repository) -> None:
    repository.git("config", "core.worktree", str(secret.path))


def work_tree_above(repository: Repository, secret: Repository) -> None:
    repository.git("config", "core.worktree", "/".join([".."] * 40) + str(secret.path))


Way = Callable[[Repository, Repository], None]


@pytest.mark.parametrize(
    "way", [git_file, git_link, common_directory, other_work_tree, work_tree_above]
)
def test_nothing_from_outside_is_shown(
    shared: Bridge, repository: Repository, secret: Repository, phone: Phone, way: Way
) -> None:
    """Git itself, run last, would show it."""
    repository.commit_files({"a.txt": "1\n"})
    repository.write("a.txt", "2\n")
    way(repository, secret)
    work = Work(shared, phone, repository.path)
    answers = [*look(work), work.ask("file_list", path="."), work.commit("Stolen")]
    said = json.dumps(answers)
    assert SECRET not in said and NAME not in said, said[:3000]
    named = work.ask_diff(NAME, cached=True)
    assert SECRET not in json.dumps(named)  # its name may be in the refusal
    refusals = [answer["payload"] for answer in answers if answer["type"] == "error"]
    assert all(payload["recoverable"] is True for payload in refusals), refusals
    commands = (("status",), ("diff", "--cached"), ("ls-files",))
    shown = "".join(repository.git(*command, check=False) for command in commands)
    assert SECRET in shown or NAME in shown, "no hole: plain git does not show it either"


def test_nothing_outside_is_committed(
    shared: Bridge, repository: Repository, secret: Repository, phone: Phone
) -> None:
    secret.git("add", "-A")
    before = (secret.head(), secret.staged())
    git_file(repository, secret)
    work = Work(shared, phone, repository.path)
    for files in (None, [NAME]):
        assert_refused(work.commit("Stolen", files), "FILE_ACCESS_DENIED", True, work.sid)
        phone.ping()
    assert (secret.head(), secret.staged()) == before


def test_the_search_for_a_repository_ends_at_the_root(shared: Bridge, phone: Phone) -> None:
    """The root lies inside a repository of its owner's, which is not looked at."""
    above = Repository(shared.directory)
    try:
        above.write(NAME, SECRET)
        inside = shared.root / "plain directory"
        inside.mkdir(exist_ok=True)
        (inside / "a.txt").write_text("1\n")
        answers = look(Work(shared, phone, inside))
        assert {answer["type"] for answer in answers} == {"error"}
        assert NAME not in json.dumps(answers)
    finally:
        (above.path / NAME).unlink()
        shutil.rmtree(above.path / ".git")


@pytest.mark.parametrize("how", ["directory", "link"])
def test_a_session_that_works_outside(
    shared: Bridge, secret: Repository, phone: Phone, how: str
) -> None:
    directory = secret.path
    if how == "link":
        directory = shared.root / f"link {secret.path.parent.name}"
        directory.symlink_to(secret.path)
    work = Work(shared, phone, directory)
    answers = [*look(work), work.commit("Stolen")]
    for answer in answers:
        assert_refused(answer, "FILE_ACCESS_DENIED", True, work.sid)
    assert SECRET not in json.dumps(answers) and NAME not in json.dumps(answers)


def test_links_in_the_work_tree(
    shared: Bridge, repository: Repository, secret: Repository, phone: Phone
) -> None:
    """Neither an untracked link that is named nor a name behind it shows what is outside."""
    before = repository.commit_files({"a.txt": "1\n"})
    (repository.path / "link").symlink_to(secret.path / NAME)
    (repository.path / "directory").symlink_to(secret.path)
    (repository.path / "a.txt").unlink()
    (repository.path / "a.txt").symlink_to(secret.path / NAME)
    work = Work(shared, phone, repository.path)
    for files in (["link"], ["directory"], [f"directory/{NAME}"], ["a.txt"], []):
        answer = work.ask_diff(*files)
        assert SECRET not in json.dumps(answer), answer
    for name in (NAME, "missing"):  # the same answer whether or not something is there
        assert_refused(work.ask_diff(f"directory/{name}"), "FILE_NOT_FOUND", True, work.sid)
        answer = work.commit("Behind the link", [f"directory/{name}"])
        assert_refused(answer, "GIT_ERROR", True, work.sid)
    assert repository.head() == before
    phone.ping()
