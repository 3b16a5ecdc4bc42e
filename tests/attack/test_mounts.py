"""Parts of the data directory, and procfs, mounted or linked into an allowed root (D45)."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, session_in
from tests.conformance.test_files_http import ask
from tests.faults.hosts import bridge_on, hosts
from tests.servers import wait_until


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """Parts of its data directory, and a procfs, are mounted into its root while it runs."""
    with hosts(1) as [host], bridge_on(host, tmp_path_factory.mktemp("mounts")) as bridge:
        wait_until((bridge.data / "spool" / "rejected").is_dir, "the forwarder has its spool")
        harmless = bridge.directory / "harmless"
        harmless.mkdir()
        (harmless / "file").write_text("harmless")
        repository = Repository(bridge.root / "mounted repository")
        repository.commit_files({"a.txt": "1\n", "inner/django_secret": "no secret\n"})
        repository.write("a.txt", "2\n")
        binds = {
            bridge.root / "secrets": bridge.data / "secrets",
            bridge.root / "certificates": bridge.data / "tls",
            bridge.root / "deep" / "rejected": bridge.data / "spool" / "rejected",
            bridge.root / "harmless": harmless,
            repository.path / "inner": bridge.data / "secrets",
            bridge.root / "a secret": bridge.data / "secrets" / "django_secret",
            bridge.root / "a database": bridge.data / "bridge.sqlite3",
            bridge.root / "parent": bridge.directory,
            bridge.root / "processes": Path("/proc"),
            bridge.root / "an environment": Path(f"/proc/{bridge.running.pid}/environ"),
        }
        # a disk of its own inside the data directory, of which all and a part are mounted again
        disk = bridge.data / "own disk"
        deep, inside = disk / "deep", shlex.quote(str(disk))
        disk.mkdir()
        mounts = [f"mount -t tmpfs own {inside}", f"mkdir {shlex.quote(str(deep))}"]
        for place in (disk, deep):
            mounts.append(f"echo no secret > {shlex.quote(str(place / 'token'))}")
            mounts.append(f"chmod 600 {shlex.quote(str(place / 'token'))}")
        linked = (disk / "token", disk / "twice")
        mounts.append("ln " + " ".join(shlex.quote(str(one)) for one in linked))
        for source, name in ((disk, "disk again"), (deep, "disk part")):
            (bridge.root / name).mkdir()
            again = shlex.quote(str(bridge.root / name))
            mounts.append(f"mount --bind {shlex.quote(str(source))} {again}")
        for target, source in binds.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                target.mkdir(exist_ok=True)
            else:
                target.touch()
            mounts.append(f"mount --rbind {shlex.quote(str(source))} {shlex.quote(str(target))}")
        command = [*bridge.enter, "/bin/sh", "-c", " && ".join(mounts)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield bridge


DIRECTORIES = [
    *("secrets", "certificates", "deep/rejected", "parent/bridge data"),
    *("parent/bridge data/secrets", "processes", "processes/self"),
    *("disk again", "disk again/deep", "disk part"),
]
FILES = [
    *("secrets/django_secret", "certificates/ca.key", "parent/bridge data/secrets/django_secret"),
    *("parent/bridge data/bridge.sqlite3", "parent/allowed root/secrets/django_secret"),
    *("disk again/token", "disk again/twice", "disk again/deep/token", "disk part/token"),
    *("a secret", "a database", "an environment", "processes/self/environ", "processes/1/status"),
]


def test_over_http(bridge: Bridge) -> None:
    for what, paths in (("tree", DIRECTORIES), ("content", FILES)):
        for path in paths:
            assert_error(ask(bridge, what, path), 403, "FILE_ACCESS_DENIED")


def test_what_is_harmless_is_served(bridge: Bridge) -> None:
    """A mount by itself is nothing bad: roots in containers are mounts."""
    assert ask(bridge, "content", "harmless/file").json()["content"] == "harmless"
    tree = bridge.get("/api/v1/files/tree?path=.&depth=5", bridge.admin_token)
    assert tree.status == 200
    secret = (bridge.data / "secrets" / "django_secret").read_text().strip()
    for name in ("django_secret", "ca.key", "environ", "bridge.sqlite3", secret):
        assert f'"{name}"' not in tree.body.decode()


def test_over_the_socket(bridge: Bridge, phone: Phone) -> None:
    """Files, directories, and sessions that would work in them."""
    about = {"session_id": session_in(bridge, phone, bridge.root)}
    lines = {"offset": 0, "limit": 10}
    new: dict[str, Any] = {"agent": "demo", "session_id": None, "resume": False}
    asked: list[tuple[str, dict[str, Any]]]
    asked = [("file_read", about | lines | {"path": path}) for path in FILES]
    for path in DIRECTORIES:
        asked.append(("file_list", about | {"path": path}))
        there = {"working_directory": str(bridge.root / path)}
        asked.append(("session_start", new | there))
    for type_, payload in asked:
        answer = phone.request(type_, payload)
        assert answer["payload"]["code"] == "FILE_ACCESS_DENIED", payload


def test_git_does_not_read_it(bridge: Bridge, phone: Phone) -> None:
    """A tracked file over which a secret is mounted: neither its diff nor a commit has it."""
    work = Work(bridge, phone, bridge.root / "mounted repository")
    for answer in (
        work.ask("git_status_request"),
        work.ask_diff(),
        work.commit("m", ["inner/django_secret"]),
    ):
        assert answer["payload"]["code"] == "FILE_ACCESS_DENIED", answer


def test_hard_links(bridge: Bridge, phone: Phone) -> None:
    """One inode, another name: refused as a file, and left out of what git says."""
    secret = bridge.data / "secrets" / "django_secret"
    repository = Repository(bridge.root / "linked repository")
    repository.commit_files({"a.txt": "1\n", "tracked": "no secret\n"})
    repository.write("a.txt", "2\n")
    (repository.path / "tracked").unlink()
    os.link(secret, repository.path / "tracked")
    os.link(secret, repository.path / "untracked")
    for name in ("tracked", "untracked"):
        denied = ask(bridge, "content", f"linked repository/{name}")
        assert_error(denied, 403, "FILE_ACCESS_DENIED")
    work = Work(bridge, phone, repository.path)
    assert list(work.changes()) == [file["path"] for file in work.diff()] == ["a.txt"]
    answer = work.commit("m", ["tracked"])
    assert answer["payload"]["code"] == "FILE_ACCESS_DENIED", answer
