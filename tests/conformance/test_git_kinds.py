"""Repositories of many kinds: status, differences and commit are plain git's (D63)."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work

pytestmark = pytest.mark.spec("git.as_git")

Kind = Callable[[Repository], None]


def setting(*pairs: str) -> Kind:
    """Settings, in force before anything is changed."""

    def plant(repository: Repository) -> None:
        for pair in pairs:
            repository.git("config", *pair.split("=", 1))

    return plant


def marked(how: str) -> Kind:
    def plant(repository: Repository) -> None:
        repository.git("update-index", how, "kept")
        repository.write("kept", "changed\n")

    return plant


def intended(repository: Repository) -> None:
    repository.write("intended", "x\ny\n")
    repository.git("add", "-N", "intended")


def split(repository: Repository) -> None:
    repository.git("config", "core.splitIndex", "true")
    repository.git("update-index", "--split-index")


def dirty_submodule(repository: Repository) -> None:
    repository.add_submodule("sub")
    repository.write_files({"sub/a": "dirty\n", "sub/new": "1\n"})


def moved_submodule(repository: Repository) -> None:
    repository.add_submodule("sub")
    for key in ("name", "email"):
        repository.git("config", f"user.{key}", "Ada", cwd=repository.path / "sub")
    repository.git("commit", "-q", "--allow-empty", "-m", "x", cwd=repository.path / "sub")


def line_ends(value: str) -> Kind:
    def plant(repository: Repository) -> None:
        repository.commit_files({"crlf": "1\r\n2\r\n", "lf": "1\n2\n"})
        repository.git("config", "core.autocrlf", value)
        repository.write_files({"crlf": "1\r\n3\r\n", "lf": "1\r\n2\r\n", "newer": "1\r\n"})

    return plant


def attributes(repository: Repository) -> None:
    """As with `.gitattributes` added later: the index holds CRLF, which git would turn to LF."""
    repository.commit_files({"crlf": "1\r\n2\r\n", "wide": "1\n".encode("utf-16")})
    repository.commit_files({".gitattributes": "*.txt text\n* text=auto\nid ident\n"})
    repository.write_files({"crlf": "1\r\n3\r\n", "id": "$Id$\n", "new.txt": "1\r\n"})


def encoded(repository: Repository) -> None:
    repository.commit_files({".gitattributes": "wide working-tree-encoding=UTF-16\n"})
    repository.commit_files({"wide": "1\n".encode("utf-16")})
    repository.write("wide", "1\n2\n".encode("utf-16"))


def other_case(repository: Repository) -> None:
    repository.git("config", "core.ignoreCase", "true")
    repository.git("mv", "kept", "Kept")


def modes(value: str) -> Kind:
    def plant(repository: Repository) -> None:
        repository.git("config", "core.fileMode", value)
        (repository.path / "kept").chmod(0o755)

    return plant


def sparse(repository: Repository) -> None:
    repository.commit_files({"in/x": "1\n", "out/y": "1\n"})
    repository.git("sparse-checkout", "set", "--sparse-index", "in")
    repository.write_files({"in/x": "2\n", "out/y": "3\n"})


def worktree_config(repository: Repository) -> None:
    repository.git("config", "extensions.worktreeConfig", "true")
    repository.git("config", "--worktree", "core.fileMode", "false")
    (repository.path / "kept").chmod(0o755)


def version_4(repository: Repository) -> None:
    repository.git("update-index", "--index-version", "4")


def replaced(repository: Repository) -> None:
    """`git replace`: git shows the replacement."""
    other = repository.write(".git/other", "replaced\n")
    new = repository.git("hash-object", "-w", str(other)).strip()
    repository.git("replace", repository.git("rev-parse", "HEAD:a").strip(), new)


def renamed_and_changed(repository: Repository) -> None:
    repository.write("kept", "1\n2\n3\n4\n5\n6\n")
    repository.commit()
    repository.git("mv", "kept", "moved")
    repository.write("moved", "1\n2\n3\n4\n5\n6\n7\n")


KINDS: dict[str, Kind] = {
    "plain": setting(),
    "skip-worktree": marked("--skip-worktree"),
    "assume-unchanged": marked("--assume-unchanged"),
    "intent to add": intended,
    "split index": split,
    "untracked cache": setting("core.untrackedCache=true"),
    "no untracked files": setting("status.showUntrackedFiles=no"),
    "all untracked files": setting("status.showUntrackedFiles=all"),
    "builtin monitor": setting("core.fsmonitor=true"),
    "many files": setting("feature.manyFiles=true"),
    "dirty submodule": dirty_submodule,
    "moved submodule": moved_submodule,
    "autocrlf": line_ends("true"),
    "autocrlf input": line_ends("input"),
    "attributes": attributes,
    "encoding": encoded,
    "other case": other_case,
    "modes": modes("true"),
    "no modes": modes("false"),
    "sparse index": sparse,
    "configuration of the work tree": worktree_config,
    "index version 4": version_4,
    "replaced object": replaced,
    "renamed": renamed_and_changed,
    "no renames": setting("status.renames=false", "diff.renames=false"),
    "copies": setting("status.renames=copies", "diff.renames=copies"),
    "relative paths": setting("status.relativePaths=false", "diff.relative=true"),
    "odd prefixes": setting("diff.noprefix=true", "diff.mnemonicPrefix=true"),
    "ignored submodules": setting("diff.ignoreSubmodules=all"),
    "colours": setting("color.ui=always", "color.status=always", "status.short=true"),
}


def by_git(repository: Repository) -> dict[str, tuple[str, bool]]:
    """Path → what git status says of it: kind, and whether any of it is staged."""
    words = {"M": "modified", "T": "modified", "A": "added", "D": "deleted", "R": "renamed"}
    found = {}
    fields = iter(repository.git("status", "--porcelain=v2", "-z").split("\0")[:-1])
    for record in fields:
        kind, _, rest = record.partition(" ")
        if kind == "?":
            found[rest] = ("untracked", False)
            continue
        states, *_, path = rest.split(" ", 7 if kind == "1" else 8)
        if kind == "2":
            next(fields)
        word = words["A" if states == ".A" else states.strip(".")[0]]
        found[path] = (word, states[0] != ".")
    return found


@pytest.fixture(params=KINDS)
def changed(request: pytest.FixtureRequest, repository: Repository) -> Repository:
    repository.commit_files({"a": "1\n", "staged": "1\n", "kept": "1\n", "gone": "1\n"})
    KINDS[request.param](repository)
    repository.write_files({"a": "2\n", "staged": "2\n", "untracked": "1\n", "new/file": "1\n"})
    repository.git("add", "staged")
    (repository.path / "gone").unlink()
    return repository


def test_status_and_differences(changed: Repository, work: Work) -> None:
    status = work.status()
    shown = {one["path"]: (one["status"], one["staged"]) for one in status["changes"]}
    assert shown == by_git(changed)
    assert status["is_clean"] is False
    counted = changed.git("diff", "--numstat", "-z", "--no-renames", "--ignore-submodules=dirty")
    lines = [line.split("\t") for line in counted.split("\0")[:-1]]
    expected = {path: (added, removed) for added, removed, path in lines}
    said = {
        file["path"]: ("-", "-")
        if file.get("binary")
        else (str(file["additions"]), str(file["deletions"]))
        for file in work.diff()
        if file["status"] != "untracked"
    }
    assert said == expected


def test_a_commit(shared: Bridge, phone: Phone, changed: Repository) -> None:
    """Of a file, of all that is staged, and of a new file: as at the machine, and so is the index
    afterwards.
    """
    copy = Path(f"{changed.path} copy")
    subprocess.run(["cp", "-a", f"{changed.path}/.", str(copy)], check=True)
    work = Work(shared, phone, changed.path)
    for files in (["a"], None, ["untracked", "gone"]):
        if "untracked" in (files or ()):
            changed.git("add", "untracked", cwd=copy)
        changed.git("commit", "-q", "-m", "x", *(["--", *files] if files else []), cwd=copy)
        work.committed("x", files)
        form, state = ("log", "-1", "--format=%T %s"), ("status", "--porcelain=v2", "-z", "-uall")
        for command in (form, state):
            assert changed.git(*command) == changed.git(*command, cwd=copy)
