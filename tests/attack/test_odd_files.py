"""Number 14 of docs/security.md: FIFOs where git reads settings, and a spool that is not what it
seems.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, session_in, status
from tests.conformance.samples import new_session
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

SOON = 15.0  # seconds; a git call that hangs is ended after 30


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with QuickBridge(tmp_path_factory.mktemp("odd-files")) as bridge:
        yield bridge


@pytest.fixture
def repository(bridge: Bridge) -> Repository:
    made = Repository(bridge.root / f"repository {new_session()[8:20]}")
    made.commit_files({"a.txt": "1\n", "deep/er/b.txt": "1\n"})
    made.write("a.txt", "2\n")
    made.write("deep/er/b.txt", "2\n")
    made.write("new/c.txt", "1\n")
    return made


FIFOS = """
.gitignore deep/er/.gitattributes .git/info/exclude .git/refs/heads/other .git/objects/info/alternates
.git/index .git/config .git/HEAD .git/packed-refs a.txt untracked
"""


def look(phone: Phone, session: str) -> None:
    """Every request is answered long before git would be ended, rightly or by an error that says
    what is odd.
    """
    for type_, more in (
        ("git_status_request", {}),
        ("git_diff", {"files": None, "cached": False}),
        ("git_diff", {"files": ["new"], "cached": False}),
        ("git_commit", {"message": "m", "files": ["deep/er/b.txt"]}),
    ):
        answer = phone.request(type_, {"session_id": session} | more, SOON)
        if answer["type"] == "error":
            assert answer["payload"]["code"] in ("GIT_ERROR", "FILE_ACCESS_DENIED"), answer
            assert "longer than" not in answer["payload"]["message"], answer


@pytest.mark.parametrize("name", FIFOS.split())
def test_git_waits_for_no_fifo(
    phone: Phone, bridge: Bridge, repository: Repository, name: str
) -> None:
    path = repository.path / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    look(phone, session_in(bridge, phone, repository.path))


def test_the_answer_names_the_fifo(phone: Phone, bridge: Bridge, repository: Repository) -> None:
    """And the repository is answered when it is gone."""
    fifo = repository.path / "deep" / ".gitattributes"
    os.mkfifo(fifo)
    session = session_in(bridge, phone, repository.path)
    said = phone.request("git_status_request", {"session_id": session}, SOON)["payload"]
    assert said["code"] == "GIT_ERROR" and "deep/.gitattributes" in said["message"], said
    fifo.unlink()
    changed = {change["path"] for change in status(phone, session)["changes"]}
    assert changed == {"a.txt", "deep/er/b.txt", "new/"}


# -- the spool -------------------------------------------------------------------------------------


def event(session: str) -> str:
    return json.dumps(
        {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": "hello"}
    )


@pytest.fixture
def with_a_spool_that_is(tmp_path: Path) -> Iterator[Callable[[Callable[[Path], None]], Bridge]]:
    """Start a bridge whose spool was replaced by something."""
    bridge = QuickBridge(tmp_path / "bridge")

    def start(replace: Callable[[Path], None]) -> Bridge:
        bridge.data.mkdir(mode=0o700)
        replace(bridge.data / "spool")
        return bridge.start()

    with ExitStack() as ending:
        ending.push(bridge)
        yield start


def test_a_spool_that_is_a_link_is_not_followed(
    with_a_spool_that_is: Callable[[Callable[[Path], None]], Bridge], tmp_path: Path
) -> None:
    """What it leads to keeps its mode and its files; nothing of them is sent; a real directory is
    used as soon as it is there.
    """
    mine = tmp_path / "mine"
    mine.mkdir()
    mine.chmod(0o755)
    stolen, sent = new_session(), new_session()
    (mine / "1").write_text(event(stolen))
    bridge = with_a_spool_that_is(lambda spool: spool.symlink_to(mine))
    wait_until(lambda: "the spool cannot be used" in bridge.tail(), "the bridge says so")
    assert mine.stat().st_mode & 0o777 == 0o755 and [path.name for path in mine.iterdir()] == ["1"]
    assert bridge.get("/api/v1/health", bridge.hook_token).status == 200
    (bridge.data / "spool").unlink()
    (bridge.data / "spool").mkdir()
    (bridge.data / "spool" / "2").write_text(event(sent))
    wait_until(lambda: bridge.knows(sent), "what is in a real spool is sent")
    assert (
        not bridge.knows(stolen) and bridge.log.read_text().count("the spool cannot be used") == 1
    )
    assert (bridge.data / "spool").stat().st_mode & 0o777 == 0o700


def test_what_is_odd_in_the_spool_is_set_aside(
    with_a_spool_that_is: Callable[[Callable[[Path], None]], Bridge], tmp_path: Path
) -> None:
    """Links, FIFOs, directories, another user's files; what a hook wrote is sent all the same."""
    mine = tmp_path / "mine"
    stolen, sent = new_session(), new_session()
    mine.write_text(event(stolen))
    odd = ["1-link", "2-fifo", "3-directory"]

    def make(spool: Path) -> None:
        spool.mkdir()
        (spool / "1-link").symlink_to(mine)
        os.mkfifo(spool / "2-fifo")
        (spool / "3-directory").mkdir()
        (spool / "4").write_text(event(sent))
        if os.geteuid() == 0:
            odd.append("5-foreign")
            (spool / "5-foreign").write_text(event(stolen))
            shutil.chown(spool / "5-foreign", 65534, 65534)

    bridge = with_a_spool_that_is(make)
    wait_until(lambda: bridge.knows(sent), "the hook's event is sent")
    wait_until(
        lambda: len(list((bridge.data / "spool" / "rejected").glob("*.why"))) == len(odd),
        "all of them are set aside",
    )
    assert not bridge.knows(stolen) and mine.read_text() == event(stolen)


def test_no_other_directory_of_the_data_is_a_link(tmp_path: Path) -> None:
    """One line and no start: what is written there would lie elsewhere, and that place become
    private.
    """
    bridge = Bridge(tmp_path / "bridge")
    bridge.data.mkdir(mode=0o700)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (bridge.data / "secrets").symlink_to(elsewhere)
    done = bridge.run(["manage.py", "serve"])
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert elsewhere.stat().st_mode & 0o777 == 0o755 and not list(elsewhere.iterdir())
