"""git_status_response (SPEC Git resources; D10): what git says, of repositories of every kind."""

import os
from contextlib import nullcontext

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.path_jail import Jail
from files_app.git.repository import repository_of
from tests.conformance.repositories import Repository
from tests.files.conftest import House, no_leak, refused
from tests.files.repositories import Seen, change


def test_a_long_status_is_cut_and_says_so(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer fits in a message; what it leaves out is said."""
    for name in "abc":
        repository.write(name, "1\n")
    assert seen.status().truncated is None
    monkeypatch.setattr(limits, "GIT_CHANGES_MAX", 2)
    payload = seen.status()
    assert (len(payload.changes), payload.truncated, payload.is_clean) == (2, True, False)


# -- lines of what git does not know ---------------------------------------------------------------


def test_untracked_files_and_directories_have_their_lines(
    repository: Repository, seen: Seen
) -> None:
    """D10: a directory is one entry with a slash, with the lines of all its files."""
    repository.commit_files({".gitignore": "*.log\n"})
    files = {"a": "1\n2", "empty": "", "binary": "\0\n\n"}
    files |= {"d/x": "1\n", "d/deep/y": "1\n2\n", "d/z.log": "1\n"}
    for name, content in files.items():
        repository.write(name, content)
    (repository.path / "link").symlink_to("a")
    (repository.path / "out").symlink_to("/etc/passwd")
    os.mkfifo(repository.path / "fifo")
    lines = {"a": 2, "empty": 0, "binary": 0, "d/": 3, "link": 1, "out": 1}
    assert seen.changes() == {name: ("untracked", count, 0) for name, count in lines.items()}


def test_what_is_too_large_is_not_counted(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status does not read gigabytes; what was not counted has no lines."""
    repository.write("large", "1\n" * 1000)
    repository.write("small", "1\n")
    monkeypatch.setattr(limits, "GIT_COUNT_MAX_BYTES", 100)
    assert seen.changes() == {"large": ("untracked", 0, 0), "small": ("untracked", 1, 0)}


def test_a_rename_counts_what_changed_besides(repository: Repository, seen: Seen) -> None:
    text = "".join(f"line {number}\n" for number in range(20))
    repository.commit_files({"a": text, "b": "p\nq\nr\n", "gone": "1\n2\n"})
    repository.git("mv", "a", "renamed")
    repository.write("renamed", text + "more\n")
    repository.git("mv", "b", "rewritten")
    repository.write("rewritten", "x\ny\n")  # against the work tree this is no rename any more
    (repository.path / "gone").unlink()
    repository.write("like gone", "1\n2\n3\n")  # and this would be one, if it were asked from there
    repository.git("add", "like gone")
    assert seen.changes() == {
        "renamed": ("renamed", 1, 0),
        "rewritten": ("renamed", 2, 3),
        "gone": ("deleted", 0, 2),
        "like gone": ("added", 3, 0),
    }


# -- what the user has set -------------------------------------------------------------------------


def test_the_users_own_ignores_count(house: House, repository: Repository, seen: Seen) -> None:
    """As at the machine: in the usual place, or where his configuration says."""
    repository.write("a.tmp", "")
    repository.write("b.bak", "")
    (house.top / "home/.config/git").mkdir(parents=True)
    (house.top / "home/.config/git/ignore").write_text("*.tmp\n")
    assert set(seen.changes()) == {"b.bak"}
    (house.top / "home/ignored").write_text("*.bak\n")
    (house.top / "home/.gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    assert set(seen.changes()) == {"a.tmp"}


# -- traces ----------------------------------------------------------------------------------------


def test_a_file_changed_in_the_second_of_its_staging_is_seen(
    repository: Repository, seen: Seen
) -> None:
    """The copy of the index keeps its time, which git compares."""
    repository.write("a", "1\n")
    repository.git("add", "a")
    stat = (repository.path / "a").stat()
    repository.write("a", "2\n")
    os.utime(repository.path / "a", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    os.utime(repository.path / ".git/index", ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert seen.files()["a"].additions == 1


def test_the_working_directory_may_be_new(repository: Repository) -> None:
    """A session that works in a directory of which git knows nothing yet."""
    inner = repository.write("new/inner/a", "1\n").parent
    repository.write("b", "1\n")
    seen = Seen(Jail([str(repository.path.parent)]), inner)
    assert set(seen.changes()) == {"../", "../../b"}
    assert set(seen.files("../")) == {"a"}


# -- kinds of repositories -------------------------------------------------------------------------


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
    """A repository without a part of it is not looked for further up."""
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
