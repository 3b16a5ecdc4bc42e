"""git_diff_response (D10): what git's diff says, as far as one answer holds it."""

import pytest

from bridge_project.kernel import limits
from bridge_project.protocol.catalogue import encode
from tests.conformance.repositories import Repository
from tests.files.conftest import House, refused
from tests.files.repositories import Seen, lines


def test_untracked_files_as_git_would_show_them(repository: Repository, seen: Seen) -> None:
    """D10: as new files; the same that git says once they are added."""
    repository.commit_files({"gone": "x\n"})
    (repository.path / "gone").unlink()  # like one that is new, which is no rename for that
    for name, content in {
        "text": b"1\n\n2\r\n",
        "empty": b"",
        "latin": b"caf\xe9\n",
        "binary": b"1\n\0",
        "script": b"x\n",
    }.items():
        repository.write(f"new/{name}", content)
    (repository.path / "new/script").chmod(0o755)
    (repository.path / "new/link").symlink_to("/etc/passwd")
    assert seen.files("gone", "new")["gone"].status == "deleted"
    untracked = seen.files("new")
    repository.git("add", "new")
    added = seen.files("new", cached=True)
    assert {name: file.wire() | {"status": "added"} for name, file in untracked.items()} == {
        name: file.wire() for name, file in added.items()
    }
    assert lines(added["new/link"], "added") == ["/etc/passwd"]
    assert {file.status for file in untracked.values()} == {"untracked"}


def test_a_name_that_is_no_text_can_be_asked_for_as_it_is_shown(
    repository: Repository, seen: Seen
) -> None:
    """A byte that is no UTF-8 is shown as U+FFFD; that name finds the file, if no other has it."""
    repository.write(b"tracked \xff", "1\n")
    repository.commit()
    repository.write(b"tracked \xff", "2\n")
    repository.write(b"new \xff", "1\n")
    shown = {"tracked \ufffd": ["2"], "new \ufffd": ["1"]}
    assert set(seen.changes()) == set(shown)
    for name, added in shown.items():
        assert lines(seen.files(name)[name], "added") == added
    assert seen.commit("Both", *shown).files_changed == 2


# -- bounds ----------------------------------------------------------------------------------------


def test_a_long_diff_is_cut_where_the_answer_is_full(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: every file is named with its true counts; what lacks lines says so."""
    names = ["a", "b", "c", "new"]
    repository.commit_files(dict.fromkeys(names[:3], ""))
    for name in names:
        repository.write(name, "line\n" * 1000)
    whole = seen.diff(*names)
    assert whole.truncated is None
    assert all(file.truncated is None and len(lines(file, "added")) == 1000 for file in whole.files)
    monkeypatch.setattr(limits, "GIT_DIFF_MAX_LINES", 1500)
    cut = seen.diff(*names)
    assert cut.truncated and {file.additions for file in cut.files} == {1000}
    shown = [(file.truncated, len(lines(file, "added"))) for file in cut.files]
    assert shown == [(None, 1000), (True, 500), (True, 0), (True, 0)]
    assert seen.diff("c").truncated is None


# -- the bridge's own ------------------------------------------------------------------------------


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
    for name in ("var", "var/secrets/hook_token", "var/secrets/new"):
        with refused("FILE_ACCESS_DENIED"):
            looks.diff(name)
        with refused("FILE_ACCESS_DENIED"):
            looks.commit("Secrets", name)
    looks.commit("All but those", ".")
    assert "var/" not in around.git("show", "--name-only", "--format=")
