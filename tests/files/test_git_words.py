"""Names, configurations and reasons: what goes between git, its repository and a person (D10)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel import limits
from bridge_project.kernel.path_jail import Jail, shown
from files_app.git.paths import Names
from files_app.git.sandbox import config
from files_app.git.sandbox.error_text import reason
from sessions_app.working_directory import RepositoryPaths
from tests.files.conftest import refused

# -- names -----------------------------------------------------------------------------------------


def names_of(top: str, directory: str, forbidden: str = "/forbidden") -> Names:
    return Names(
        RepositoryPaths(directory, top, f"{top}/.git", f"{top}/.git"), Jail(["/"], [forbidden])
    )


PARTS = some.lists(some.sampled_from(["a", "b", "ü ", "-", ":", "…"]), max_size=4)


@given(inner=PARTS, name=PARTS.filter(bool), slash=some.booleans())
def test_what_is_told_can_be_asked_for(inner: list[str], name: list[str], slash: bool) -> None:
    """Relative to the working directory and back, wherever in the work tree it is."""
    names = names_of("/top", "/".join(["/top", *inner]))
    told = names.to_client_name("/".join(name) + "/" * slash)
    assert told.endswith("/") == slash
    assert names.to_git_name(told) == "/".join(name)
    assert os.path.normpath(os.path.join("/top", *inner, told)) == os.path.join("/top", *name)


@given(name=some.text(alphabet="./ab", min_size=1, max_size=12), inner=PARTS)
def test_nothing_outside_the_work_tree_is_asked_for(name: str, inner: list[str]) -> None:
    names = names_of("/top", "/".join(["/top", *inner]))
    plain = os.path.normpath(os.path.join("/top", *inner, name))
    if plain == "/top" or plain.startswith("/top/"):
        assert os.path.normpath(f"/top/{names.to_git_name(name)}") == plain
    else:
        with refused("FILE_ACCESS_DENIED"):
            names.to_git_name(name)


def test_a_name_behind_a_link_to_the_work_tree(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "link").symlink_to("top")
    names = names_of(f"{tmp_path}/top", f"{tmp_path}/top")
    assert names.to_git_name(f"{tmp_path}/link/file") == "file"


# -- configurations --------------------------------------------------------------------------------

VALUES = some.text(alphabet='a "\\\n\t#;=ü[]', max_size=12)
SUBSECTIONS = some.text(alphabet='aB.ü "\\]=', min_size=1, max_size=8)


@given(pairs=some.lists(some.tuples(SUBSECTIONS, VALUES), max_size=5))
def test_git_reads_what_is_written(pairs: list[tuple[str, str]]) -> None:
    written = [
        ("core.eol", "lf"),
        *((f"branch.{subsection}.merge", value) for subsection, value in pairs),
    ]
    assert config.read_file("config", config.text(written), "/") == written


HARMFUL = """
core.fsmonitor core.hookspath core.worktree core.sshcommand core.gitproxy core.askpass
core.editor core.pager core.attributesfile core.excludesfile core.alternaterefscommand
core.splitindex core.untrackedcache include.path includeif.gitdir:/.path filter.x.clean
filter.x.smudge filter.x.process filter.x.required diff.external diff.x.textconv diff.x.command
merge.x.driver gpg.program gpg.ssh.program commit.gpgsign alias.status pager.status
credential.helper remote.o.url remote.o.promisor remote.o.uploadpack submodule.x.update
submodule.recurse trace2.eventtarget sequence.editor extensions.partialclone hook.x.command
protocol.allow safe.directory uploadpack.packobjectshook extensions.worktreeconfig
i18n.commitencoding commit.template
"""


def test_only_harmless_keys_are_kept() -> None:
    """D10: whatever names a program, a place or more configuration is none of them, in whichever
    version of git.
    """
    harmless = [
        ("core.filemode", "true"),
        ("extensions.objectformat", "sha256"),
        ("branch.a.b.merge", "refs/heads/x"),
        ("user.email", "a@b"),
    ]
    harmful = [(key, "x") for key in HARMFUL.split()]
    assert config.of_repository([*harmless, *harmful]) == harmless
    assert config.of_user(harmful, filters=False) == []


@pytest.mark.parametrize(
    ("key", "value"), [("extensions.unheard", "true"), ("extensions.refstorage", "files:///etc")]
)
def test_a_repository_of_another_kind_is_refused(key: str, value: str) -> None:
    with refused("GIT_ERROR"):
        config.of_repository([(key, value)])


def test_the_users_paths_are_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path would begin in the repository."""
    monkeypatch.setenv("HOME", "/users/u")
    said = [
        ("core.excludesfile", "~/ignore"),
        ("core.attributesfile", "/etc/attributes"),
        ("core.excludesfile", "relative"),
        ("filter.lfs.clean", "git-lfs clean"),
    ]
    assert config.of_user(said, filters=True) == [
        ("core.excludesfile", "/users/u/ignore"),
        ("core.attributesfile", "/etc/attributes"),
        ("filter.lfs.clean", "HOME=/users/u; export HOME; git-lfs clean"),
    ]


