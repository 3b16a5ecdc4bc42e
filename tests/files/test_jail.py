"""D12: which paths lead inside, and what the others are answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from tests.files.conftest import House, no_leak, read, refused


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
