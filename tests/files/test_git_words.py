"""Configurations and reasons: what goes between git, its repository and a person (D10)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel import limits
from bridge_project.kernel.path_jail import Jail, shown
from files_app.git.sandbox import config
from files_app.git.sandbox.error_text import reason
from tests.files.conftest import refused

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
