"""Where the data is, what agents may use without being told, how commands are typed (D78)."""

import os
import sys
from pathlib import Path

import pytest
from django.core.management.base import CommandError

from bridge_project.composition import roots
from bridge_project.kernel import own_commands, place
from bridge_project.kernel.config import Conf


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, in which a bridge is installed as a package."""
    (made := tmp_path.resolve() / "home").mkdir()
    monkeypatch.setenv("HOME", str(made))
    for module in (place, roots):
        monkeypatch.setattr(module, "IN_CLONE", False)
    return made


@pytest.mark.parametrize(
    ("platform", "xdg", "data"),
    [
        ("linux", None, ".local/share/agent-bridge"),
        ("linux", "relative", ".local/share/agent-bridge"),
        ("linux", "/elsewhere", "/elsewhere/agent-bridge"),
        ("darwin", "/elsewhere", "Library/Application Support/agent-bridge"),
    ],
)
def test_the_data_of_a_package(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, xdg: str | None, data: str
) -> None:
    monkeypatch.setattr("platform.system", platform.title)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if xdg:
        monkeypatch.setenv("XDG_DATA_HOME", xdg)
    assert place.default_data_dir() == home / data


@pytest.mark.parametrize(
    ("mark", "add", "remove"),
    [
        ("pipx_metadata.json", "pipx inject agent-bridge", "pipx uninstall agent-bridge"),
        ("uv-receipt.toml", "uv pip install --python {}", "uv tool uninstall agent-bridge"),
        ("pyvenv.cfg", "{} -m pip install", "{} -m pip uninstall agent-bridge"),
    ],
)
def test_what_installed_a_package_adds_to_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, mark: str, add: str, remove: str
) -> None:
    """The environments of pipx and uv may have no pip."""
    monkeypatch.setattr("sys.prefix", str(home))
    (home / mark).touch()
    found = place.installer()
    assert found.add == add.format(sys.executable)
    assert found.remove == remove.format(sys.executable)


def test_in_a_clone_the_data_is_its_own_and_commands_are_make(tmp_path: Path) -> None:
    assert place.default_data_dir() == place.PROJECT_DIR / "var"
    usual, other = Conf(bridge_data_dir=place.PROJECT_DIR / "var"), Conf(bridge_data_dir=tmp_path)
    assert own_commands.make_command(usual, "hooks", "--remove --yes") == (
        "make hooks ARGS='--remove --yes'"
    )
    assert own_commands.make_command(other, "qr") == f"BRIDGE_DATA_DIR={tmp_path} make qr"


def chosen(directory: Path, data: Path, *named: str, **settings: list[str]) -> tuple[str, ...]:
    """What agents may use when the bridge is started in a directory."""
    conf, before = Conf(bridge_data_dir=data, **settings), os.getcwd()  # type: ignore[arg-type]
    os.chdir(directory)
    try:
        roots.choose(conf, named)
        return conf.allowed_roots
    finally:
        os.chdir(before)


def test_named_then_set_then_where_it_is_started(home: Path) -> None:
    data, here, other = home / ".data", home / "here", home / "other"
    here.mkdir()
    other.mkdir()
    assert chosen(here, data) == (str(here),)
    assert chosen(here, data, "../other", ".") == (str(other), str(here))
    assert chosen(home, data, bridge_allowed_roots=[str(other)]) == (str(other),)
    assert chosen(home, data, "~/here", bridge_allowed_roots=[str(other)]) == (str(here),)
    (link := home / "link").symlink_to("/")
    with pytest.raises(CommandError, match="whole machine"):
        chosen(here, data, str(link))


def test_more_than_a_project_is_not_used_unasked(home: Path) -> None:
    (within := home / "within").mkdir()
    for directory, data, why in (
        (Path("/"), home / ".data", "is the whole machine"),
        (home.parent, home / ".data", "holds your home directory"),
        (home, home / ".data", "is your home directory"),
        (within, within / "data", "holds the bridge's data"),
        (within, within, "holds the bridge's data"),
    ):
        with pytest.raises(CommandError, match=f"it {why}. Name .*: `agent-bridge run DIR`"):
            chosen(directory, data)
    assert chosen(within, within / "data", str(within)) == (str(within),), "who names it means it"


def test_a_clone_holds_its_data(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clone := home / "clone").mkdir()
    monkeypatch.setattr(roots, "IN_CLONE", True)
    monkeypatch.setattr(roots, "PROJECT_DIR", clone)
    assert chosen(clone, clone / "var") == (str(clone),)
