"""A file system that never answers: its own paths are lost, and no others (D12)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.repositories import Repository, session_in
from tests.conformance.test_files_http import ask
from tests.faults.hosts import bridge_on, hosts
from tests.servers import stop_process, wait_until

pytestmark = pytest.mark.slow

# A FUSE mount whose server answers nothing; when it ends, whoever waits gets an error.
MOUNT = """
import ctypes, os, sys
device = os.open("/dev/fuse", os.O_RDWR)
about = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.mount(b"hung", os.fsencode(sys.argv[1]), b"fuse.hung", 0, about)
sys.exit(os.strerror(ctypes.get_errno())) if failed else print("mounted", flush=True)
sys.stdin.read()
"""


@contextmanager
def hung(bridge: Bridge, place: Path) -> Iterator[None]:
    command = [*bridge.enter, sys.executable, "-c", MOUNT, str(place)]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    said = server.stdout.readline()
    if said != "mounted\n":
        server.wait(60)
        pytest.skip(f"no FUSE here: {said.strip()}")
    try:
        yield
    finally:
        stop_process(server)


# A git that waits where it is told to, as for a large work tree, and is then the real one.
GIT = """#!/bin/sh
[ ! -e '{wait}' ] || {{ echo >> '{wait}'; while [ -e '{wait}' ]; do sleep 0.05; done; }}
exec {git} "$@"
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    directory, git = tmp_path_factory.mktemp("hung"), shutil.which("git")
    (directory / "bin").mkdir()
    program = directory / "bin/git"
    program.write_text(GIT.format(wait=directory / "wait", git=git))
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    with hosts(1) as [host], bridge_on(host, directory, PATH=path) as bridge:
        yield bridge


def waiting(bridge: Bridge) -> int:
    """How many of the bridge's threads wait for a FUSE server."""
    tasks = Path(f"/proc/{bridge.running.pid}/task").iterdir()
    return sum("fuse" in (task / "wchan").read_text() for task in tasks)


@pytest.mark.spec("filecode.FILE_UNAVAILABLE")
def test_other_directories_go_on(bridge: Bridge) -> None:
    place = bridge.root / "hung"
    place.mkdir()
    (bridge.root / "link").symlink_to("hung/deep")
    (bridge.root / "fine.txt").write_text("fine")

    def asks(path: str) -> Callable[[], None]:
        def check() -> None:
            body = assert_error(ask(bridge, "content", path), 503, "FILE_UNAVAILABLE")
            assert path in body["message"]

        return check

    with bridge.phones(2) as (phone, other), hung(bridge, place), ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(asks(f"hung/{number}.txt")) for number in range(6)]
        sid = agents.begin(bridge, phone)
        body = {"session_id": sid, "path": "hung/a", "offset": 0, "limit": 1}
        refused = threads.submit(phone.request, "file_read", body)
        wait_until(lambda: waiting(bridge) > 0, "a thread waits for the mount")
        assert ask(bridge, "content", "fine.txt").json()["content"] == "fine"
        agents.end(other, agents.begin(bridge, other))
        for one in asked:
            one.result()
        assert refused.result()["payload"]["code"] == "FILE_UNAVAILABLE"
        asks("link/b.txt")()
        there = agents.start(phone, place)
        assert there["payload"]["code"] == "FILE_UNAVAILABLE", there
        assert ask(bridge, "content", "fine.txt").json()["content"] == "fine"
        assert 0 < waiting(bridge) <= 2
        agents.end(phone, sid)
    wait_until(lambda: waiting(bridge) == 0, "nothing waits")
    assert ask(bridge, "content", "fine.txt").json()["content"] == "fine"


@pytest.mark.spec("filecode.FILE_UNAVAILABLE")
@pytest.mark.parametrize("begun", [False, True])
def test_git_and_files_together(bridge: Bridge, begun: bool) -> None:
    """What is asked of git at once loses no more threads, whether it had begun or not."""
    place, wait = bridge.root / f"git{begun:d}", bridge.directory / "wait"
    repository = Repository(place)
    repository.commit_files({"a.txt": "a\n"})
    with bridge.phones(2) as (phone, other), ExitStack() as ending:
        work = agents.begin(bridge, other)
        sids = [session_in(bridge, phone, place) for _ in range(8)]  # git's queue is a session's

        def ask_git() -> list[str]:
            return [phone.send("git_status_request", {"session_id": sid}) for sid in sids]

        if begun:
            wait.touch()
            ending.callback(wait.unlink, missing_ok=True)
            ids = ask_git()
            wait_until(lambda: wait.stat().st_size >= 4, "git runs as often as it may")
            ending.enter_context(hung(bridge, place))
            wait.unlink()
        else:
            ending.enter_context(hung(bridge, place))
            ids = ask_git()
        body = {"session_id": sids[0], "path": "a.txt", "offset": 0, "limit": 1}
        ids.append(phone.send("file_read", body))
        wait_until(lambda: waiting(bridge) > 0, "a thread waits for the mount")
        (bridge.root / "fine.txt").write_text("fine")
        fine = other.request("file_read", body | {"session_id": work, "path": "fine.txt"})
        assert fine["type"] == "file_read_response", fine
        agents.end(other, agents.begin(bridge, other))
        for one in ids:
            payload = phone.answer_to(one, 60)["payload"]
            assert payload.get("code") == "FILE_UNAVAILABLE" and str(place) in payload["message"]
        assert 0 < waiting(bridge) <= 2
        agents.end(other, work)
    wait_until(lambda: waiting(bridge) == 0, "nothing waits")
