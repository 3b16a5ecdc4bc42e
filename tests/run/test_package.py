"""`agent-bridge`: built as a wheel, installed in an environment of its own, run outside (D78)."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from zipfile import ZipFile

import pytest

from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.samples import new_session
from tests.run.test_tree import REPOSITORY, tracked
from tests.servers import Running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PACKAGES = ("bridge_project", "devices_app", "files_app", "hooks_app", "sessions_app")
MB_MAX = 150  # of the whole environment, without what Python compiles of it


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It is built from a copy, so that nothing is left in the clone."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in tracked():
        target = source / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, source)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of an environment that has nothing else."""
    place = tmp_path_factory.mktemp("environment") / "with a space"
    venv.create(place, with_pip=True)
    run(place / "bin/python", "-m", "pip", "install", "-q", wheel)
    return place / "bin"


class Installed(Bridge):
    """A bridge of a user who has installed it and knows no clone."""

    def __init__(self, directory: Path, programs: Path) -> None:
        super().__init__(directory)
        self.home, self.program = directory / "home", programs / "agent-bridge"
        self.data = self.home / ".local/share/agent-bridge"
        for name in ("BRIDGE_DATA_DIR", "BRIDGE_ALLOWED_ROOTS"):
            del self.settings[name]
        self.claude = self.home / ".claude/settings.json"
        self.claude.parent.mkdir(parents=True)
        self.claude.write_text('{"model": "opus"}\n')

    @property
    def environment(self) -> dict[str, str]:
        without = ("CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "PYTHONPATH")
        kept = {name: text for name, text in super().environment.items() if name not in without}
        return kept | {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config")}

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        words = [str(self.program), "run"]
        return subprocess.Popen(
            words, stdout=log, stderr=log, **self.surroundings | {"cwd": self.root}
        )

    def types(self, *words: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`agent-bridge WORDS`, in the project's directory or another."""
        surroundings = self.surroundings | {"cwd": where or self.root}
        command = [str(self.program), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, **surroundings)

    def said(self, *words: str) -> str:
        done = self.types(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pairing(self) -> Pairing:
        found = json.loads(self.said("qr", "--format", "json"))
        return Pairing(**found)


@pytest.fixture(scope="module")
def installed(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    made = Installed(tmp_path_factory.mktemp("installed"), programs)
    made.start()
    try:
        yield made
    finally:
        made.kill_all()


def test_the_wheel_has_all_that_it_needs_and_no_more(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    code = {name for name in names if ".dist-info/" not in name and ".data/" not in name}
    files = {path.relative_to(REPOSITORY).as_posix() for path in tracked()}
    wanted = {name for name in files if name.partition("/")[0] in PACKAGES}
    assert code == {name for name in wanted if not name.endswith(".d.ts")}
    for service in ("agent-bridge.service", "agent-bridge.plist"):
        assert any(name.endswith(f"/share/agent-bridge/{service}") for name in names)


def test_the_environment_is_whole_and_small(programs: Path) -> None:
    assert "No broken requirements" in run(programs / "python", "-m", "pip", "check")
    files = [path for path in programs.parent.rglob("*") if path.suffix != ".pyc"]
    assert sum(path.lstat().st_size for path in files) < MB_MAX * 2**20


def test_what_agents_may_not_use_is_refused_in_a_line(installed: Installed, tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    (foreign := tmp_path / "foreign").mkdir()
    os.chown(foreign, 65534, -1) if os.geteuid() == 0 else None
    home = installed.home
    for where, words, why in (
        (home, [], "is your home directory"),
        (Path("/"), [], "is the whole machine"),
        (home.parent, [], "holds your home directory"),
        (home / ".local/share", [], "holds the bridge's data"),
        (tmp_path, ["/"], "is the whole machine"),
        (tmp_path, ["~"], "is your home directory"),
        (tmp_path, [str(file)], "is not a directory"),
        (tmp_path, ["nowhere"], "does not exist"),
        *([(tmp_path, [str(foreign)], "belongs to another user")] if os.geteuid() == 0 else []),
    ):
        done = installed.types("run", *words, where=where)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and why in line, (words, line)
        assert words or "`agent-bridge run DIR`" in line


def test_a_day_with_it(installed: Installed) -> None:
    """Start, hooks, an event of the agent's, a phone that sees it, doctor, another start."""
    start = installed.log.read_text()
    assert f"Agents use   {installed.root}" in start and str(installed.data) in start
    assert "agent-bridge hooks" in start and "make " not in start
    installed.said("hooks", "--yes")
    hooks = json.loads(installed.claude.read_text())["hooks"]
    command = hooks["UserPromptSubmit"][0]["hooks"][0]["command"]
    session = new_session()
    event = {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": "Hello"}
    with installed.phones(1) as (phone,):
        subprocess.run(["/bin/sh", "-c", command], input=json.dumps(event), text=True, check=True)
        wait_until(lambda: installed.knows(session), "the event is there")
        phone.join(session)
        phone.collect(lambda: bool(phone.events(session)), "the phone has it")
    told = installed.types("doctor", "--json")
    found = {one["check"]: one for one in json.loads(told.stdout)["checks"]}
    assert found["bridge"]["level"] == found["hooks"]["level"] == "ok", told.stdout
    assert "make " not in told.stdout
    page = installed.get("/").body.decode()
    assert "agent-bridge qr" in page and "make qr" not in page


def test_one_data_directory_has_one_bridge(installed: Installed) -> None:
    """A second of the same installation, and one of a clone."""
    second = installed.types("run")
    clone = Bridge(installed.directory / "clone", BRIDGE_DATA_DIR=str(installed.data))
    for done in (second, clone.run(["manage.py", "serve"])):
        assert done.returncode == 1
        assert f"A bridge runs with {installed.data} already" in done.stderr


def test_uninstall_leaves_the_data_until_it_is_told(installed: Installed) -> None:
    said = installed.said("uninstall")
    assert installed.running.wait(60) == 0
    assert installed.claude.read_text() == '{"model": "opus"}\n'
    assert f"The data is kept: {installed.data}" in said
    assert "agent-bridge uninstall --data" in said and "-m pip uninstall agent-bridge" in said
    assert "rm -rf" not in said and (installed.data / "bridge.sqlite3").exists()
    assert f"{installed.data} is removed." in installed.said("uninstall", "--data", "--yes")
    assert not installed.data.exists()
