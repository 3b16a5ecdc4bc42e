"""Two roots, the bridge's data directory inside the first, and secrets that nothing may reach."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from tests.conformance.repositories import Repository
from tests.files.repositories import Seen

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
        outside / "inner" / "secret.txt",
        data / "secrets" / "hook_token",
    ):
        secret.write_bytes(SECRET)
    return House(top, root, second, outside, data, Jail([str(root), str(second)], [str(data)]))


@pytest.fixture
def house() -> Iterator[House]:
    """Not in pytest's own directory, which no other user may enter (see ``as_nobody``)."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield build(Path(os.path.realpath(directory)))


def read(jail: Jail, path: str) -> bytes:
    with jail.open_file(path) as opened:
        return os.read(opened.fd, 10_000)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to read everything."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


@contextmanager
def refused(code: str) -> Iterator[None]:
    with pytest.raises(BridgeError) as caught:
        yield
    assert caught.value.code == code


@pytest.fixture
def repository(house: House, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A fresh repository in the first root; the bridge's user has an empty home of his own."""
    (house.top / "home").mkdir()
    monkeypatch.setenv("HOME", str(house.top / "home"))
    for name in ("XDG_CONFIG_HOME", *(name for name in os.environ if name.startswith("GIT_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Repository(house.root / "a repository")


@pytest.fixture
def seen(house: House, repository: Repository) -> Seen:
    """What a session in that repository gets."""
    return Seen(house.jail, repository.path)
