"""One git process on a short lead (D10; STACK: every git call has a time limit and is ended with
its children).
"""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from bridge_project.kernel import child_process, limits
from bridge_project.kernel.child_process import Done
from bridge_project.kernel.errors import BridgeError
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


def test_what_git_says(tmp_path: Path) -> None:
    with no_leak():
        done = shell("cat; echo err >&2; exit 3", tmp_path, stdin=b"in")
    assert done == Done(3, b"in", b"err\n")


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
    wait_until(
        lambda: not any(alive(pid) for pid in pids(tmp_path / "pids")), 5, "the children end"
    )


def test_the_reason_names_the_time(tmp_path: Path) -> None:
    with pytest.raises(BridgeError, match=r"longer than 0\.2 seconds"):
        shell("sleep 600", tmp_path, seconds=0.2)


@pytest.mark.parametrize("output", ["", ">/dev/null 2>&1"], ids=["holds the pipes", "does not"])
def test_what_git_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path, output: str) -> None:
    started = time.monotonic()
    done = shell(f"sleep 600 {output} & echo $! > pids; echo done", tmp_path)
    assert (done.code, done.out) == (0, b"done\n")
    assert time.monotonic() - started < 120
    wait_until(lambda: not alive(pids(tmp_path / "pids")[0]), 5, "the child ends")


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


def test_output_that_just_fits_is_not_cut(tmp_path: Path) -> None:
    done = shell("head -c 1000 /dev/zero", tmp_path, max_bytes=1000)
    assert (len(done.out), done.cut) == (1000, False)
    assert shell("head -c 1001 /dev/zero", tmp_path, max_bytes=1000).cut


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    with no_leak(), refused("FILE_NOT_FOUND"):
        shell("true", tmp_path / "gone")
    (tmp_path / "file").touch()
    with refused("FILE_NOT_FOUND"):
        shell("true", tmp_path / "file")


def test_what_it_writes_can_be_read_by_others(tmp_path: Path) -> None:
    """The bridge's own umask (077) is for its own data."""
    before = os.umask(0o077)
    try:
        shell("touch made", tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644


def test_all_are_ended_when_the_bridge_stops(tmp_path: Path) -> None:
    """A commit's hooks may take minutes; who waits for them is told at once."""
    outcomes: list[Done] = []
    threads = [
        threading.Thread(
            target=lambda: outcomes.append(
                shell("echo $$ >> pids; sleep 600", tmp_path, seconds=60)
            )
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    wait_until(
        lambda: (tmp_path / "pids").exists() and len(pids(tmp_path / "pids")) == 2, 20, "both run"
    )
    child_process.end_all()
    for thread in threads:
        thread.join(180)
    assert [outcome.code < 0 or outcome.code > 128 for outcome in outcomes] == [True, True]


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


def test_no_secret_goes_to_the_users_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = (
        "BRIDGE_HOOK_TOKEN",
        "BRIDGE_ADMIN_TOKEN_FILE",
        "DATABASE_URL",
        "REDIS_URL_FILE",
        "DJANGO_SETTINGS_MODULE",
        "GIT_DIR",
        "PYTHONPATH",
    )
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("JAVA_HOME", "/java")
    kept = git.user_environment()
    assert kept["JAVA_HOME"] == "/java" and "HOME" in kept
    assert "secret" not in kept.values()
    assert set(git.reading_environment("/x")) & {"JAVA_HOME", *secrets} == {"GIT_DIR"}
