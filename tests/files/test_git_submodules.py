"""A submodule whose files have changed is a change of its path, though git is never run in it (SPEC
Git resources; D10, D12).
"""

from __future__ import annotations

import shutil

import pytest

from bridge_project.kernel import limits
from tests.conformance.repositories import Repository
from tests.files.conftest import House, no_leak
from tests.files.repositories import Seen, digest, leftovers

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
    """One with another commit is listed once; one that is not checked out is not changed, whatever
    the repository around it is.
    """
    repository.git("submodule", "--quiet", "add", str(inner.path), "deep/absent")
    repository.commit_files({"b": "1\n"})
    repository.git("submodule", "--quiet", "deinit", "--force", "deep/absent")
    repository.write("b", "2\n")
    repository.write("sub/a", "2\n")
    repository.git("commit", "-qam", "more", cwd=repository.path / "sub")
    repository.write("sub/a", "3\n")
    assert seen.changes() == {"b": ("modified", 1, 1), "sub": ("modified", 1, 1)}


def test_a_git_directory_of_its_own(house: House, repository: Repository, seen: Seen) -> None:
    """As older versions of git made them: `.git` is a directory in the submodule."""
    Repository(repository.path / "sub").commit_files({"a": "1\n"})
    repository.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
    repository.commit()
    assert seen.changes() == {}
    repository.write("sub/a", "2\n")
    assert seen.changes() == MODIFIED


def test_one_that_leads_out_is_not_looked_into(
    inner: Repository, house: House, repository: Repository, seen: Seen
) -> None:
    repository.write("sub/a", "2\n")
    shutil.move(repository.path / ".git/modules/sub", house.outside / "sub.git")
    repository.write("sub/.git", f"gitdir: {house.outside}/sub.git\n")
    assert seen.changes() == {}


def test_a_link_in_its_place_is_not_followed(
    inner: Repository, repository: Repository, seen: Seen
) -> None:
    """It is a change itself; the repository that it leads to is not looked into."""
    inner.write("a", "2\n")
    shutil.rmtree(repository.path / "sub")
    (repository.path / "sub").symlink_to(inner.path)
    assert {name: status for name, (status, _, _) in seen.changes().items()} == {"sub": "modified"}


def test_only_so_many_are_looked_into(
    inner: Repository, repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("submodule", "--quiet", "add", str(inner.path), "second")
    repository.commit()
    for name in ("second", "sub"):
        repository.write(f"{name}/a", "2\n")
    monkeypatch.setattr(limits, "GIT_SUBMODULES_MAX", 1)
    assert seen.changes() == {"second": ("modified", 0, 0)}
