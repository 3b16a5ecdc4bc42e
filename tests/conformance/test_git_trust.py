"""Whose programs run (D63): the user's as at the machine, a repository's when it is trusted."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.admin import Admin
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work
from tests.conformance.test_git_work_trees import start
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

pytestmark = pytest.mark.spec("git.trust")


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    """Its user has a home of his own, outside the roots."""
    bridge = make_bridge("trust", start=False)
    home = bridge.directory / "home"
    bridge.settings |= {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"}
    return bridge.start()


def at_the_desk(repository: Repository, home: Path, *arguments: str) -> str:
    """What the user's own git prints or says, with his configuration."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own |= {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config", "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        ["git", *arguments], cwd=repository.path, env=own, capture_output=True, check=False
    )
    return f"{done.returncode} {(done.stdout + done.stderr).decode()}"


def plain(repository: Repository) -> None:
    """Take the identity away that the helper has put into the repository's configuration."""
    repository.git("config", "--remove-section", "user")
    repository.git("config", "--remove-section", "commit")


@pytest.mark.parametrize(
    "setting",
    ["[core]\nhooksPath = ~/hooks\n", "[commit]\ngpgSign = true\n[gpg]\nprogram = false\n"],
)
def test_what_the_user_has_set_runs(
    home: Path, repository: Repository, work: Work, setting: str
) -> None:
    """Hooks outside the roots and a signature: the phone is refused as the desk is, unasked."""
    head = repository.commit_files({"a": "1\n"})
    plain(repository)
    (home / "hooks").mkdir()
    (home / "hooks/pre-commit").write_text("#!/bin/sh\necho secret found >&2\nexit 1\n")
    (home / "hooks/pre-commit").chmod(0o755)
    (home / ".gitconfig").write_text(f"[user]\nname = Ada\nemail = a@example.com\n{setting}")
    repository.write("a", "2\n")
    assert at_the_desk(repository, home, "commit", "-q", "-m", "Desk", "a")[0] == "1"
    said = assert_refused(work.ask("git_commit", message="x", files=["a"]), "GIT_ERROR", True)
    assert ("secret found" if "hooks" in setting else "gpg") in said["message"]
    assert repository.head() == head
    (home / "hooks/pre-commit").write_text("#!/bin/sh\nexit 0\n")
    if "hooks" in setting:
        assert work.ask("git_commit", message="x", files=["a"])["type"] == "git_status_response"


