"""D12, D45: what is inside a root and still closed, and what is left out of a large tree."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel import path_jail as jail_module
from bridge_project.kernel.config import load
from bridge_project.kernel.path_jail import Jail, default_jail
from bridge_project.protocol.http import FileTree
from files_app.tree import listing, tree
from tests.files.conftest import SECRET, House, as_nobody, read, refused


def test_no_permission_is_denied(house: House) -> None:
    """A directory that may only be entered is passed through; a tree shows what it may not read as
    empty.
    """
    (house.root / "a.txt").chmod(0)
    for name, mode in {"docs": 0o111, "shut": 0, "listed": 0o444}.items():
        (house.root / name).mkdir(exist_ok=True)
        (house.root / name / "f").touch()
        (house.root / name).chmod(mode)
    with as_nobody():
        for path in ("a.txt", "shut/f", "listed/f", "shut/nothing"):
            with refused("FILE_ACCESS_DENIED"):
                house.jail.open_file(path)
        with refused("FILE_ACCESS_DENIED"):
            house.jail.open_dir("docs")
        assert house.jail.resolve("a.txt") == f"{house.root}/a.txt"
        assert read(house.jail, "docs/b.txt") == b"inside too\n"
        entries = tree(house.jail, ".")["entries"]
    directories = [(one["name"], one["children"]) for one in entries if one["type"] == "directory"]
    assert directories == [("docs", []), ("listed", []), ("shut", [])]


def test_a_root_that_became_a_link_is_denied(house: House) -> None:
    """Also one that lies inside another root."""
    jail = Jail([str(house.root / "docs"), str(house.root)])
    assert read(jail, "b.txt") == b"inside too\n" and read(jail, "../a.txt") == b"inside\n"
    shutil.rmtree(house.root / "docs")
    (house.root / "docs").symlink_to(house.outside)
    with refused("FILE_ACCESS_DENIED"):
        jail.open_file("secret.txt")


@pytest.fixture
def jail_of(monkeypatch: pytest.MonkeyPatch, house: House) -> Callable[..., Jail]:
    """The jail of these settings, read as they are at a start; the roots are the house and all."""

    def make(**more: object) -> Jail:
        for name in tuple(os.environ):
            if name.startswith(("BRIDGE_", "DATABASE_URL", "REDIS_URL")):
                monkeypatch.delenv(name)
        own = {"BRIDGE_DATA_DIR": house.data, "BRIDGE_ALLOWED_ROOTS": f"{house.root}:/"}
        for name, value in (own | more).items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(jail_module, "conf", load())
        return default_jail()

    return make


def test_the_jail_of_the_settings(house: House, jail_of: Callable[..., Jail]) -> None:
    """Though the whole disk is a root."""
    jail = jail_of()
    for path in (f"{house.data}/secrets/hook_token", "/proc/self/environ", "/proc", "/dev/null"):
        with refused("FILE_ACCESS_DENIED"):
            jail.open_file(path)
    assert read(jail, "a.txt") == b"inside\n"
    assert read(jail, f"{house.outside}/secret.txt") == SECRET and jail.resolve("/..") == "/"


URLS = {"DATABASE_URL_FILE": "postgres://me:word@db/bridge", "REDIS_URL_FILE": "redis://:word@db/0"}
TOKENS = ("BRIDGE_HOOK_TOKEN_FILE", "BRIDGE_ADMIN_TOKEN_FILE", "BRIDGE_TLS_KEY")


@pytest.mark.parametrize("setting", [*URLS, *TOKENS])
def test_files_of_secrets_are_closed_wherever_they_are(
    house: House, jail_of: Callable[..., Jail], setting: str
) -> None:
    """D45: as closed as the data directory, under whatever name."""
    secret, alias = house.root / "docs/secret", house.root / "alias"
    secret.write_text(URLS.get(setting, "t" * 40))
    alias.symlink_to(secret)
    (house.root / "rooms").symlink_to("docs")
    os.link(secret, house.root / "second name")
    more = {"BRIDGE_TLS_CERT": house.outside / "cert.pem"} if setting == "BRIDGE_TLS_KEY" else {}
    jail = jail_of(**{setting: alias if more else secret}, **more)
    for path in ("docs/secret", "alias", "rooms/secret", "second name", "docs//./../docs/secret"):
        with refused("FILE_ACCESS_DENIED"):
            jail.open_file(path)
    assert [entry["name"] for entry in tree(jail, "docs")["entries"]] == ["b.txt"]
    assert {entry["name"] for entry in tree(jail, ".")["entries"]} == {"docs", "rooms", "a.txt"}


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_database_outside_the_data_directory_is_closed(
    house: House, jail_of: Callable[..., Jail], suffix: str
) -> None:
    """D45: it holds every message, and what tokens are checked against."""
    (house.root / "link.sqlite3").symlink_to("docs/bridge.sqlite3")
    (house.root / "docs" / f"bridge.sqlite3{suffix}").write_bytes(SECRET)
    jail = jail_of(DATABASE_URL=f"sqlite://{house.root}/link.sqlite3")
    with refused("FILE_ACCESS_DENIED"):
        jail.open_file(f"docs/bridge.sqlite3{suffix}")
    assert read(jail, "docs/b.txt") == b"inside too\n"


def names(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """{name: size of a file, children of a directory or None when it was not looked into}."""
    found = {}
    for entry in entries:
        below = names(entry["children"]) if "children" in entry else None
        found[entry["name"]] = entry["size"] if entry["type"] == "file" else below
    return found


def test_too_many_entries_are_cut_from_below(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("d1/deep/f", "d1/f1", "d1/f2", "d2/f1", "d3/f1"):
        (house.second / path).parent.mkdir(parents=True, exist_ok=True)
        (house.second / path).write_bytes(b"12345")
    path = str(house.second)

    def cut(most: int) -> tuple[Any, Any]:
        monkeypatch.setattr(limits, "FILE_TREE_MAX_ENTRIES", most)
        answer = tree(house.jail, path, 20)
        assert FileTree.model_validate(answer).wire() == answer
        return names(answer["entries"]), answer.get("truncated")

    first, files = {"deep": {"f": 5}, "f1": 5, "f2": 5}, {"c.txt": 18}
    whole = {"d1": first, "d2": {"f1": 5}, "d3": {"f1": 5}} | files
    shut = dict.fromkeys(("d1", "d2", "d3"))
    assert cut(10) == (whole, None)
    assert cut(9) == (whole | {"d1": first | {"deep": None}}, True)
    assert cut(6) == (shut | files | {"d1": {"deep": None, "f1": 5}}, True)
    assert cut(4) == (shut | files, True)
    assert cut(2) == (dict.fromkeys(("d1", "d2")), True)
    assert [entry["name"] for entry in listing(house.jail, path)["entries"]] == ["d1", "d2"]
