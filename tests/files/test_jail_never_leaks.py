"""D12, D45: random trees, links and paths, and a place that is swapped while it is opened."""

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from files_app.content import content, read_lines
from files_app.tree import listing, tree
from tests.files.conftest import SECRET, House, build

NAMES = some.sampled_from(["a", "b", "docs", "a.txt", "ü", "n\n"])
WORDS = "a b docs a.txt ü .. .. . root second outside var secrets secret.txt inner hook_token"
STEPS = some.sampled_from([*WORDS.split(), "n\n", ""])
STARTS = some.sampled_from(
    ["", "", "{top}/root/", "{top}/second/", "{top}/outside/", "{top}/root/var/", "{top}/", "/"]
)


PATHS = some.builds(
    lambda start, steps: start + "/".join(steps), STARTS, some.lists(STEPS, max_size=6)
)
# where it lies: names of directories and its own; and what it is, or a link's target
THINGS = some.tuples(
    some.lists(NAMES, min_size=1, max_size=3),
    some.sampled_from(["directory", "file", "fifo"]) | PATHS,
)


def furnish(house: House, made: list[tuple[list[str], str]]) -> None:
    for where, what in made:
        place = house.root.joinpath(*where)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Made by real paths, so that no link of the example puts an inside thing outside or the
            # reverse.
            if os.path.realpath(place.parent) != str(place.parent):
                continue
            if what == "directory":
                place.mkdir()
            elif what == "fifo":
                os.mkfifo(place)
            elif what == "file":
                # never through a link of the example, which would name the file
                with place.open("xb") as file:
                    file.write(b"inside")
            else:
                place.symlink_to(what.format(top=house.top) or ".")
        except OSError:
            continue  # the example makes it twice, or a file of it is in the way


@given(
    made=some.lists(THINGS, max_size=12),
    asked=some.lists(PATHS, min_size=1, max_size=8),
    base=some.none() | PATHS,
)
def test_nothing_from_outside_whatever_is_asked(
    made: list[tuple[list[str], str]], asked: list[str], base: str | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        house = build(Path(os.path.realpath(directory)))
        furnish(house, made)
        start = None if base is None else base.format(top=house.top)
        before = len(os.listdir("/proc/self/fd"))
        for path in [each.format(top=house.top) for each in asked] + [
            "/".join(where) for where, _ in made
        ]:
            _check_file(house, path, start)
            for way in (
                partial(tree, depth=4),
                partial(listing, base=start),
                partial(read_lines, base=start),
            ):
                try:
                    answer = str(way(house.jail, path))
                except BridgeError:
                    continue
                assert not any(word in answer for word in ("SECRET", "hook_token", "secret.txt"))
        assert len(os.listdir("/proc/self/fd")) == before


def _check_file(house: House, path: str, base: str | None) -> None:
    """What is opened is what the system finds there, inside; the jail only refuses more."""
    try:
        with house.jail.open_file(path, base=base) as opened:
            data, stat, real = os.read(opened.fd, 100), opened.stat, opened.path
    except BridgeError:
        return
    assert SECRET not in data
    assert os.path.samestat(stat, os.stat(os.path.join(base or house.root, path)))
    assert real == os.path.realpath(os.path.join(base or house.root, path))
    assert any(real.startswith(f"{root}/") for root in (house.root, house.second))
    assert not real.startswith(f"{house.data}/")


# -- swapped meanwhile -----------------------------------------------------------------------------


@contextmanager
def swapping(place: Path, other: Path) -> Iterator[Callable[[], int]]:
    """A thread that keeps exchanging two names; the function says how often it has."""
    stop = threading.Event()
    spare = place.with_name("spare")
    count = 0

    def run() -> None:
        nonlocal count
        while not stop.is_set():
            os.rename(place, spare)
            os.rename(other, place)
            os.rename(spare, other)
            count += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: count
    finally:
        stop.set()
        thread.join()


def _file(jail: Jail) -> str:
    return str(json.loads(content(jail, "d/deep/f"))["content"])


def _tree(jail: Jail) -> str:
    entries = {entry["name"]: entry for entry in tree(jail, ".", 3)["entries"]}
    return str(entries["d"]["children"][0]["children"][0]["name"])


@pytest.mark.parametrize(("look", "what"), [(_file, "d/deep/f"), (_tree, "d/deep")])
def test_a_place_swapped_for_a_link_outside_never_leads_there(
    house: House, look: Callable[[Jail], str], what: str
) -> None:
    for top, word in ((house.root, "inside"), (house.outside, "SECRET")):
        (top / "d" / "deep").mkdir(parents=True)
        (top / "d" / "deep" / "f").write_text(word)
    (house.outside / "d" / "deep" / "SECRET").write_text("sorted before f in a tree")
    link = house.root / "link"
    link.symlink_to(house.outside / what)
    seen: dict[str, int] = {}
    with swapping(house.root / what, link) as swaps:
        while swaps() < 1000 or (len(seen) < 2 and swaps() < 50_000):
            try:
                word = look(house.jail)
            except (BridgeError, IndexError, KeyError) as error:
                word = getattr(error, "code", "refused")
            seen[word] = seen.get(word, 0) + 1
    assert not any("SECRET" in word for word in seen)
    assert len(seen) >= 2, "the race was never met from both sides"
