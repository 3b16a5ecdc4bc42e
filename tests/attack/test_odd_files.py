"""FIFOs where git reads settings, and a spool that is not what it seems (D10, D47)."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work
from tests.conformance.samples import new_session
from tests.faults.quick import QuickBridge, bridge_of_module
from tests.servers import wait_until

bridge = bridge_of_module()


@pytest.fixture
def repository(bridge: Bridge) -> Repository:
    made = Repository(bridge.root / f"repository {new_session()[8:20]}")
    made.commit_files({"a.txt": "1\n", "deep/er/b.txt": "1\n"})
    made.write_files({"a.txt": "2\n", "deep/er/b.txt": "2\n", "new/c.txt": "1\n"})
    return made


FIFOS = """
.gitignore deep/er/.gitattributes .git/info/exclude .git/refs/heads/other
.git/objects/info/alternates .git/index .git/config .git/HEAD .git/packed-refs a.txt untracked
"""


def look(work: Work) -> None:
    """Ask everything: it is answered before git would be ended, rightly or by what is odd."""
    for ask in (
        partial(work.ask, "git_status_request"),
        work.ask_diff,
        partial(work.ask_diff, "new"),
        partial(work.commit, "m", ["deep/er/b.txt"]),
    ):
        answer = ask()
        if answer["type"] == "error":
            assert answer["payload"]["code"] in ("GIT_ERROR", "FILE_ACCESS_DENIED"), answer
            assert "longer than" not in answer["payload"]["message"], answer


@pytest.mark.slow
@pytest.mark.parametrize("name", FIFOS.split())
def test_git_waits_for_no_fifo(
    phone: Phone, bridge: Bridge, repository: Repository, name: str
) -> None:
    path = repository.path / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    look(Work(bridge, phone, repository.path))


def test_the_answer_names_the_fifo(phone: Phone, bridge: Bridge, repository: Repository) -> None:
    """And the repository is answered when it is gone."""
    fifo = repository.path / "deep" / ".gitattributes"
    os.mkfifo(fifo)
    work = Work(bridge, phone, repository.path)
    said = work.ask("git_status_request")["payload"]
    assert said["code"] == "GIT_ERROR" and "deep/.gitattributes" in said["message"], said
    fifo.unlink()
    assert set(work.changes()) == {"a.txt", "deep/er/b.txt", "new/"}


def test_a_spool_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """What is odd in a spool: tests/hooks/test_forwarder.py::test_poison_blocks_nothing."""
    mine = tmp_path / "mine"
    mine.mkdir()
    mine.chmod(0o755)
    stolen, sent = new_session(), new_session()
    event = {"hook_event_name": "UserPromptSubmit", "prompt": "hello"}
    (mine / "1").write_text(json.dumps(event | {"session_id": stolen}))
    bridge = QuickBridge(tmp_path / "bridge")
    bridge.data.mkdir(mode=0o700)
    spool = bridge.data / "spool"
    spool.symlink_to(mine)
    said = "the spool cannot be used"
    with bridge:
        wait_until(lambda: said in bridge.tail(), "the bridge says so")
        assert mine.stat().st_mode & 0o777 == 0o755
        assert [path.name for path in mine.iterdir()] == ["1"]
        assert bridge.get("/api/v1/health", bridge.hook_token).status == 200
        spool.unlink()
        spool.mkdir()
        (spool / "2").write_text(json.dumps(event | {"session_id": sent}))
        wait_until(lambda: bridge.knows(sent), "what is in a real spool is sent")
        assert not bridge.knows(stolen) and bridge.log.read_text().count(said) == 1
        assert spool.stat().st_mode & 0o777 == 0o700


def test_no_other_directory_of_the_data_is_a_link(tmp_path: Path) -> None:
    """One line and no start: what is written there would lie elsewhere."""
    bridge = Bridge(tmp_path / "bridge")
    bridge.data.mkdir(mode=0o700)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (bridge.data / "secrets").symlink_to(elsewhere)
    done = bridge.run(["manage.py", "serve"])
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert elsewhere.stat().st_mode & 0o777 == 0o755 and not list(elsewhere.iterdir())
