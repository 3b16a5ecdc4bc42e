"""D77: the jail in the way that any Unix has, and where two spellings are one name."""

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import ways
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ways.linux, "paths", False)


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake of the calls: case and the composition of letters do not matter below a directory."""

    def fold(name: str) -> str:
        return unicodedata.normalize("NFD", name).casefold()

    def folded(call: Callable[..., Any]) -> Callable[..., Any]:
        def with_real_name(path: Any, *rest: Any, dir_fd: int | None = None, **more: Any) -> Any:
            if dir_fd is not None:
                same = (one for one in os.listdir(dir_fd) if fold(one) == fold(path))
                path = next(same, path)
            return call(path, *rest, dir_fd=dir_fd, **more)

        return with_real_name

    for name in ("open", "stat", "readlink"):
        monkeypatch.setattr(os, name, folded(getattr(os, name)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "Straße" / "Café").mkdir(parents=True)
    (tmp_path / "Straße" / "Café" / "Main.py").write_text("inside\n")
    (tmp_path / "Data").mkdir()
    (tmp_path / "Data" / "token").write_text("SECRET")
    return tmp_path


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize(
    "spelling", ["STRASSE/CAFÉ/MAIN.PY", "straße/Cafe\N{COMBINING ACUTE ACCENT}/main.py"]
)
def test_two_spellings_are_one_file(root: Path, spelling: str) -> None:
    jail = Jail([str(root)])
    assert jail.resolve(spelling) == f"{root}/Straße/Café/Main.py"
    with jail.open_file(spelling) as opened:
        assert os.read(opened.fd, 100) == b"inside\n"


@pytest.mark.usefixtures("folding")
@pytest.mark.parametrize("spelling", ["Data/token", "DATA/token", "data/TOKEN", "dAtA"])
@pytest.mark.parametrize("closed", ["Data", "dATA"])
@pytest.mark.parametrize("kind", ["forbidden", "hidden"])
def test_what_is_closed_is_closed_in_every_spelling(
    root: Path, spelling: str, closed: str, kind: str
) -> None:
    """Also where the settings spell it otherwise than the directory does."""
    if kind == "hidden" and closed != "Data":
        closed = "Data"
    jail = Jail([str(root)], **{kind: [f"{root}/{closed}"]})
    with pytest.raises(BridgeError, match="FILE_ACCESS_DENIED"):
        jail.resolve(spelling)


def test_names_that_differ_in_case_are_two_files_elsewhere(root: Path) -> None:
    (root / "main.py").write_text("one")
    os.link(root / "main.py", root / "MAIN.py")
    jail = Jail([str(root)])
    assert jail.resolve("MAIN.py") == f"{root}/MAIN.py"
    assert jail.resolve("main.py") == f"{root}/main.py"


@pytest.fixture
def swapped(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Puts something else at a file's place, between the look at it and its opening."""
    stat = os.stat

    def swap(by: Path) -> None:
        def look(path: Any, *rest: Any, **more: Any) -> os.stat_result:
            found = stat(path, *rest, **more)
            if path == "file":
                monkeypatch.setattr(os, "stat", stat)
                os.rename(by, root / "file")
            return found

        monkeypatch.setattr(os, "stat", look)

    (root / "file").write_text("inside")
    return swap


@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_what_is_swapped_in_is_not_read(
    root: Path, swapped: Callable[[Path], None], kind: str
) -> None:
    """A FIFO is not waited for either."""
    other = root / "other"
    if kind == "link":
        other.symlink_to(root / "Data" / "token")
    elif kind == "fifo":
        os.mkfifo(other)
    else:
        os.link(root / "Data" / "token", other)
    jail = Jail([str(root)], [str(root / "Data")])
    swapped(other)
    with pytest.raises(BridgeError, match="FILE_NOT_FOUND"):
        jail.open_file("file")


def test_nothing_but_a_directory_or_a_wanted_file_is_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would lose its locks if a database were opened and closed."""
    opened, call = [], os.open

    def note(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        found = call(path, flags, *rest, **more)
        opened.append(path)
        return found

    monkeypatch.setattr(os, "open", note)
    os.mkfifo(root / "fifo")
    jail = Jail([str(root)], [str(root / "Data/token")])
    for name in ("Data/token", "fifo"):
        with pytest.raises(BridgeError, match="FILE_ACCESS_DENIED"):
            jail.open_file(name)
    jail.resolve("Straße/Café/Main.py")
    assert {"token", "fifo", "Main.py"}.isdisjoint(opened)
