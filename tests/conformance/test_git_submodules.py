"""A submodule whose files have changed is a change, though git is never run in it (D10, D12)."""

import shutil
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.repositories import Repository, Work, lines
from tests.files.repositories import committed, digest

MODIFIED = {"sub": ("modified", 0, 0)}


@pytest.fixture
def inside(repository: Repository) -> Path:
    """The work tree of the submodule `sub`."""
    repository.add_submodule("sub")
    return repository.path / "sub"


def test_clean_changed_staged_and_new(inside: Path, repository: Repository, work: Work) -> None:
    """Nothing is written there; what it ignores is no change."""
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


def test_its_commit_is_shown_and_committed(
    inside: Path, repository: Repository, work: Work
) -> None:
    """It is listed once; one that is not checked out is not changed."""
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
    assert committed(repository) == ["sub"] and work.changes() == MODIFIED


@pytest.mark.parametrize("moved_on", [False, True], ids=["changed", "committed"])
def test_one_that_leads_out_is_not_looked_into(
    inside: Path, repository: Repository, work: Work, tmp_path: Path, moved_on: bool
) -> None:
    (inside / "a").write_text("2\n")
    if moved_on:
        repository.git("commit", "-qam", "more", cwd=inside)
    shutil.move(repository.path / ".git/modules/sub", tmp_path / "sub.git")
    (inside / ".git").write_text(f"gitdir: {tmp_path}/sub.git\n")
    assert work.diff() == [] and work.changes() == {}
    if moved_on:
        answer = work.commit("Submodule", ["sub"])
        assert_refused(answer, "FILE_ACCESS_DENIED", True, work.sid)
