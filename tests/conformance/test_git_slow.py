"""Commits and pushes that take longer than they may (D63, D64)."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.repositories import Repository, Work, committed
from tests.servers import wait_until
from tests.short import short


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


def test_a_hook_before_the_commit(repository: Repository, pids: Path, work: Work) -> None:
    """Nothing is changed, and it says so. What somebody commits meanwhile is not the phone's, not
    even with its message.
    """
    theirs = "echo 2 > b; env -u GIT_INDEX_FILE -u GIT_REFLOG_ACTION git commit -qnm Slow b"
    for then in ("true", theirs):
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


@pytest.mark.parametrize("then", ["true", "git checkout -q -b other main~", "git commit -q -m B b"])
def test_a_hook_after_the_commit(repository: Repository, pids: Path, work: Work, then: str) -> None:
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
