"""Repositories that want to run something, write somewhere or show something (D10, D12): each
planted way is one that git itself would go.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode
from tests.conformance.repositories import Repository
from tests.files.conftest import SECRET, House, no_leak, refused
from tests.files.repositories import Seen, digest, hook, leftovers

KEYS = """
core.fsmonitor core.sshCommand core.gitProxy core.askPass core.editor core.pager
core.alternateRefsCommand diff.external diff.evil.command diff.evil.textconv filter.evil.clean
filter.evil.smudge filter.evil.process merge.evil.driver merge.tool gpg.program
gpg.openpgp.program gpg.ssh.program gpg.ssh.defaultKeyCommand credential.helper sequence.editor
interactive.diffFilter pager.status pager.diff pager.log uploadpack.packObjectsHook
remote.origin.uploadpack web.browser difftool.evil.cmd pager.config hook.evil.command
trailer.x.command trailer.x.cmd submodule.sub.update ssh.variant core.commentString
"""
HOOKS = """
post-index-change reference-transaction pre-auto-gc post-checkout post-merge post-rewrite
fsmonitor-watchman pre-merge-commit applypatch-msg pre-rebase push-to-checkout pre-push
sendemail-validate
"""
# What makes git use them, where a key alone does not.
SWITCHES = {
    "commit.gpgSign": "true",
    "tag.gpgSign": "true",
    "submodule.recurse": "true",
    "status.submoduleSummary": "true",
    "diff.ignoreSubmodules": "none",
    "diff.submodule": "diff",
    "filter.evil.required": "true",
    "core.untrackedCache": "true",
    "gc.auto": "1",
    "hook.evil.event": "pre-commit",
    "log.showSignature": "true",
    "commit.verbose": "true",
}


@pytest.fixture
def canary(house: House) -> Path:
    """A program outside the roots that leaves a line when it runs."""
    program = house.outside / "canary"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{house.outside}/sang"\ncat\n')
    program.chmod(0o755)
    return program


def sang(house: House) -> str:
    path = house.outside / "sang"
    return path.read_text() if path.exists() else ""


def plant(house: House, repository: Repository, canary: Path) -> None:
    """All of it at once, in the repository and in a submodule."""
    inner = Repository(house.root / "inner")
    inner.commit_files({"x": "1\n"})
    repository.git("submodule", "--quiet", "add", str(inner.path), "sub")
    repository.commit_files(
        {"a": "1\n", "b": "1\n", ".gitattributes": "* filter=evil diff=evil merge=evil\n"}
    )
    repository.write("sub/x", "2\n")
    config = "".join(
        f'[{key.rpartition(".")[0].replace(".", chr(32) + chr(34), 1)}{chr(34) if key.count(".") > 1 else ""}]\n{key.rpartition(".")[2]} = "{canary}"\n'
        for key in KEYS.split()
    )
    for directory in (".git", ".git/modules/sub"):
        with (repository.path / directory / "config").open("a") as file:
            file.write(config)
            for key, value in SWITCHES.items():
                section, _, name = key.rpartition(".")
                head = section.replace(".", ' "', 1) + '"' * ("." in section)
                file.write(f"[{head}]\n{name} = {value}\n")
            file.write(
                f'[include]\npath = {house.outside}/included\n[includeIf "gitdir:**"]\npath = {house.outside}/included\n'
            )
        repository.write(f"{directory}/info/attributes", "* filter=evil diff=evil\n")
        for name in HOOKS.split():
            shutil.copy(canary, repository.write(f"{directory}/hooks/{name}", ""))
    (house.outside / "included").write_text(
        f"[core]\nfsmonitor = {canary}\nattributesFile = {house.outside}/attributes\n"
    )
    (house.outside / "attributes").write_text("* filter=evil\n")


def test_reading_runs_nothing_whatever_a_repository_says(
    house: House, repository: Repository, seen: Seen, canary: Path
) -> None:
    """And writes nothing. Plain git, run last, sings."""
    plant(house, repository, canary)
    repository.write("a", "2\n")
    repository.write("new", "1\n")
    before = digest(repository.path)
    with no_leak():
        assert seen.changes() == {
            "a": ("modified", 1, 1),
            "new": ("untracked", 1, 0),
            "sub": ("modified", 0, 0),
        }
        assert set(seen.files()) == {"a"} and set(seen.files("a", "new", "sub")) == {"a", "new"}
        assert seen.files(cached=True) == {}
    assert digest(repository.path) == before and sang(house) == ""
    repository.git("status", check=False)
    assert sang(house) != ""


def test_a_commit_runs_its_hooks_and_nothing_else(
    house: House, repository: Repository, seen: Seen, canary: Path
) -> None:
    """Staged and named files, a directory with a submodule, and one that refuses."""
    plant(house, repository, canary)
    for name in ("pre-commit", "commit-msg", "post-commit"):
        hook(repository, name, f"echo {name} >> '{house.root}/hooks'")
    repository.write("a", "2\n")
    (house.outside / "sang").unlink(missing_ok=True)  # what git sang while the repository was made
    seen.commit("Named", "a")
    repository.write("b", "2\n")
    repository.write("new", "1\n")
    seen.commit("All", ".")
    with refused("GIT_ERROR"):
        seen.commit("Nothing", "a")
    with refused("GIT_ERROR"):
        seen.commit("Nothing")
    assert sang(house) == ""
    assert (house.root / "hooks").read_text().split() == [
        "pre-commit",
        "commit-msg",
        "post-commit",
    ] * 2
    assert "gpgsig" not in repository.git("-c", "core.fsmonitor=", "cat-file", "commit", "HEAD")


# -- links in the git directory --------------------------------------------------------------------


Way = Callable[[Path, Path], None]  # the git directory, one of another repository outside the roots


def link(name: str, target: str = "") -> Way:
    def plant(git: Path, other: Path) -> None:
        path = git / name
        if path.is_dir() and not path.is_symlink():
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
        assert caught.value.code == "FILE_ACCESS_DENIED" and "secret" not in caught.value.message, (
            caught.value.message
        )
    assert digest(other) == before and leftovers(conf.bridge_data_dir) == []


@pytest.mark.parametrize("way", WRITING)
def test_a_commit_writes_nothing_behind_a_link(
    house: House, repository: Repository, seen: Seen, other: Path, way: str
) -> None:
    """Git writes the message and its logs to whatever stands there. Reading does not look at
    them.
    """
    WRITING[way](repository.path / ".git", other)
    before, head = digest(other), repository.head()
    with refused("FILE_ACCESS_DENIED"):
        seen.commit("Overwritten", "a")
    assert digest(other) == before and repository.head() == head
    assert seen.changes() == {"a": ("modified", 1, 1)}


def test_links_that_stay_inside_do_no_harm(
    house: House, repository: Repository, seen: Seen
) -> None:
    """As the makers of some work trees leave them."""
    repository.commit_files({"a": "1\n"})
    shutil.move(repository.path / ".git/objects", house.second / "objects")
    (repository.path / ".git/objects").symlink_to(house.second / "objects")
    shutil.move(repository.path / ".git", house.second / "git directory")
    (repository.path / ".git").symlink_to(house.second / "git directory")
    repository.write("a", "2\n")
    assert seen.changes() == {"a": ("modified", 1, 1)}
    seen.commit("Inside", "a")
    assert seen.status().is_clean and (repository.path / ".git").is_symlink()


def test_a_fifo_holds_nothing_up(house: House, repository: Repository, seen: Seen) -> None:
    """In place of what git would read."""
    repository.commit_files({"a": "1\n"})
    for name in ("index", "config", "HEAD", "packed-refs"):
        path = repository.path / ".git" / name
        saved = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(BridgeError):
            seen.status()
        path.unlink()
        if saved is not None:
            path.write_bytes(saved)
    (repository.path / "a").unlink()
    os.mkfifo(repository.path / "a")
    for look in (seen.status, seen.diff):
        with refused("GIT_ERROR"):  # git compares no such thing
            look()


def test_a_huge_configuration_or_index_is_refused(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit_files({"a": "1\n"})
    config = repository.path / ".git/config"
    os.truncate(config, 2**30)
    with refused("GIT_ERROR"):
        seen.status()
    os.truncate(config, 0)
    os.truncate(repository.path / ".git/index", 2**40)
    with refused("GIT_ERROR"):
        seen.status()


def test_what_lies_behind_a_link_is_neither_shown_nor_asked_about(
    house: House, repository: Repository, seen: Seen
) -> None:
    """D12: the same answer whether or not something is there."""
    repository.commit_files({"tracked/x": "1\n"})
    shutil.rmtree(repository.path / "tracked")
    (house.outside / "x").write_bytes(SECRET)
    (repository.path / "tracked").symlink_to(house.outside)
    assert seen.changes() == {"tracked/x": ("deleted", 0, 1), "tracked": ("untracked", 1, 0)}
    said = [encode(seen.diff(*files)).text for files in ((), ("tracked",), ("tracked/x",))]
    assert not any(SECRET.decode() in text for text in said)
    for name in ("tracked/secret.txt", "tracked/missing"):
        with refused("FILE_NOT_FOUND"):
            seen.diff(name)
        with refused("GIT_ERROR"):
            seen.commit("Behind", name)
