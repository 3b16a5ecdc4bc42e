"""A submodule whose files have changed is a change, though git is never run in it (D10, D12)."""

import shutil

import pytest

from tests.conformance.repositories import Repository
from tests.files.conftest import House, no_leak, refused
from tests.files.repositories import Seen, committed, digest, leftovers, lines

MODIFIED = {"sub": ("modified", 0, 0)}


@pytest.fixture
def inner(house: House, repository: Repository) -> Repository:
    """What the submodule `sub` was cloned from."""
    inner = Repository(house.root / "inner")
    inner.commit_files({"a": "1\n", ".gitignore": "ignored\n"})
    repository.git("submodule", "--quiet", "add", str(inner.path), "sub")
    repository.commit()
    return inner


def test_clean_changed_staged_and_new(
    inner: Repository, repository: Repository, seen: Seen, house: House
) -> None:
    """Nothing is written there; what it ignores is no change."""
    repository.write("sub/ignored", "1\n")
    assert seen.changes() == {} and seen.status().is_clean
    repository.write("sub/a", "2\n")
    before = digest(repository.path)
    with no_leak():
        assert seen.changes() == MODIFIED and not seen.status().is_clean
    assert digest(repository.path) == before and leftovers(house.data) == []
    repository.git("add", "a", cwd=repository.path / "sub")
    assert seen.changes() == MODIFIED
    repository.git("reset", "-q", "--hard", cwd=repository.path / "sub")
    assert seen.changes() == {}
    repository.write("sub/new", "1\n")
    assert seen.changes() == MODIFIED


def test_beside_other_changes(inner: Repository, repository: Repository, seen: Seen) -> None:
    """One with another commit is listed once; one that is not checked out is not changed."""
    repository.git("submodule", "--quiet", "add", str(inner.path), "deep/absent")
    repository.commit_files({"b": "1\n"})
    repository.git("submodule", "--quiet", "deinit", "--force", "deep/absent")
    repository.write("b", "2\n")
    repository.write("sub/a", "2\n")
    repository.git("commit", "-qam", "more", cwd=repository.path / "sub")
    repository.write("sub/a", "3\n")
    assert seen.changes() == {"b": ("modified", 1, 1), "sub": ("modified", 1, 1)}


def test_only_its_commit_is_shown_and_committed(
    inner: Repository, repository: Repository, seen: Seen
) -> None:
    repository.write("sub/a", "2\n")
    assert seen.files() == {}
    repository.git("commit", "-qam", "more", cwd=repository.path / "sub")
    (file,) = seen.files().values()
    assert lines(file, "removed") == [f"Subproject commit {inner.head()}"]
    assert (file.path, file.additions) == ("sub", 1)
    seen.commit("Submodule", "sub")
    assert committed(repository) == ["sub"] and seen.status().is_clean


@pytest.mark.parametrize("moved_on", [False, True], ids=["changed", "committed"])
def test_one_that_leads_out_is_not_looked_into(
    inner: Repository, house: House, repository: Repository, seen: Seen, moved_on: bool
) -> None:
    repository.write("sub/a", "2\n")
    if moved_on:
        repository.git("commit", "-qam", "more", cwd=repository.path / "sub")
    shutil.move(repository.path / ".git/modules/sub", house.outside / "sub.git")
    repository.write("sub/.git", f"gitdir: {house.outside}/sub.git\n")
    assert seen.files() == {} == seen.changes()
    if moved_on:
        with refused("FILE_ACCESS_DENIED"):
            seen.commit("Submodule", "sub")
