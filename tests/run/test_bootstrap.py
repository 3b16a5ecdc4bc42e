"""The set-up before anything is installed (D42): which Python, which environment, what is said."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bridge_project.operations import setup


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a space in its name, in which nothing is set up and pip is never run."""
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
    """What prepare() did: "venv" and "pip FILE"; the environment that "venv" makes is a real one
    without pip, which is all that is looked at.
    """
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


def test_an_environment_of_another_clone_or_without_python_is_made_anew(steps: list[str]) -> None:
    made = ["venv", "pip requirements.txt"]
    prepared("run", steps)
    setup.STAMP.write_text(setup.STAMP.read_text().replace("a clone", "elsewhere"))
    assert prepared("run", steps) == made
    setup.PYTHON.unlink()
    setup.PYTHON.symlink_to("/nonexistent/python")
    assert prepared("run", steps) == made


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(
    clone: Path, tmp_path: Path, steps: list[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine").touch()
    setup.VENV.symlink_to(tmp_path / "elsewhere")
    assert prepared("run", steps)[0] == "venv"
    assert (tmp_path / "elsewhere/mine").exists() and not setup.VENV.is_symlink()


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


def test_a_failing_step_shows_everything_it_said(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    with open(os.devnull) as lock, pytest.raises(setup.Missing) as caught:
        setup.run_step([sys.executable, "-c", code], "Installing", lock.fileno())
    assert "Installing failed (exit code 3)" in str(caught.value)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("Installing …\none\n", "two\n")


def test_an_upgrade_without_its_requirements_changes_nothing(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise setup.Missing("Installing requirements failed")

    monkeypatch.setattr(setup, "run_step", full)
    assert setup.main(["manage", "upgrade"]) == 1
    said = capsys.readouterr().err
    assert "The database was not touched, and a bridge that runs was not stopped." in said
