"""D12, D45: which links are followed, and what is inside a root and still closed."""

import os
import shutil
from collections.abc import Callable

import pytest

from bridge_project.kernel import path_jail as jail_module
from bridge_project.kernel.config import load
from bridge_project.kernel.path_jail import Jail, default_jail
from files_app.tree import tree
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
