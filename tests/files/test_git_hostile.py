"""Repositories that want to run, write or show something (D10, D12), by ways that git would go."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from tests.conformance.repositories import Repository
from tests.files.conftest import SECRET, House, no_leak, refused
from tests.files.repositories import Seen, digest, leftovers

Way = Callable[[Path, Path], None]  # the git directory, one of another repository outside the roots


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


READING: dict[str, Way] = {
    "objects": link("objects"),
    "some objects": link("objects/ab", "objects"),
    "packs": link("objects/pack"),
    "one pack": link("objects/pack/pack-1.pack", "HEAD"),
    "a link behind a link": behind_a_link_inside,
    "references": link("refs"),
    "branches": link("refs/heads"),
    "a branch": link("refs/heads/main", "refs/heads/main"),
    "packed references": link("packed-refs", "HEAD"),
    "index": link("index"),
    "configuration": link("config"),
    "HEAD": link("HEAD"),
    "alternates": alternate("{other}\n"),
    "a later alternate": alternate("# no\n\nnowhere\n{other}"),
    "a quoted alternate": alternate('"{other}"\n'),
    "alternates as a link": link("objects/info/alternates", "HEAD"),
    "an alternate's alternate": alternate_of_an_alternate,
}
WRITING: dict[str, Way] = {
    "message": link("COMMIT_EDITMSG", "HEAD"),
    "logs": link("logs", "refs"),
    "log of HEAD": link("logs/HEAD", "HEAD"),
    "log of a branch": link("logs/refs/heads/main", "HEAD"),
    "what was HEAD": link("ORIG_HEAD", "HEAD"),
}


@pytest.fixture
def other(house: House, repository: Repository) -> Path:
    """The git directory of a repository outside the roots; ours has a commit of its own."""
    outside = Repository(house.outside / "other")
    outside.commit_files({"secret name": SECRET + b"\n"})
    outside.write("secret name", SECRET + b" changed\n")
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    return outside.path / ".git"


@pytest.mark.parametrize("way", READING)
def test_a_link_out_of_the_git_directory_refuses_the_repository(
    house: House, repository: Repository, seen: Seen, other: Path, way: str
) -> None:
    """Git would follow it. Nothing outside is read or written."""
    READING[way](repository.path / ".git", other)
    before = digest(other)
    for look in (
        seen.status,
        seen.diff,
        lambda: seen.diff("secret name", cached=True),
        lambda: seen.commit("Stolen", "a"),
        lambda: seen.commit("Stolen"),
    ):
        with no_leak(), pytest.raises(BridgeError) as caught:
            look()
        assert caught.value.code == "FILE_ACCESS_DENIED"
        assert "secret" not in caught.value.message
    assert digest(other) == before and leftovers(conf.bridge_data_dir) == []


@pytest.mark.parametrize("way", WRITING)
def test_a_commit_writes_nothing_behind_a_link(
    house: House, repository: Repository, seen: Seen, other: Path, way: str
) -> None:
    """Git writes its message and logs to whatever stands there; reading does not look."""
    WRITING[way](repository.path / ".git", other)
    before, head = digest(other), repository.head()
    with refused("FILE_ACCESS_DENIED"):
        seen.commit("Overwritten", "a")
    assert digest(other) == before and repository.head() == head
    assert seen.changes() == {"a": ("modified", 1, 1)}
