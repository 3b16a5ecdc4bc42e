"""The set-up before anything is installed (D42): which Python, which environment, what is said."""

import fcntl
import os
import subprocess
import threading
from pathlib import Path

import pytest

from bridge_project.operations import setup


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a space in its name, in which nothing is set up."""
    project = tmp_path / "a clone"
    (project / "tests").mkdir(parents=True)
    (project / "requirements.txt").write_text("# runtime\nDjango==5.2\n")
    (project / "requirements-claude.txt").write_text("-r requirements.txt\n")
    (project / "tests/requirements.txt").write_text("-r ../requirements-claude.txt\npytest==9.2\n")
    venv = project / ".venv"
    places = {"PROJECT": project, "VENV": venv, "PYTHON": venv / "bin" / "python"}
    for name, place in (places | {"STAMP": venv / "bridge-stamp.json"}).items():
        monkeypatch.setattr(setup, name, place)
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def steps(clone: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What prepare() did: "venv", which makes a real one, and "pip FILE", which does nothing."""
    done: list[str] = []

    def run_step(command: list[str], *_: object) -> None:
        if command[1:3] == ["-m", "venv"]:
            done.append("venv")
            subprocess.run([*command, "--without-pip"], check=True)
            site = next(Path(setup.VENV, "lib").glob("python*/site-packages"))
            (site / "pip").mkdir()
            (site / "pip" / "__init__.py").touch()
        elif command[1:3] == ["-m", "pip"]:
            done.append(f"pip {command[-1]}")

    monkeypatch.setattr(setup, "run_step", run_step)
    return done


def prepared(kind: str, steps: list[str]) -> list[str]:
    steps.clear()
    setup.prepare(kind)
    return list(steps)


def test_make_takes_the_newest_that_can_make_environments(tmp_path: Path) -> None:
    """3.13 cannot, 3.12 can; a plain python3 may be newer than the pins, or too old."""
    machine = tmp_path / "bin"
    machine.mkdir()
    for name, does in (("python3.13", "exit 1"), ("python3.12", 'echo "$0 $@"'), ("python3", "")):
        (machine / name).write_text(f"#!/bin/sh\n[ $1 = -c ] && [ {name} != python3.13 ] || {does}")
        (machine / name).chmod(0o755)
    make = ["make", "-s", "-f", f"{setup.PROJECT}/Makefile", "setup"]
    environment = os.environ | {"PATH": f"{machine}:/usr/bin:/bin"}
    done = subprocess.run(make, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "python3.12 bridge_project/operations/setup.py setup" in done.stdout, done


def test_the_second_time_installs_what_has_changed(clone: Path, steps: list[str]) -> None:
    """`run` and `test` share an environment; a change may be in a file that another includes."""
    assert prepared("run", steps) == ["venv", "pip requirements.txt"]
    assert prepared("test", steps) == ["pip tests/requirements.txt"]
    assert prepared("run", steps) == prepared("test", steps) == []
    (clone / "requirements.txt").write_text("Django==5.3\n")
    assert prepared("test", steps) == ["pip tests/requirements.txt"]
    (clone / "requirements.txt").write_text("Django==5.4\n")
    assert prepared("run", steps) == ["pip requirements.txt"]


def test_where_claude_is_the_sdk_comes_without_a_program(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D75: once; and a bridge that cannot have it runs without."""
    program = tmp_path / "bin" / "claude"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert setup.main(["setup"]) == 0
    assert steps == ["venv", "pip requirements.txt"]
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    steps.clear()
    whole = setup.run_step

    def fail(*_: object) -> None:
        raise setup.Missing("No network.")

    monkeypatch.setattr(setup, "run_step", fail)
    assert setup.main(["setup"]) == 0 and setup.STAMP.exists()
    monkeypatch.setattr(setup, "run_step", whole)
    for expected in (["pip claude-agent-sdk"], []):
        assert setup.main(["setup"]) == 0
        assert steps == expected
        steps.clear()


def test_an_interrupted_installation_is_made_anew(
    clone: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while pip ran, the first time and when requirements had changed."""
    whole = setup.run_step

    def interrupted(command: list[str], *rest: object) -> None:
        if command[1:3] == ["-m", "pip"]:
            raise KeyboardInterrupt
        whole(command, *rest)  # type: ignore[arg-type]

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(setup, "run_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                setup.prepare("run")
        assert prepared("run", steps) == ["venv", "pip requirements.txt"]
        (clone / "requirements.txt").write_text("Django==5.3\n")


def test_another_environment_is_made_anew(tmp_path: Path, steps: list[str]) -> None:
    """Of another clone, without Python, or a link: what that leads to is left alone."""
    made = ["venv", "pip requirements.txt"]
    prepared("run", steps)
    setup.STAMP.write_text(setup.STAMP.read_text().replace("a clone", "elsewhere"))
    assert prepared("run", steps) == made
    setup.PYTHON.unlink()
    assert prepared("run", steps) == made
    mine = setup.VENV.rename(tmp_path / "elsewhere") / "bridge-stamp.json"
    mine.write_text("{}")
    setup.VENV.symlink_to(mine.parent)
    assert prepared("run", steps) == made
    assert mine.read_text() == "{}" and not setup.VENV.is_symlink()


def test_two_set_ups_wait_for_each_other(clone: Path, steps: list[str]) -> None:
    with open(clone / "requirements.txt") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = threading.Thread(target=setup.prepare, args=("run",))
        second.start()
        second.join(0.3)
        assert second.is_alive()
        assert steps == []
    second.join(180)
    assert steps == ["venv", "pip requirements.txt"]
