"""git_commit (D10): what is committed, in the user's name; what fails leaves all as it was."""

import pytest

from bridge_project.kernel.errors import BridgeError
from tests.conformance.repositories import Repository
from tests.files.conftest import House, refused
from tests.files.repositories import Seen, committed, digest

# -- named files -----------------------------------------------------------------------------------


def test_a_renamed_file_is_committed_as_one(repository: Repository, seen: Seen) -> None:
    """A status names it by its new name alone, so that name means both."""
    repository.commit_files({"old": "".join(f"{number}\n" for number in range(20)), "other": "1\n"})
    repository.git("mv", "old", "new")
    repository.git("mv", "other", "another")
    assert set(seen.changes()) == {"new", "another"}
    assert seen.commit("Rename", "new").files_changed == 1
    assert committed(repository) == ["new", "old"] and set(seen.changes()) == {"another"}
    repository.write("other", "made again\n")
    seen.commit("Rename the other", "another")
    assert committed(repository) == ["another", "other"]
    assert seen.changes() == {"other": ("untracked", 1, 0)}


def test_what_became_another_kind_of_thing(repository: Repository, seen: Seen) -> None:
    """A file a directory, a directory a file or a link, behind which nothing is looked for."""
    names = ("file", "directory/x", "tree/y", "elsewhere/y")
    repository.commit_files(dict.fromkeys(names, "1\n"))
    for name in names[:3]:
        (repository.path / name).unlink()
    for name in ("directory", "tree"):
        (repository.path / name).rmdir()
    repository.write("file/inner", "1\n")
    repository.write("directory", "1\n")
    (repository.path / "tree").symlink_to("elsewhere")
    seen.commit("Kinds", "file", "directory", "tree")
    changed = "directory directory/x file file/inner tree tree/y"
    assert committed(repository) == changed.split()
    kept = repository.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert kept == ["directory", "elsewhere/y", "file/inner", "tree"]
    assert seen.status().is_clean and repository.porcelain() == ""


def test_what_stands_where_a_file_was(repository: Repository, seen: Seen) -> None:
    """A directory: what else is staged in it stays staged, and a difference shows both."""
    repository.commit_files({"t": "1\n"})
    (repository.path / "t").unlink()
    repository.write("t/b", "1\n")
    shown = seen.files("t", "t/b")
    assert (shown["t"].status, shown["t/b"].status) == ("deleted", "untracked")
    repository.write("t/c", "1\n")
    repository.git("add", "-A")
    seen.commit("One of them", "t/b")
    assert committed(repository) == ["t", "t/b"] and repository.staged() == ["t/c"]


def test_all_of_a_directory_but_what_is_ignored_or_a_repository_of_its_own(
    repository: Repository, seen: Seen
) -> None:
    repository.commit_files({".gitignore": "*.log\n"})
    repository.write("d/a", "1\n")
    repository.write("d/b.log", "1\n")
    Repository(repository.path / "d/inner").commit_files({"c": "1\n"})
    seen.commit("All", ".")
    assert committed(repository) == ["d/a"]
    for name in ("d/b.log", "d/inner", "missing", "d/inner/c"):
        with refused("GIT_ERROR"):
            seen.commit("None", name)
    repository.git("add", "-f", "d/b.log")
    seen.commit("Ignored, but known", "d/b.log")
    assert committed(repository) == ["d/b.log"]


def test_a_file_in_conflict_is_not_committed_alone(repository: Repository, seen: Seen) -> None:
    """Without a merge in progress too, as after a stash; what is not in conflict can be."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    repository.git("stash", "-q")
    repository.commit_files({"a": "3\n"})
    repository.git("stash", "pop", "-q", check=False)
    repository.write("b", "2\n")
    before = repository.porcelain()
    for name in ("a", "."):
        with refused("GIT_ERROR"):
            seen.commit("Conflict", name)
    assert repository.porcelain() == before
    seen.commit("The other", "b")
    assert committed(repository) == ["b"] and repository.git("ls-files", "-u") != ""


def test_a_merge_is_concluded_with_all_that_is_staged(repository: Repository, seen: Seen) -> None:
    """The summary compares it with what was there before."""
    repository.commit_files({"a": "1\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"b": "1\n2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"c": "1\n"})
    repository.git("merge", "-q", "--no-commit", "--no-ff", "other")
    with refused("GIT_ERROR"):
        seen.commit("Half", "a")
    summary = seen.commit("Merge")
    assert (summary.files_changed, summary.additions) == (1, 2)
    assert len(repository.git("log", "-1", "--format=%P").split()) == 2


def test_a_linked_work_tree_and_another_hash(house: House, repository: Repository) -> None:
    other = Repository(house.root / "other", "--object-format=sha256")
    other.write("a", "1\n")
    assert len(Seen(house.jail, other.path).commit("First", "a").hash) == 64
    repository.commit_files({"a": "1\n"})
    beside = house.second / "beside"
    repository.git("worktree", "add", "-q", "-b", "beside", str(beside))
    (beside / "a").write_text("2\n")
    summary = Seen(house.jail, beside).commit("Beside", "a")
    assert repository.git("rev-parse", "beside").strip() == summary.hash != repository.head()
    assert repository.git("status", "--porcelain", cwd=beside) == ""


# -- who commits -----------------------------------------------------------------------------------


def test_the_users_name_as_his_configuration_says_here(
    house: House, repository: Repository, seen: Seen
) -> None:
    """Includes count, the repository's own goes before it, nobody is an error."""
    for key in ("user.name", "user.email"):
        repository.git("config", "--unset", key)
    repository.write("a", "1\n")
    home = house.top / "home"
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    before = digest(repository.path / ".git/refs")
    with pytest.raises(BridgeError, match="identity"):
        seen.commit("Nobody", "a")
    assert digest(repository.path / ".git/refs") == before and repository.staged() == []
    (home / "work").write_text("[user]\n\temail = grace@work.example\n")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Grace\n\temail = grace@home.example\n"
        f'[includeIf "gitdir:{house.root}/"]\n\tpath = ~/work\n'
    )
    authors = {"a": "Grace grace@work.example Grace", "b": "Ada grace@work.example Ada"}
    for name, author in authors.items():
        repository.write(name, "1\n")
        seen.commit(name, name)
        assert repository.git("log", "-1", "--format=%an %ae %cn").strip() == author
        repository.git("config", "user.name", "Ada")


def test_the_users_own_filters_run_in_a_commit_and_not_in_reading(
    house: House, repository: Repository, seen: Seen
) -> None:
    """They are not the repository's. Without them git-lfs would be left out."""
    home = house.top / "home"
    (home / "clean").write_text('#!/bin/sh\necho "$HOME" >> "$HOME/ran"\ntr a-z A-Z\n')
    (home / "clean").chmod(0o755)
    filters = '[filter "upper"]\n\tclean = ~/clean %f\n\trequired = true\n'
    (home / ".gitconfig").write_text(filters)
    repository.commit_files({".gitattributes": "*.up filter=upper\n"})
    repository.write("a.up", "text\n")
    seen.status(), seen.diff("a.up")
    assert not (home / "ran").exists()
    seen.commit("Filtered", "a.up")
    assert repository.git("show", "HEAD:a.up") == "TEXT\n"
    assert set((home / "ran").read_text().split()) == {str(home)}