# -- reasons ---------------------------------------------------------------------------------------


@pytest.fixture
def jail(tmp_path: Path) -> Jail:
    (tmp_path / "my root" / "top").mkdir(parents=True)
    (tmp_path / "my root" / "data").mkdir()
    return Jail([str(tmp_path / "my root")], [str(tmp_path / "my root" / "data")])


def test_a_reason_is_gits_own_without_its_noise(jail: Jail, tmp_path: Path) -> None:
    top = f"{tmp_path}/my root/top"
    said = f"fatal: \x1b[31mUnable\x1b[0m to create '{top}/.git/index.lock'\nhint: try again\n\nerror: 10%\r 20%\rdone.\r\nin {top}: no\n"
    assert (
        reason(said.encode(), jail, top)
        == "Unable to create '.git/index.lock'\ndone.\nin the work tree: no"
    )


def test_a_reason_names_no_place_outside_the_roots(jail: Jail, tmp_path: Path) -> None:
    top = f"{tmp_path}/my root/top"
    said = f"/etc/passwd:3: 'file:///etc/x' see https://example.org/a/b (/users/u/.git), {tmp_path}/private dir/index ~/x ../y a/b/c"
    assert (
        reason(said.encode(), jail, top, f"{tmp_path}/private dir")
        == "…:3: 'file:…' see https://example.org/a/b (…), … ~/x ../y a/b/c"
    )


@given(
    said=some.lists(
        some.sampled_from(
            ["/", "/etc", "etc", "'", " ", ":", "\n", "…", ".", "x", "https://", "file:"]
        ),
        max_size=30,
    ).map("".join)
)
def test_no_reason_names_an_absolute_path(said: str) -> None:
    cleaned = reason(said.encode(), Jail(["/allowed"]), "/allowed/top")
    words = [
        word
        for part in cleaned.split()
        if "://" not in part
        for word in part.replace("'", " ").replace(":", " ").split()
    ]
    assert not any(word.startswith("/") for word in words), cleaned


def test_a_long_reason_keeps_its_beginning_and_its_end(jail: Jail) -> None:
    cut = reason(b"first\n" + b"x" * 10_000 + b"\nlast", jail, "/top")
    assert cut.startswith("first\n")
    assert cut.endswith("\nlast")
    assert len(cut) <= limits.GIT_REASON_MAX_CHARS + 3


@given(data=some.binary(max_size=60))
def test_a_reason_of_any_bytes_can_be_shown(data: bytes) -> None:
    said = reason(data, Jail(["/allowed"]), "/allowed/top")
    assert shown(said) == said
    assert all(c.isprintable() or c in "\n\t" or c.isspace() or ord(c) > 0x9F for c in said)
