"""Commits and pushes that take longer than they may (D63, D64)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.repositories import Repository, Work, committed
from tests.servers import wait_until
from tests.short import short


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    return make_bridge("slow", **short("GIT_COMMIT_SECONDS", "GIT_PUSH_SECONDS"))


@pytest.fixture
def pids(repository: Repository) -> Path:
    """Where what hangs writes its process ids."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    return repository.path / ".git/pids"


HANG = "(trap '' TERM; sleep 600; :) & echo $! $$ > '{pids}'; wait"


def assert_ended(pids: Path) -> None:
    started = [Path("/proc", pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(pid.exists() for pid in started), "what hung has ended")
    assert not list(pids.parent.glob("**/*.lock"))


def test_a_hook_before_the_commit(repository: Repository, pids: Path, work: Work) -> None:
    """Nothing is changed, and it says so. What somebody commits meanwhile is not the phone's, not
    even with its message.
    """
    theirs = "echo 2 > b; env -u GIT_INDEX_FILE -u GIT_REFLOG_ACTION git commit -qnm Slow b"
    for then in ("true", theirs):
        first, index = repository.head(), repository.index()
        repository.hook("pre-commit", f"{then}; {HANG.format(pids=pids)}")
        said = assert_refused(work.commit("Slow", ["a"]), "GIT_ERROR", True)["message"]
        assert "longer than 6 seconds" in said
        if then == "true":
            assert "HEAD has not moved" in said
            assert (repository.head(), repository.index()) == (first, index)
        else:
            assert said.startswith("The repository has moved on")
            assert repository.committed() == ["b"]
        assert_ended(pids)


@pytest.mark.parametrize("then", ["true", "git checkout -q -b other main~", "git commit -q -m B b"])
def test_a_hook_after_the_commit(repository: Repository, pids: Path, work: Work, then: str) -> None:
    """The commit was made and is answered, whatever another hook has made of its message, and
    whatever was done after it.
    """
    first = repository.head()
    repository.hook("commit-msg", 'echo "Rewritten" > "$1"')
    hang = f"echo 3 > b; {then}; {HANG.format(pids=pids)}"
    repository.hook("post-commit", f"[ -e '{pids}' ] || {{ touch '{pids}'; {hang}; }}")
    made = committed(work.commit("Slow", ["a"]), work.sid)
    assert (made["summary"], made["files_changed"]) == ("Rewritten", 1)
    assert repository.git("rev-parse", f"{made['hash']}^").strip() == first
    assert repository.git("merge-base", "main", made["hash"]).strip() == made["hash"]
    assert_ended(pids)
