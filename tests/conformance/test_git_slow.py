"""Commits and pushes that take longer than they may (D63, D64)."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, committed
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.short import short

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    """Its user has a home of his own, and a program that asks at the machine's screen."""
    bridge = make_bridge("slow", start=False, **short("GIT_COMMIT_SECONDS", "GIT_PUSH_SECONDS"))
    home = bridge.directory / "home"
    bridge.settings |= {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"}
    bridge.settings["SSH_ASKPASS"] = f"{home}/asks"
    return bridge.start()


@pytest.fixture
def pids(repository: Repository) -> Path:
    """Where what hangs writes its process ids."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    return repository.path / ".git/pids"


HANG = "(trap '' TERM; sleep 600; :) & echo $! $$ > '{pids}'; wait"


def assert_ended(pids: Path) -> None:
    started = [Path("/proc", pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(pid.exists() for pid in started), "what hung has ended")
    assert not list(pids.parent.glob("**/*.lock"))


@pytest.fixture(params=[True, False], ids=["reflog", "no reflog"])
def reflog(request: pytest.FixtureRequest, repository: Repository) -> None:
    if not request.param:
        repository.git("config", "core.logAllRefUpdates", "false")


@pytest.mark.slow
@pytest.mark.usefixtures("reflog")
def test_a_hook_before_the_commit(repository: Repository, work: Work, pids: Path) -> None:
    """Nothing is changed, and it says so. What somebody commits meanwhile is not the phone's, not
    even with its message, nor what the hook itself commits.
    """
    own = "echo 2 > b; env -u GIT_INDEX_FILE git commit -qnm Slow b"
    theirs = own.replace("env", "env -u GIT_REFLOG_ACTION").replace("2", "3")
    for then in ("true", own, theirs):
        first, index = repository.head(), repository.index()
        repository.hook("pre-commit", f"{then}; {HANG.format(pids=pids)}")
        said = assert_refused(work.commit("Slow", ["a"]), "GIT_ERROR", True)["message"]
        assert "longer than 6 seconds" in said
        if then == "true":
            assert "HEAD has not moved" in said
            assert (repository.head(), repository.index()) == (first, index)
        else:
            assert said.startswith("The repository has moved on")
            assert repository.committed() == ["b"]
        assert_ended(pids)


@pytest.mark.slow
@pytest.mark.usefixtures("reflog")
@pytest.mark.parametrize("then", ["true", "git checkout -q -b other main~", "git commit -q -m B b"])
def test_a_hook_after_the_commit(repository: Repository, work: Work, pids: Path, then: str) -> None:
    """The commit was made and is answered, whatever another hook has made of its message, and
    whatever was done after it.
    """
    first = repository.head()
    repository.hook("commit-msg", 'echo "Rewritten" > "$1"')
    hang = f"echo 3 > b; {then}; {HANG.format(pids=pids)}"
    repository.hook("post-commit", f"[ -e '{pids}' ] || {{ touch '{pids}'; {hang}; }}")
    made = committed(work.commit("Slow", ["a"]), work.sid)
    assert (made["summary"], made["files_changed"]) == ("Rewritten", 1)
    assert repository.git("rev-parse", f"{made['hash']}^").strip() == first
    assert repository.git("merge-base", "main", made["hash"]).strip() == made["hash"]
    assert_ended(pids)


class Server(socketserver.ThreadingTCPServer):
    """Accept and say nothing, or to HTTP that it needs a password."""

    daemon_threads = True
    says_nothing = True


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Server)
        while (line := self.rfile.readline()).strip():
            pass
        if self.server.says_nothing:
            self.rfile.read()  # until the other side goes
        elif line:
            told = b"401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0"
            self.wfile.write(b"HTTP/1.1 " + told + b"\r\nConnection: close\r\n\r\n")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answer) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def said_of_push(repository: Repository, work: Work, url: str) -> str:
    repository.git("remote", "remove", "origin", check=False)
    repository.git("remote", "add", "origin", url)
    answer = work.ask("git_push", set_upstream=True)
    return str(assert_refused(answer, "GIT_ERROR", True)["message"])


@pytest.mark.parametrize("scheme", ["git", "http"])
def test_a_remote_that_says_nothing(
    repository: Repository, pids: Path, work: Work, server: Server, scheme: str
) -> None:
    url = f"{scheme}://127.0.0.1:{server.server_address[1]}/a.git"
    assert "longer than 6 seconds" in said_of_push(repository, work, url)


def test_a_password_is_asked_of_nobody(
    home: Path, repository: Repository, pids: Path, work: Work, server: Server
) -> None:
    """Neither at a terminal nor at the screen. A helper of the user's that waits is ended."""
    server.says_nothing = False
    asks = home / "asks"
    asks.write_text(f"#!/bin/sh\ntouch '{home}/asked'\n{HANG.format(pids=pids)}\n")
    asks.chmod(0o755)
    url = f"http://127.0.0.1:{server.server_address[1]}/a.git"
    for helper in ("", "!read answer </dev/tty && echo password=$answer", f"!{asks}"):
        (home / ".gitconfig").write_text(f'[credential]\n\thelper = "{helper}"\n')
        said = said_of_push(repository, work, url)
        waits = helper.endswith("asks")
        assert ("longer than 6 seconds" if waits else "terminal prompts disabled") in said
        assert (home / "asked").exists() == waits
    assert_ended(pids)


HOOKS = {
    "waits": "",
    "commits": "echo 2 > b; env -u GIT_INDEX_FILE git commit -qnm Once b; ",
}


@pytest.mark.slow
@pytest.mark.parametrize("reflog", [True, False], ids=["reflog", "no reflog"])
@pytest.mark.parametrize("ends", ["at once", "later", "never"])
@pytest.mark.parametrize("what", HOOKS)
def test_a_bridge_that_is_killed_meanwhile(
    tmp_path: Path, what: str, ends: str, reflog: bool
) -> None:
    """Its git goes on. The repetition waits for that, and answers what came of it; git is ended
    when its time is over, and then the commit is made anew.
    """
    home, go = tmp_path / "home", tmp_path / "go"
    own = {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"}
    with QuickBridge(tmp_path, **own, **short("GIT_COMMIT_SECONDS")) as bridge:
        repository = Repository(bridge.root / "repository")
        repository.git("config", "core.logAllRefUpdates", str(reflog).lower())
        repository.commit_files({"a": "1\n", "b": "1\n"})
        repository.write("a", "2\n")
        pid = repository.path / ".git/pid"
        once = f"[ ! -e '{pid}' ] || exit 0; echo $PPID > '{pid}'; {HOOKS[what]}"
        hook = home / "hooks/pre-commit"
        hook.parent.mkdir(parents=True)
        hook.write_text(f"#!/bin/sh\n{once}while [ ! -e '{go}' ]; do sleep 0.05; done\n")
        hook.chmod(0o755)
        (home / ".gitconfig").write_text("[core]\n\thooksPath = ~/hooks\n")
        phone = bridge.phone().ready()
        body = {"message": "Once", "files": ["a"]}
        work = Work(bridge, phone, repository.path)
        first = repository.head()
        sent = phone.send("git_commit", body | {"session_id": work.sid})
        wait_until(lambda: pid.exists() and pid.read_text(), "the hook runs")
        left = Path("/proc", pid.read_text().strip())
        if what == "commits":
            wait_until(lambda: repository.head() != first, "the hook has committed")
        bridge.kill()
        if ends == "at once":
            go.touch()
            wait_until(lambda: not left.exists(), "git has ended")
        bridge.start()
        phone = Phone(bridge.port, phone.token).ready()
        phone.join(work.sid)
        phone.send("git_commit", body | {"session_id": work.sid}, id=sent)
        if ends == "later":
            phone.ping()
            go.touch()
        made = committed(phone.answer_to(sent), work.sid)
        wait_until(lambda: not left.exists(), "git has ended")
        assert (made["hash"], made["files_changed"]) == (repository.head(), 1)
        assert repository.committed() == ["a"] and repository.staged() == []
        assert repository.git("rev-list", "--count", f"{first}..") == (
            "2\n" if what == "commits" else "1\n"
        )
