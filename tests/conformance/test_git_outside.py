"""A repository shows nothing from outside the roots, whatever it says of where it is (D10, D12)."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, digest
from tests.conformance.test_git_hostile import look
from tests.faults.quick import QuickBridge

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


Way = Callable[[Path, Path], None]  # the git directory, that of the repository outside


def git_file(git: Path, other: Path) -> None:
    shutil.rmtree(git)
    git.write_text(f"gitdir: {other}\n")


def common_directory(git: Path, other: Path) -> None:
    (git / "index").unlink()
    mine = git.rename(git.with_name("mine"))
    (mine / "commondir").write_text(f"{other}\n")
    shutil.copy(other / "refs/heads/main", mine / "HEAD")
    git.write_text("gitdir: mine\n")


def link(name: str, target: str = "") -> Way:
    def plant(git: Path, other: Path) -> None:
        path = git / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(other / (target or name))

    return plant


def alternate(text: str) -> Way:
    def plant(git: Path, other: Path) -> None:
        (git / "objects/info").mkdir(exist_ok=True)
        (git / "objects/info/alternates").write_text(text.format(other=f"{other}/objects"))

    return plant


def alternate_of_an_alternate(git: Path, other: Path) -> None:
    middle = git.parent / "middle"
    (middle / "info").mkdir(parents=True)
    alternate("../../middle\n")(git, other)
    (middle / "info/alternates").write_text(f"{other}/objects\n")


def behind_a_link_inside(git: Path, other: Path) -> None:
    middle = git.parent / "middle"
    middle.mkdir()
    (middle / "x.pack").symlink_to(next((other / "objects").glob("??/*")))
    shutil.rmtree(git / "objects/pack", ignore_errors=True)
    (git / "objects/pack").symlink_to("../../middle")


LINKS = ". objects objects/pack refs refs/heads refs/heads/main index config HEAD"
LINKS_TO_HEAD = "objects/pack/pack-1.pack packed-refs objects/info/alternates"
REFUSED: dict[str, Way] = {
    **{name: link(name) for name in LINKS.split()},
    **{name: link(name, "HEAD") for name in LINKS_TO_HEAD.split()},
    "objects/ab": link("objects/ab", "objects"),
    "a file .git": git_file,
    "common directory": common_directory,
    "a link behind a link": behind_a_link_inside,
    "alternates": alternate("{other}\n"),
    "a later alternate": alternate("# no\n\nnowhere\n{other}"),
    "a quoted alternate": alternate('"{other}"\n'),
    "an alternate's alternate": alternate_of_an_alternate,
}
WRITTEN = "COMMIT_EDITMSG ORIG_HEAD logs/HEAD logs/refs/heads/main"
NOT_WRITTEN = {"logs": link("logs", "refs"), **{one: link(one, "HEAD") for one in WRITTEN.split()}}


@pytest.fixture
def work(work: Work, repository: Repository) -> Work:
    """The repository has a commit of its own, and a change."""
    repository.commit_files({"a.txt": "1\n"})
    repository.write("a.txt", "2\n")
    return work


@pytest.mark.parametrize("way", REFUSED)
def test_a_git_directory_that_leads_out_is_refused(
    repository: Repository, secret: Repository, work: Work, way: str
) -> None:
    """Git would follow it. Nothing outside is read or written."""
    secret.git("add", "-A")
    REFUSED[way](repository.path / ".git", secret.path / ".git")
    before = digest(secret.path)
    commits = [work.commit("Stolen", files) for files in (None, ["a.txt"], [NAME])]
    for answer in (*look(work), work.ask_diff(NAME, cached=True), *commits):
        said = assert_refused(answer, "FILE_ACCESS_DENIED", True, work.sid)["message"]
        assert SECRET not in said and NAME not in said
    assert digest(secret.path) == before


@pytest.mark.parametrize("way", NOT_WRITTEN)
def test_a_commit_writes_nothing_behind_a_link(
    repository: Repository, secret: Repository, work: Work, way: str
) -> None:
    """Git writes its message and logs to whatever stands there; reading does not look."""
    NOT_WRITTEN[way](repository.path / ".git", secret.path / ".git")
    before, head = digest(secret.path), repository.head()
    assert_refused(work.commit("Overwritten", ["a.txt"]), "FILE_ACCESS_DENIED", True, work.sid)
    assert digest(secret.path) == before and repository.head() == head
    assert work.changes() == {"a.txt": ("modified", 1, 1)}


@pytest.mark.parametrize("way", ["{up}", "d/../{up}", "{whole}"])
def test_an_index_that_names_a_file_outside(
    repository: Repository, secret: Repository, work: Work, way: str
) -> None:
    """Git reads it, and would show it as a change."""
    (repository.path / "d").mkdir()
    whole = secret.path / NAME
    name = way.format(up=os.path.relpath(whole, repository.path), whole=whole).encode()
    stand_in = "x" * len(name)
    blob = repository.git("hash-object", "-w", "a.txt").strip()
    repository.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{stand_in}")
    index = repository.path / ".git/index"
    data = index.read_bytes()[:-20].replace(stand_in.encode(), name)
    index.write_bytes(data + hashlib.sha1(data, usedforsecurity=False).digest())
    assert SECRET in repository.git("diff")
    answers = json.dumps([*look(work), work.ask_diff(NAME)])
    assert SECRET not in answers and NAME not in answers


@pytest.mark.parametrize("up", ["", "/".join([".."] * 40)], ids=["absolute", "relative"])
def test_another_work_tree(repository: Repository, secret: Repository, work: Work, up: str) -> None:
    """D63: git works there, so it is refused and not looked at; git itself, run last, shows it."""
    repository.git("config", "core.worktree", f"{up}{secret.path}")
    assert_refused(work.ask("git_status_request"), "FILE_ACCESS_DENIED", True)
    answers = [*look(work), work.ask_diff(NAME), work.commit("Stolen")]
    assert SECRET not in json.dumps(answers)
    assert NAME in repository.git("status"), "no hole: plain git does not show it either"


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


def test_a_session_that_works_outside(shared: Bridge, secret: Repository, phone: Phone) -> None:
    """By its path, or by a link that lies inside."""
    link = shared.root / f"link {secret.path.parent.name}"
    link.symlink_to(secret.path)
    for directory in (secret.path, link):
        work = Work(shared, phone, directory)
        answers = [*look(work), work.commit("Stolen"), work.ask("file_list", path=".")]
        answers.append(work.ask("file_read", path=NAME, offset=0, limit=1))
        for answer in answers:
            assert_refused(answer, "FILE_ACCESS_DENIED", True, work.sid)
        assert SECRET not in json.dumps(answers) and NAME not in json.dumps(answers)


def test_links_in_the_work_tree(repository: Repository, secret: Repository, work: Work) -> None:
    """Neither an untracked link that is named nor a name behind it shows what is outside."""
    before = repository.head()
    (repository.path / "a.txt").unlink()
    for name, target in {"link": NAME, "a.txt": NAME, "directory": ""}.items():
        (repository.path / name).symlink_to(secret.path / target)
    for files in (["link"], ["directory"], [f"directory/{NAME}"], ["a.txt"], []):
        answer = work.ask_diff(*files)
        assert SECRET not in json.dumps(answer), answer
    for name in (NAME, "missing"):  # the same answer whether or not something is there
        assert_refused(work.ask_diff(f"directory/{name}"), "FILE_NOT_FOUND", True, work.sid)
        answer = work.commit("Behind the link", [f"directory/{name}"])
        assert_refused(answer, "GIT_ERROR", True, work.sid)
    assert repository.head() == before


def test_variables_of_another_git_change_nothing(tmp_path: Path) -> None:
    """As where the bridge was started by a hook: what is shown, committed and pushed is its own."""
    other = Repository(tmp_path / "other")
    other.commit_files({"other": "1\n"})
    git_dir = other.path / ".git"
    foreign = {
        "GIT_DIR": git_dir,
        "GIT_WORK_TREE": other.path,
        "GIT_INDEX_FILE": git_dir / "index",
        "GIT_COMMON_DIR": git_dir,
        "GIT_OBJECT_DIRECTORY": git_dir / "objects",
        "GIT_CEILING_DIRECTORIES": tmp_path,
        "GIT_NAMESPACE": "theirs",
        "GIT_PREFIX": "in/",
        "GIT_REFLOG_ACTION": "theirs",
        "GIT_AUTHOR_NAME": "Somebody",
        "GIT_CONFIG_PARAMETERS": "'core.bare'='true'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.worktree",
        "GIT_CONFIG_VALUE_0": other.path,
    }
    before = digest(other.path)
    with QuickBridge(
        tmp_path / "bridge", **{name: str(foreign[name]) for name in foreign}
    ) as bridge:
        repository = Repository(bridge.root / "repository")
        repository.commit_files({"a": "1\n"})
        remote = bridge.root / "remote.git"
        repository.git("clone", "-q", "--bare", str(repository.path), str(remote))
        repository.git("remote", "add", "origin", str(remote))
        repository.write("a", "2\n")
        work = Work(bridge, bridge.phone().ready(), repository.path)
        status = work.status()
        assert (status["repository"], status["head"]) == (str(repository.path), repository.head())
        assert work.changes() == {"a": ("modified", 1, 1)} and work.diff("a")
        assert work.committed("Mine", ["a"])["hash"] == repository.head()
        assert repository.git("log", "-1", "--format=%an") == "Ada\n"
        assert work.ask("git_push", set_upstream=True)["payload"]["pushed"] is True
        assert repository.git("rev-parse", "main", cwd=remote).strip() == repository.head()
        assert repository.porcelain() == ""
    assert digest(other.path) == before
