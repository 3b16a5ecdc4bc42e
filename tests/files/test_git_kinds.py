"""Repositories of every kind, and directories that are in none (D10, D12)."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

from files_app.git.repository import repository_of
from tests.conformance.repositories import Repository
from tests.files.conftest import House, no_leak, refused
from tests.files.repositories import Seen, change, digest

# -- kinds of repositories -------------------------------------------------------------------------


def test_a_split_index(repository: Repository, seen: Seen) -> None:
    repository.git("config", "core.splitIndex", "true")
    change(repository)
    repository.git("update-index", "--split-index")
    repository.write("c", "1\n")
    repository.git("add", "c")
    assert list(repository.path.glob(".git/sharedindex.*"))
    before = digest(repository.path)
    assert seen.changes() == {"a": ("modified", 1, 1), "c": ("added", 1, 0)}
    assert digest(repository.path) == before
    seen.commit("Changed", "a")
    assert repository.staged() == ["c"]
    seen.commit("The rest")
    assert repository.porcelain() == ""


def test_settings_of_a_linked_work_tree(house: House, repository: Repository) -> None:
    """extensions.worktreeConfig: the harmless ones there count too, here a sparse work tree."""
    repository.commit_files({"in/a": "1\n", "out/b": "1\n"})
    beside = house.second / "beside"
    repository.git("worktree", "add", "-q", "-b", "beside", str(beside))
    repository.git("sparse-checkout", "set", "in", cwd=beside)
    assert repository.git("config", "extensions.worktreeConfig").strip() == "true"
    assert not (beside / "out").exists()
    seen = Seen(house.jail, beside)
    assert seen.status().is_clean
    (beside / "in/a").write_text("2\n")
    assert (seen.status().branch, seen.changes()) == ("beside", {"in/a": ("modified", 1, 1)})


def test_a_shallow_clone(house: House, repository: Repository) -> None:
    for number in range(3):
        repository.commit_files({"a": f"{number}\n"})
    clone = house.root / "clone"
    repository.git("clone", "-q", "--depth=1", f"file://{repository.path}", str(clone))
    (clone / "a").write_text("changed\n")
    payload = Seen(house.jail, clone).status()
    assert (payload.ahead, payload.behind, len(payload.changes)) == (0, 0, 1)


def test_objects_shared_with_a_neighbour_inside_the_roots(
    house: House, repository: Repository
) -> None:
    change(repository)
    clone = house.second / "clone"
    repository.git("clone", "-q", "--shared", str(repository.path), str(clone))
    (clone / "a").write_text("3\n")
    assert Seen(house.jail, clone).changes() == {"a": ("modified", 1, 1)}


# -- where there is none ---------------------------------------------------------------------------


def test_no_repository(house: House, repository: Repository) -> None:
    cases = {
        "": "GIT_ERROR",
        "relative/path": "GIT_ERROR",
        str(house.second): "GIT_ERROR",
        str(house.root / "gone"): "FILE_NOT_FOUND",
        str(house.root / "a.txt"): "FILE_INVALID_PATH",
        str(house.outside): "FILE_ACCESS_DENIED",
        str(house.data): "FILE_ACCESS_DENIED",
        str(repository.path / ".git"): "GIT_ERROR",
        str(repository.path / ".git/objects"): "GIT_ERROR",
    }
    for directory, code in cases.items():
        with no_leak(), refused(code):
            repository_of(directory, house.jail)


@pytest.mark.parametrize("pointer", ["", "nonsense", "gitdir: gone", "gitdir: \0"])
def test_a_git_file_that_leads_nowhere(house: House, pointer: str) -> None:
    (house.second / ".git").write_text(pointer)
    with refused("GIT_ERROR"):
        Seen(house.jail, house.second).status()


@pytest.mark.parametrize("damage", ["HEAD", "objects", "refs", "config", "index"])
def test_a_damaged_repository(repository: Repository, seen: Seen, damage: str) -> None:
    """Git's reason, or that it is none; a repository without a part of it is not looked for further
    up.
    """
    change(repository)
    path = repository.path / ".git" / damage
    if path.is_dir():
        path.rename(repository.path / "moved")
    else:
        path.write_bytes(b"\xff[nonsense")
    with refused("GIT_ERROR"):
        seen.status()


def test_somebody_elses_repository(house: House, repository: Repository, seen: Seen) -> None:
    """As git does it: refused, unless the user has called it safe."""
    change(repository)
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    os.chown(repository.path / ".git", 65534, 65534)
    with refused("GIT_ERROR"):
        seen.status()
    own, no = str(repository.path), "GIT_ERROR"
    for safe, code in (("/elsewhere", no), (own, None), ("", no), ("*", None)):
        with (house.top / "home/.gitconfig").open("a") as file:
            file.write(f'[safe]\n\tdirectory = "{safe}"\n')
        with refused(code) if code else nullcontext():
            assert seen.changes() == {"a": ("modified", 1, 1)}
