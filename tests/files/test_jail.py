"""D12: which paths lead inside, and what the others are answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from tests.files.conftest import House, no_leak, read, refused

# -- what is inside --------------------------------------------------------------------------------


# -- what cannot be a path -------------------------------------------------------------------------


NO_TEXTS = [None, "", 5, True, b"a.txt", ["a.txt"], "a\0.txt", "\0", "\ud800", "a\udcff"]


@pytest.mark.parametrize("path", [*NO_TEXTS, "x" * 4097, "ä" * 2049, "n" * 256])
def test_what_cannot_be_a_path(house: House, path: object) -> None:
    for way in (house.jail.open_file, house.jail.open_dir, house.jail.resolve):
        with no_leak(), refused("FILE_INVALID_PATH"):
            way(path)


@pytest.mark.parametrize("base", ["", "docs", "/\0", "/" + "x" * 4097])
def test_a_base_is_an_absolute_path(house: House, base: str) -> None:
    with refused("FILE_INVALID_PATH"):
        house.jail.open_file("a.txt", base=base)


def test_a_file_where_a_directory_is_needed(house: House) -> None:
    for path in ("a.txt", "a.txt/x", "a.txt/..", "a.txt/", "a.txt/."):
        with no_leak(), refused("FILE_INVALID_PATH"):
            house.jail.open_dir(path)
    for path in ("a.txt/", "a.txt/.", "a.txt/../a.txt"):
        with no_leak(), refused("FILE_INVALID_PATH"):
            house.jail.open_file(path)
    for path in ("b.txt", ".", ".."):
        with no_leak(), refused("FILE_INVALID_PATH"):
            house.jail.open_file(path, base=f"{house.root}/a.txt")


def test_a_path_that_steps_without_end_is_refused(house: House) -> None:
    deep = house.root
    for _ in range(301):
        deep /= "d"
    os.makedirs(deep)
    with no_leak(), refused("FILE_INVALID_PATH"):
        house.jail.open_file("/".join(["d"] * 300 + ["d", ".."] * 300 + ["f"]))


# -- what is outside -------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["outside", "nothing", "outside/inner/.."])
def test_a_base_outside_is_denied(house: House, base: str) -> None:
    for path in ("secret.txt", "../root/a.txt", "."):
        with refused("FILE_ACCESS_DENIED"):
            house.jail.resolve(path, base=f"{house.top}/{base}")


# -- links -----------------------------------------------------------------------------------------


def test_dot_dot_after_a_link_is_the_parent_of_where_it_leads(house: House) -> None:
    (house.root / "docs" / "deep").mkdir()
    (house.root / "link").symlink_to("docs/deep")
    assert house.jail.resolve("link/../b.txt") == f"{house.root}/docs/b.txt"


def test_a_link_may_lead_to_another_root(house: House) -> None:
    (house.root / "absolute").symlink_to(house.second)
    (house.root / "relative").symlink_to("../second/c.txt")
    assert read(house.jail, "absolute/c.txt") == b"inside the second\n"
    assert read(house.jail, "relative") == b"inside the second\n"


def test_links_outside_are_denied_whether_or_not_they_lead_somewhere(house: House) -> None:
    top = house.top
    targets = f"{top}/outside {top}/outside/secret.txt {top}/nothing {top}/outside/../root"
    for target in [*targets.split(), "..", "../outside/inner", "../nothing", "/", "/proc"]:
        (house.root / "l").symlink_to(target)
        for path in ("l", "l/", "l/secret.txt", "l/../root/a.txt"):
            for way in (house.jail.open_file, house.jail.open_dir, house.jail.resolve):
                with no_leak(), refused("FILE_ACCESS_DENIED"):
                    way(path)
        (house.root / "l").unlink()


def test_broken_links_and_loops(house: House) -> None:
    (house.root / "broken").symlink_to("nothing")
    (house.root / "self").symlink_to("self")
    (house.root / "ping").symlink_to("pong")
    (house.root / "pong").symlink_to(house.root / "ping")
    with no_leak(), refused("FILE_NOT_FOUND"):
        house.jail.open_file("broken")
    for path in ("self", "ping", "ping/x"):
        with no_leak(), refused("FILE_INVALID_PATH"):
            house.jail.open_file(path)


def test_forty_links_are_followed_and_no_more(house: House) -> None:
    (house.root / "l0").symlink_to("a.txt")
    for number in range(1, 41):
        (house.root / f"l{number}").symlink_to(f"l{number - 1}")
    assert read(house.jail, "l39") == b"inside\n"
    with refused("FILE_INVALID_PATH"):
        house.jail.open_file("l40")


def test_the_longest_path_is_a_path(house: House) -> None:
    path = "./" * ((limits.FILE_PATH_MAX_BYTES - 5) // 2) + "a.txt"
    assert len(path) <= limits.FILE_PATH_MAX_BYTES
    assert read(house.jail, path) == b"inside\n"
    assert Path(house.jail.resolve(path)) == house.root / "a.txt"
