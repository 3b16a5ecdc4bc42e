"""What the bridge's user has set, and what git may not see of the bridge (D10, D45)."""

import os
from contextlib import nullcontext
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode
from files_app.git.sandbox import config
from tests.conformance.repositories import Repository
from tests.files.conftest import House, refused
from tests.files.repositories import Seen, change


def test_the_users_name_as_his_configuration_says_here(
    house: House, repository: Repository, seen: Seen
) -> None:
    """Includes count, the repository's own goes before it, nobody is an error."""
    for key in ("user.name", "user.email"):
        repository.git("config", "--unset", key)
    repository.write("a", "1\n")
    home = house.top / "home"
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    with pytest.raises(BridgeError, match="identity"):
        seen.commit("Nobody", "a")
    assert repository.git("log", "--all") == "" and repository.staged() == []
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


def test_the_users_own_filters_do_not_run_in_reading(
    house: House, repository: Repository, seen: Seen
) -> None:
    """In a commit they do: tests/attack/test_environments.py."""
    clean = '[filter "own"]\n\tclean = touch ~/ran; cat\n'
    (house.top / "home/.gitconfig").write_text(clean)
    repository.commit_files({".gitattributes": "* filter=own\n", "a": "1\n"})
    repository.write("a", "2\n")
    seen.changes(), seen.diff("a")
    assert not (house.top / "home/ran").exists()
    seen.commit("Filtered", "a")
    assert (house.top / "home/ran").exists()


def test_the_users_own_ignores_count(house: House, repository: Repository, seen: Seen) -> None:
    """As at the machine: in the usual place, or where his configuration says."""
    repository.write("a.tmp", "")
    repository.write("b.bak", "")
    (house.top / "home/.config/git").mkdir(parents=True)
    (house.top / "home/.config/git/ignore").write_text("*.tmp\n")
    assert seen.changes() == {"b.bak"}
    (house.top / "home/ignored").write_text("*.bak\n")
    (house.top / "home/.gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    assert seen.changes() == {"a.tmp"}


def test_somebody_elses_repository(house: House, repository: Repository, seen: Seen) -> None:
    """As git does it: refused, unless the user has called it safe."""
    change(repository)
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    os.chown(repository.path / ".git", 65534, 65534)
    with refused("GIT_ERROR"):
        seen.changes()
    own, no = str(repository.path), "GIT_ERROR"
    for safe, code in (("/elsewhere", no), (own, None), ("", no), ("*", None)):
        with (house.top / "home/.gitconfig").open("a") as file:
            file.write(f'[safe]\n\tdirectory = "{safe}"\n')
        with refused(code) if code else nullcontext():
            assert seen.changes() == {"a"}


def test_the_data_directory_in_a_repository_is_not_shown(house: House, seen: Seen) -> None:
    """D45: never, whatever the roots, and also when somebody has added it."""
    around = Repository(house.root)
    around.git("add", "-f", "var/secrets/hook_token")
    (house.data / "secrets/hook_token").write_text("SECRET changed\n")
    (house.data / "secrets/new").write_text("SECRET\n")
    looks = Seen(house.jail, house.root)
    for cached in (False, True):
        for files in ((), (".",)):
            assert "SECRET" not in encode(looks.diff(*files, cached=cached)).text
    assert not any(name.startswith("var/s") for name in looks.changes())
    for name in ("var", "var/secrets/hook_token"):
        for way in (looks.diff, partial(looks.commit, "Secrets")):
            with refused("FILE_ACCESS_DENIED"):
                way(name)
    looks.commit("All but those", ".")
    assert "var/" not in around.git("show", "--name-only", "--format=")


VALUES = some.text(alphabet='a "\\\n\t#;=ü[]', max_size=12)
SUBSECTIONS = some.text(alphabet='aB.ü "\\]=', min_size=1, max_size=8)


@given(pairs=some.lists(some.tuples(SUBSECTIONS, VALUES), max_size=5))
def test_git_reads_what_is_written(pairs: list[tuple[str, str]]) -> None:
    branches = [(f"branch.{subsection}.merge", value) for subsection, value in pairs]
    written = [("core.eol", "lf"), *branches]
    assert config.read_file("config", config.text(written), "/") == written
