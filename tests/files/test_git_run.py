"""One git process on a short lead (D10; STACK: every git call has a time limit and is ended with
its children).
"""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import Done
from files_app.git.sandbox import git
from tests.files.conftest import no_leak, refused
from tests.servers import wait_until

MB = limits.MB


def shell(
    script: str, tmp_path: Path, *, stdin: bytes = b"", seconds: float = 20, max_bytes: int = MB
) -> Done:
    """Run a shell script as a child of git."""
    environment = git.reading_environment(str(tmp_path)) | {"GIT_DIR": os.devnull}
    return git.run(
        ["-c", f"alias.x=!{script}", "x"],
        cwd=str(tmp_path),
        environment=environment,
        stdin=stdin,
        seconds=seconds,
        max_bytes=max_bytes,
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def test_much_in_and_much_out(tmp_path: Path) -> None:
    """More than pipes hold, both ways at once."""
    data = os.urandom(3 * MB)
    assert shell("cat", tmp_path, stdin=data, max_bytes=4 * MB).out == data


def test_a_program_that_does_not_read(tmp_path: Path) -> None:
    assert shell("exec <&-; echo done", tmp_path, stdin=b"x" * (2 * MB)).out == b"done\n"


def test_it_is_ended_in_time_with_its_children(tmp_path: Path) -> None:
    """Those that do not listen to SIGTERM too."""
    script = "(trap '' TERM; echo $$ >> pids; sleep 600; true) & sleep 600 & echo $! >> pids; echo $$ >> pids; wait"
    started = time.monotonic()
    with no_leak(), refused("GIT_ERROR"):
        shell(script, tmp_path, seconds=2)
    assert time.monotonic() - started < 120
    assert len(pids(tmp_path / "pids")) == 3
    wait_until(lambda: not any(alive(pid) for pid in pids(tmp_path / "pids")), "the children end")


def test_what_git_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    started = time.monotonic()
    done = shell("sleep 600 & echo $! > pids; echo done", tmp_path)
    assert (done.code, done.out) == (0, b"done\n")
    assert time.monotonic() - started < 120
    wait_until(lambda: not alive(pids(tmp_path / "pids")[0]), "the child ends")


def test_what_git_leaves_behind_may_not_talk_for_ever(tmp_path: Path) -> None:
    started = time.monotonic()
    assert shell("yes >&2 & echo done", tmp_path).out == b"done\n"
    assert time.monotonic() - started < 120


def test_endless_output_is_cut_and_never_held_in_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        done = shell("yes", tmp_path, max_bytes=MB)
        errors = shell("yes | head -c 50000000 >&2", tmp_path, max_bytes=MB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.cut and len(done.out) == MB
    assert not errors.cut and errors.code == 0 and 0 < len(errors.err) < MB
    assert peak < 8 * MB


def test_git_comes_from_an_absolute_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative entry in PATH would let a repository bring its own git."""
    (tmp_path / "git").write_text("#!/bin/sh\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    git.executable.cache_clear()
    try:
        assert os.path.isabs(git.executable()) and git.executable() != str(tmp_path / "git")
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        git.executable.cache_clear()
        with refused("GIT_ERROR"):
            git.executable()
    finally:
        git.executable.cache_clear()
