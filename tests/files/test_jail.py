"""D12, D45: which links are followed, and what is inside a root and still closed."""

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel import path_jail as jail_module
from bridge_project.kernel.config import load
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, default_jail
from files_app.content import content, read_lines
from files_app.tree import listing, tree
from tests.portable import LINUX_WAYS
from tests.servers import meanwhile

SECRET = b"SECRET"


@dataclass(frozen=True)
class House:
    top: Path
    root: Path
    second: Path
    outside: Path
    data: Path
    jail: Jail


def build(top: Path) -> House:
    root, second, outside = (top / name for name in ("root", "second", "outside"))
    data = root / "var"
    for directory in (root / "docs", second, outside / "inner", data / "secrets"):
        directory.mkdir(parents=True)
    (root / "a.txt").write_text("inside\n")
    (root / "docs" / "b.txt").write_text("inside too\n")
    (second / "c.txt").write_text("inside the second\n")
    for secret in (
        outside / "secret.txt",
        outside / "inner/secret.txt",
        data / "secrets/hook_token",
    ):
        secret.write_bytes(SECRET)
    return House(top, root, second, outside, data, Jail([str(root), str(second)], [str(data)]))


@pytest.fixture
def house() -> Iterator[House]:
    """Not in pytest's own directory, which no other user may enter."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield build(Path(os.path.realpath(directory)))


def read(jail: Jail, path: str) -> bytes:
    with jail.open_file(path) as opened:
        return os.read(opened.fd, 10_000)


def assert_denied(jail: Jail, *paths: str) -> None:
    for path in paths:
        with pytest.raises(BridgeError, match="FILE_ACCESS_DENIED"):
            jail.open_file(path)


def test_no_permission_is_denied(house: House) -> None:
    """A directory that may only be entered is passed through, and is empty in a tree."""
    (house.root / "a.txt").chmod(0)
    for name, mode in {"docs": 0o111, "shut": 0, "listed": 0o444}.items():
        (house.root / name).mkdir(exist_ok=True)
        (house.root / name / "f").touch()
        (house.root / name).chmod(mode)
    mine = os.geteuid()
    os.seteuid(mine or 65534)  # root may read everything
    try:
        assert_denied(house.jail, "a.txt", "shut/f", "listed/f", "shut/nothing")
        with pytest.raises(BridgeError, match="FILE_ACCESS_DENIED"):
            house.jail.open_dir("docs")
        assert house.jail.resolve("a.txt") == f"{house.root}/a.txt"
        if LINUX_WAYS:
            assert read(house.jail, "docs/b.txt") == b"inside too\n"
        else:
            assert_denied(house.jail, "docs/b.txt")
        entries = tree(house.jail, ".")["entries"]
    finally:
        os.seteuid(mine)
    directories = [(one["name"], one["children"]) for one in entries if one["type"] == "directory"]
    assert directories == [("docs", []), ("listed", []), ("shut", [])]


def test_a_root_that_became_a_link_is_denied(house: House) -> None:
    """Also one that lies inside another root."""
    jail = Jail([str(house.root / "docs"), str(house.root)])
    assert read(jail, "b.txt") == b"inside too\n" and read(jail, "../a.txt") == b"inside\n"
    shutil.rmtree(house.root / "docs")
    (house.root / "docs").symlink_to(house.outside)
    assert_denied(jail, "secret.txt")


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
    assert_denied(jail, "docs/secret", "alias", "rooms/secret", "second name", "docs//./secret")
    assert [entry["name"] for entry in tree(jail, "docs")["entries"]] == ["b.txt"]
    assert {entry["name"] for entry in tree(jail, ".")["entries"]} == {"docs", "rooms", "a.txt"}


def test_a_database_outside_the_data_directory_is_closed(
    house: House, jail_of: Callable[..., Jail]
) -> None:
    """D45: it holds every message, and what tokens are checked against; others' files are open."""
    (house.root / "link.sqlite3").symlink_to("docs/bridge.sqlite3")
    files = ("docs/bridge.sqlite3", "docs/bridge.sqlite3-wal")
    for name in files:
        (house.root / name).write_bytes(SECRET)
    jail = jail_of(DATABASE_URL=f"sqlite://{house.root}/link.sqlite3")
    assert_denied(jail, *files)
    assert read(jail, f"{house.outside}/secret.txt") == SECRET


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
            # by real paths, so that no link of the example puts an inside thing outside
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
        paths = [one.format(top=house.top) for one in asked]
        for path in [*paths, *("/".join(where) for where, _ in made)]:
            _check_file(house, path, start)
            for way in (tree, listing, read_lines):
                try:
                    answer = str(way(house.jail, path, base=start))
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


@contextmanager
def swapping(place: Path, other: Path) -> Iterator[Callable[[], int]]:
    """A thread that keeps exchanging two names; the function says how often it has."""
    spare = place.with_name("spare")
    count = 0

    def run(over: threading.Event) -> None:
        nonlocal count
        while not over.is_set():
            os.rename(place, spare)
            os.rename(other, place)
            os.rename(spare, other)
            count += 1

    with meanwhile(run):
        yield lambda: count


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
    seen: set[str] = set()
    with swapping(house.root / what, link) as swaps:
        while swaps() < 1000 or (len(seen) < 2 and swaps() < 50_000):
            try:
                word = look(house.jail)
            except (BridgeError, IndexError, KeyError) as error:
                word = getattr(error, "code", "refused")
            seen.add(word)
    assert not any("SECRET" in word for word in seen)
    assert len(seen) >= 2, "the race was never met from both sides"


def test_the_data_directory_is_not_read_for_each_path(house: House) -> None:
    """Thousands of events may wait there; only a file with several hard links is looked for."""
    read: list[str] = []
    watching = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("os.scandir", "os.listdir"):
            read.append(str(arguments[0]))

    sys.addaudithook(note)
    (house.data / "spool").mkdir(exist_ok=True)
    (house.root / "plain").write_text("plain")
    house.jail.open_file("plain").close()
    assert read == []
    os.link(house.root / "plain", house.root / "twice")
    house.jail.open_file("twice").close()
    watching = False
    assert str(house.data) in read