CONDITIONS = {
    "hasconfig:remote.*.url:https://git.example/acme/**": "acme",
    "onbranch:work/": "branch",
    "gitdir:**/.git": "directory",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_author_is_that_of_the_desk(
    home: Path, repository: Repository, work: Work, condition: str
) -> None:
    repository.git("checkout", "-q", "-b", "work/x")
    repository.git("remote", "add", "origin", "https://git.example/acme/app.git")
    plain(repository)
    (home / "more").write_text(f"[user]\nemail = {CONDITIONS[condition]}@example.com\n")
    (home / ".gitconfig").write_text(
        f'[user]\nname = Dev\nemail = home@example.com\n[includeIf "{condition}"]\npath = ~/more\n'
    )
    repository.write("a", "1\n")
    at_the_desk(repository, home, "add", "a")
    at_the_desk(repository, home, "commit", "-q", "-m", "Desk")
    repository.write("a", "2\n")
    work.committed("Phone", ["a"])
    desk, phone = repository.git("log", "--format=%an %ae %cn %ce").splitlines()
    assert desk == phone and CONDITIONS[condition] in desk


def test_a_users_setting_that_leads_into_the_repository(
    home: Path, repository: Repository, work: Work
) -> None:
    """`core.hooksPath = .githooks` is his, but what lies there is the repository's."""
    (home / ".gitconfig").write_text("[core]\nhooksPath = .githooks\n")
    repository.commit_files({"a": "1\n"})
    mark = repository.path / ".git/ran"
    repository.write(".githooks/pre-commit", f"#!/bin/sh\ntouch '{mark}'\n").chmod(0o755)
    repository.write("a", "2\n")
    answer = work.ask("git_commit", message="x", files=["a"])
    (program,) = assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"]["programs"]
    path = f"{repository.path}/.githooks/pre-commit"
    assert program == {"kind": "hook", "name": "pre-commit", "path": path}
    assert not mark.exists()
    outside = home / "outside"
    outside.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    outside.chmod(0o755)
    (home / ".gitconfig").write_text("[core]\nhooksPath = ~/hooks\n")
    (home / "hooks").mkdir()
    (home / "hooks/pre-commit").symlink_to(path)
    answer = work.ask("git_commit", message="x", files=["a"])
    assert_refused(answer, "GIT_TRUST_REQUIRED", True)
    (home / "hooks/pre-commit").unlink()
    (home / "hooks/pre-commit").symlink_to(outside)
    work.committed("His own", ["a"])
    assert mark.exists()


@pytest.mark.parametrize("by", ["path", "link"])
def test_a_users_setting_that_includes_a_file_of_the_repository(
    home: Path, repository: Repository, work: Work, tmp_path: Path, by: str
) -> None:
    """That it is included is his, but what stands there is the repository's."""
    repository.commit_files({"a": "1\n"})
    mark = tmp_path / "ran"
    shared = repository.write("shared", f"[core]\nfsmonitor = touch '{mark}'; false\n")
    if by == "link":
        (home / "shared").symlink_to(shared)
        shared = home / "shared"
    (home / ".gitconfig").write_text(f"[include]\npath = {shared}\n")
    repository.write("a", "2\n")
    answer = work.ask("git_commit", message="x", files=["a"])
    (program,) = assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"]["programs"]
    assert program["name"] == "core.fsmonitor" and not mark.exists()


def test_trust_is_given_and_ended_at_the_machine(
    home: Path, bridge: Bridge, repository: Repository, work: Work
) -> None:
    """`manage.py trust`, and the admin site; each is in the audit trail."""
    repository.commit_files({"a": "1\n"})
    repository.hook("pre-commit", "exit 0")

    def asked() -> bool:
        repository.write("a", str(time.monotonic_ns()))
        answer = work.ask("git_commit", message="x", files=["a"])
        return bool(answer["payload"].get("code") == "GIT_TRUST_REQUIRED")

    assert asked()
    said = bridge.manage("trust", str(repository.path)).stdout
    assert "pre-commit" in said
    assert str(repository.path) in bridge.manage("trust").stdout
    assert not asked()
    bridge.manage("trust", "--remove", str(repository.path))
    assert asked() and bridge.manage("trust", "--remove", "/", check=False).returncode == 1
    bridge.manage("trust", str(repository.path))
    admin = Admin(bridge, "ada")
    page = admin.page("/admin/files_app/trustedrepository/?q=" + repository.path.name[-8:])
    assert "pre-commit" in page and str(repository.path) in page
    link = page.split('href="/admin/files_app/trustedrepository/')
    number = next(part.split("/")[0] for part in link if part.split("/")[0].isdigit())
    where = f"/admin/files_app/trustedrepository/{number}/delete/"
    admin.page(where)
    assert admin.post(where, {"post": "yes"}).status == 302
    assert asked()
    trail = admin.page("/admin/devices_app/auditentry/")
    assert "untrust" in trail and "trust" in trail


COMMITS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-auto-gc")
CHANGES_INDEX = ("post-index-change", "filter.x.clean", "core.fsmonitor")
# use → what it can run; git has all of these and more
CAN_RUN = {
    "git_commit": {*COMMITS, *CHANGES_INDEX, "reference-transaction", "merge.x.driver"},
    "git_push": {"pre-push", "reference-transaction"},
    "session_start": {
        *("post-checkout", "reference-transaction", "filter.x.smudge"),
        *CHANGES_INDEX,
    },
}
NEVER = ("pre-merge-commit", "post-rewrite", "post-merge", "pre-rebase", "update", "pre-receive")
KEYS = ("filter.x.clean", "filter.x.smudge", "core.fsmonitor", "gpg.program", "merge.x.driver")


@pytest.mark.parametrize("use", CAN_RUN)
def test_only_what_can_run_is_asked_about(
    home: Path, bridge: Bridge, repository: Repository, work: Work, use: str
) -> None:
    """All hooks and drivers are there: a commit does not ask about those of a push. What runs then
    is among what was asked about.
    """
    bare = repository.path.with_name(f"{repository.path.name}.git")
    repository.commit_files({"a": "1\n"})
    repository.git("clone", "-q", "--bare", str(repository.path), str(bare))
    repository.git("remote", "add", "origin", str(bare))
    log = repository.path / ".git/ran"
    every = {name for names in CAN_RUN.values() for name in names}
    for name in {*every, *NEVER}.difference(KEYS):
        repository.hook(name, f"echo {name} >> '{log}'")
    for key in KEYS:
        repository.git("config", key, f"echo {key} >> '{log}'; cat")
    repository.write(".git/info/attributes", "* filter=x merge=x\n")
    log.unlink(missing_ok=True)
    repository.write("a", "2\n")
    start = {"agent": "demo", "session_id": None, "resume": False}
    requests: dict[str, dict[str, Any]] = {
        "git_commit": {"session_id": work.sid, "message": "x", "files": ["a"]},
        "git_push": {"session_id": work.sid, "set_upstream": True},
        "session_start": start | {"working_directory": str(repository.path), "worktree": "b"},
    }
    asked = requests[use]
    answer = work.phone.request(use, asked)
    details = assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"]
    assert {one["name"] for one in details["programs"]} == CAN_RUN[use]
    assert not log.exists()
    answer = work.phone.request(use, asked | {"trust": details["digest"]})
    assert answer["type"] in ("git_status_response", "git_push_response", "session_ready"), answer
    assert set() < set(log.read_text().split()) <= CAN_RUN[use]


@pytest.mark.parametrize(
    "name", ["post-index-change", "reference-transaction", "post-checkout", "core.fsmonitor"]
)
def test_the_hooks_of_a_branch_do_not_run_as_its_work_tree_is_made(
    home: Path, repository: Repository, phone: Phone, tmp_path: Path, name: str
) -> None:
    """`core.hooksPath = .githooks` means those at the top, which were looked at."""
    monitor = "fsmonitor = .githooks/core.fsmonitor\n"
    (home / ".gitconfig").write_text(f"[core]\nhooksPath = .githooks\n{monitor}")
    mark = tmp_path / "ran"
    repository.commit_files({"a": "1\n"})
    repository.git("checkout", "-q", "-b", "branch")
    repository.write(f".githooks/{name}", f"#!/bin/sh\ntouch '{mark}'\n").chmod(0o755)
    repository.commit()
    for there in ("main", "branch"):  # of the second a person has seen them
        repository.git("checkout", "-q", "--detach", there)
        answer = start(phone, repository.path, "branch")
        if there == "main":
            assert answer["type"] == "session_ready" and not mark.exists(), answer
            repository.git("worktree", "remove", "--force", ".worktrees/branch")
        else:
            (program,) = assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"]["programs"]
            assert program["name"] == name


def test_a_filter_of_a_branch_is_trusted_for_its_commit(
    home: Path, repository: Repository, phone: Phone, tmp_path: Path
) -> None:
    """By a relative path the branch's own runs, whatever was looked at in the work tree."""
    (home / ".gitconfig").write_text('[filter "x"]\n\tsmudge = ./tools/smudge\n')
    mark = tmp_path / "ran"
    repository.write("tools/smudge", "#!/bin/sh\ncat\n").chmod(0o755)
    repository.commit_files({".gitattributes": "z filter=x\n", "z": "1\n"})
    repository.git("branch", "good")
    repository.git("checkout", "-q", "-b", "evil")
    repository.write("tools/smudge", f"#!/bin/sh\ntouch '{mark}'\ncat\n")
    repository.commit()
    repository.git("checkout", "-q", "main")
    details = assert_refused(start(phone, repository.path, "good"), "GIT_TRUST_REQUIRED", True)
    digest = details["details"]["digest"]
    answer = start(phone, repository.path, "good", trust=digest)
    assert answer["type"] == "session_ready", answer
    assert_refused(start(phone, repository.path, "evil", trust=digest), "GIT_TRUST_REQUIRED", True)
    assert not mark.exists()


def test_trust_at_the_machine_is_for_each_use(
    bridge: Bridge, home: Path, repository: Repository, work: Work
) -> None:
    bare = repository.path.with_name(f"{repository.path.name}.git")
    repository.commit_files({"a": "1\n"})
    repository.git("clone", "-q", "--bare", str(repository.path), str(bare))
    repository.git("remote", "add", "origin", str(bare))
    for name in ("pre-commit", "pre-push", "post-checkout"):
        repository.hook(name, f"touch .git/{name}")
    said = bridge.manage("trust", str(repository.path)).stdout
    assert all(f"hook  {name}" in said for name in ("pre-commit", "pre-push", "post-checkout"))
    repository.write("a", "2\n")
    assert work.ask("git_commit", message="x", files=["a"])["type"] == "git_status_response"
    assert work.ask("git_push", set_upstream=True)["type"] == "git_push_response"


def test_trust_that_comes_too_late(repository: Repository, work: Work, home: Path) -> None:
    """The hook was changed since the person looked at it; nothing of it runs."""
    head = repository.commit_files({"a": "1\n"})
    mark = repository.path / ".git/ran"
    repository.hook("pre-commit", "exit 0")
    repository.write("a", "2\n")
    answer = work.ask("git_commit", message="x", files=["a"])
    digest = assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"]["digest"]
    repository.hook("pre-commit", f"touch '{mark}'")
    answer = work.ask("git_commit", message="x", files=["a"], trust=digest)
    assert_refused(answer, "GIT_TRUST_REQUIRED", True)
    assert not mark.exists() and repository.head() == head


def test_a_hook_that_changes_itself_is_told(repository: Repository, work: Work, home: Path) -> None:
    repository.commit_files({"a": "1\n"})
    repository.hook("pre-commit", 'echo "# more" >> .git/hooks/pre-commit')
    repository.write("a", "2\n")
    work.committed("Changed", ["a"])
    told = work.phone.expect("notification", session_id=work.sid)
    assert "programs have changed" in told["payload"]["title"]


def test_a_hook_that_prints_for_ever(repository: Repository, work: Work, home: Path) -> None:
    """100 MB: the commit is refused or made, in time, and the error is short."""
    repository.commit_files({"a": "1\n"})
    repository.hook("pre-commit", "head -c 100000000 /dev/zero | tr '\\0' 'x' >&2; exit 1")
    repository.write("a", "2\n")
    before = repository.index()
    said = assert_refused(work.commit("x", ["a"]), "GIT_ERROR", True)["message"]
    assert len(said) < 5000 and repository.index() == before


def test_a_repository_that_is_deleted_meanwhile(
    repository: Repository, work: Work, home: Path
) -> None:
    repository.commit_files({"a": "1\n"})
    repository.hook("pre-commit", "rm -rf .git; exit 1")
    repository.write("a", "2\n")
    answer = work.commit("x", ["a"])
    assert answer["type"] == "error" and answer["payload"]["code"] != "BRIDGE_ERROR", answer
    work.phone.ping()
    wait_until(lambda: not (repository.path / ".git").exists(), "the repository is gone")


@pytest.mark.slow
def test_it_is_quick(repository: Repository, work: Work, home: Path) -> None:
    """20,000 changed files in less than 3 s, or twice what git takes to list and count them."""
    names = [f"d{number // 200}/file {number}" for number in range(20_000)]
    repository.commit_files(dict.fromkeys(names, "1\n"))
    repository.write_files(dict.fromkeys(names, "22\n"))

    def seconds(ask: Callable[[], object]) -> float:
        begun = time.monotonic()
        ask()
        return time.monotonic() - begun

    def git(*arguments: str) -> None:
        command = ["git", "-C", str(repository.path), *arguments]
        subprocess.run(command, check=True, capture_output=True)

    took = []
    for _ in range(3):
        alone = seconds(lambda: git("status", "--porcelain"))
        alone += seconds(lambda: git("diff", "--numstat", "HEAD"))
        took.append((seconds(work.status), max(3.0, 2 * alone)))
    assert any(one < most for one, most in took), took
    assert len(work.status()["changes"]) > 10_000


def test_a_home_directory_under_git(tmp_path: Path) -> None:
    """The user's own settings stay his, though their file lies in the repository."""
    with QuickBridge(tmp_path) as bridge:
        bridge.stop()
        bridge.settings |= {"HOME": str(bridge.root), "XDG_CONFIG_HOME": f"{bridge.root}/.config"}
        bridge.start()
        bridge.pin = bridge.pairing().pin
        repository = Repository(bridge.root)
        remote = tmp_path / "remote.git"
        repository.write(".gitconfig", "[credential]\nhelper = store\n[core]\nfsmonitor = /none\n")
        repository.commit_files({"a": "1\n"})
        repository.git("clone", "-q", "--bare", str(repository.path), str(remote))
        repository.git("remote", "add", "origin", str(remote))
        repository.write("a", "2\n")
        with bridge.phones() as [phone]:
            work = Work(bridge, phone, repository.path)
            answer = work.ask("git_commit", message="x", files=["a"])
            assert answer["type"] == "git_status_response", answer
            answer = work.ask("git_push", set_upstream=True)
            assert answer["type"] == "git_push_response", answer
