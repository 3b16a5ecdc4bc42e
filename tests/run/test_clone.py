"""`make` in a bare clone: a space in its name, another user if we may, nothing installed (D42)."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.test_tree import REPOSITORY, tracked
from tests.servers import free_port, stop_process, wait_until

pytestmark = pytest.mark.slow
AS_ROOT = os.geteuid() == 0
SET_UP = 500.0  # seconds: everything is downloaded and installed


@pytest.fixture
def clone() -> Iterator[Path]:
    """The files of a clone, where another user can reach them (pytest's places are private)."""
    top = Path(tempfile.mkdtemp(prefix="bridge-clone-"))
    top.chmod(0o755)
    project = top / "a bridge"
    for path in tracked():
        target = project / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (top / "home").mkdir()
    for path in (top, *top.rglob("*")) if AS_ROOT else ():
        shutil.chown(path, "nobody")
    yield project
    shutil.rmtree(top, ignore_errors=True)


def _as_user(clone: Path, **settings: str) -> dict[str, Any]:
    """How to start a command there: as another user when we are root, with a bare environment."""
    ways = ("PIP_", "SSL_", "http", "HTTP", "no_proxy", "NO_PROXY", "LANG")
    kept = {name: value for name, value in os.environ.items() if name.startswith(ways)}
    parts = os.environ["PATH"].split(os.pathsep)
    parts = [part for part in parts if ".venv" not in part and not part.startswith("/root")]
    own = {"PATH": os.pathsep.join(parts), "HOME": str(clone.parent / "home")}
    who: dict[str, Any] = {"user": "nobody", "extra_groups": []} if AS_ROOT else {}
    return {"cwd": clone, "env": kept | own | settings, "stdin": subprocess.DEVNULL, **who}


def test_make_run_from_a_bare_clone(clone: Path) -> None:
    settings = {"BRIDGE_HOST": "127.0.0.1", "BRIDGE_PORT": str(free_port())}
    log = clone.parent / "run.log"

    with log.open("wb") as file:
        options: Any = _as_user(clone, **settings) | {"stdout": file, "stderr": file}
        process = subprocess.Popen(["make", "run"], start_new_session=True, **options)
    try:
        wait_until(
            lambda: "To stop: Ctrl-C" in log.read_text() or process.poll() is not None,
            within=SET_UP,
        )
        assert process.poll() is None, log.read_text()
        os.killpg(process.pid, signal.SIGINT)  # to make and all that it started, as Ctrl-C does
        assert process.wait(180) in (0, -signal.SIGINT)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        stop_process(process)
    first = log.read_text()
    assert "Installing requirements" in first
    assert f"https://127.0.0.1:{settings['BRIDGE_PORT']}" in first
    assert "Error" not in first, first
    assert (clone / "var").stat().st_mode & 0o777 == 0o700

    qr, said = ["make", "qr", "ARGS=--format url"], {"capture_output": True, "text": True}
    done = subprocess.run(qr, timeout=180, **_as_user(clone) | said)
    assert done.returncode == 0, done.stderr
    assert "Installing" not in done.stderr + done.stdout, "the second time nothing is"
    assert done.stdout.startswith(f"https://127.0.0.1:{settings['BRIDGE_PORT']}/pair#v=1&token=")


def test_what_is_missing_is_one_line(clone: Path, tmp_path: Path) -> None:
    """A machine on which the named program is not there; make itself adds that it failed."""
    make = str(shutil.which("make"))
    python = str(shutil.which("python3", path="/usr/bin:/usr/local/bin"))
    for name in ("sh", "sed"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    def said() -> list[str]:
        done = subprocess.run([make, "run"], capture_output=True, text=True, cwd=clone, env=env)
        assert done.returncode != 0 and done.stdout == ""
        return [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]

    (line,) = said()
    assert "install the packages python3.11 and python3.11-venv" in line
    (tmp_path / "python3").symlink_to(python)
    (line,) = said()
    assert line == "git is missing: install the package git (Debian: apt install git)."
    assert not (clone / ".venv").exists()
