"""git_status_request and git_status_response (spec, Git resources; D7, D10): what the phone sees is
what git says.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import (
    Repository,
    Work,
    assert_status,
    changes,
    diff,
    session_in,
    status,
)
from tests.conformance.samples import prompt
from tests.files.repositories import import_files, median

pytestmark = pytest.mark.spec("ws.git_status_request", "ws.git_status_response")
ODD_NAMES = [
    "with space.txt",
    'quote".txt',
    "it's.txt",
    "new\nline.txt",
    "tab\t.txt",
    "ümläut 会.txt",
    "-n.txt",
    "--all",
    ":(top)magic.txt",
    "*.star",
    "back\\slash",
    "dir ü/a b",
]


@pytest.mark.spec("git.status.*")
def test_a_clean_repository(repository: Repository, work: Work) -> None:
    """Spec, Git status; nothing changed since the commit."""
    repository.commit_files({"a.txt": "a\n"})
    payload = work.status()
    assert (
        payload["branch"],
        payload["ahead"],
        payload["behind"],
        payload["is_clean"],
        payload["changes"],
    ) == ("main", 0, 0, True, [])
    assert "commit" not in payload or payload["commit"] is None, (
        "D10: only in the answer to git_commit"
    )


@pytest.mark.spec("git.change.*")
def test_each_kind_of_change(repository: Repository, work: Work) -> None:
    """Spec, Change: modified, added, deleted, untracked, renamed, each with its lines; what was
    added and is gone again is none.
    """
    repository.commit_files(
        {
            "modified": "1\n2\n3\n",
            "staged": "1\n",
            "deleted": "1\n2\n",
            "removed": "1\n",
            "old name": "a\nb\nc\n",
            "moved": "d\ne\nf\n",
            ".gitignore": "*.log\n",
        }
    )
    repository.write("modified", "1\ntwo\n3\n4\n")
    repository.write("staged", "1\n2\n")
    repository.git("add", "staged")
    repository.write("staged", "1\n2\n3\n")
    repository.write("added", "1\n2\n3\n")
    repository.git("add", "added")
    (repository.path / "deleted").unlink()
    repository.git("rm", "-q", "removed")
    repository.git("mv", "old name", "new name")
    repository.git("mv", "moved", "and gone")
    repository.write("soon gone", "1\n")
    repository.git("add", "soon gone")
    for name in ("and gone", "soon gone"):
        (repository.path / name).unlink()
    repository.write("untracked", "1\n")
    repository.write("ignored.log", "1\n")
    payload = work.status()
    found = changes(payload)
    assert payload["is_clean"] is False
    assert found.pop("untracked")[0] == "untracked"
    assert found == {
        "modified": ("modified", 2, 1),
        "staged": ("modified", 2, 0),
        "added": ("added", 3, 0),
        "deleted": ("deleted", 0, 2),
        "removed": ("deleted", 0, 1),
        "new name": ("renamed", 0, 0),
        "moved": ("deleted", 0, 3),
    }


def test_no_commit_yet(repository: Repository, work: Work) -> None:
    """Issue: no commit yet: the branch is named, what is staged is added."""
    repository.write("staged", "1\n2\n")
    repository.git("add", "staged")
    repository.write("other", "1\n")
    payload = work.status()
    assert payload["branch"] == "main" and (payload["ahead"], payload["behind"]) == (0, 0)
    found = changes(payload)
    assert found["staged"] == ("added", 2, 0) and found["other"][0] == "untracked"


def test_a_detached_head(repository: Repository, phone: Phone, work: Work) -> None:
    """Issue: a detached head is no branch, but is named, as in session_ready."""
    first = repository.commit_files({"a": "1\n"})
    repository.commit_files({"a": "2\n"})
    repository.git("checkout", "-q", first)
    payload = work.status()
    assert payload["branch"] == f"({first[:12]})" == phone.join(work.sid)["payload"]["branch"]
    assert payload["is_clean"] is True


@pytest.mark.parametrize(("ahead", "behind"), [(0, 0), (2, 3)])
def test_ahead_and_behind(repository: Repository, work: Work, ahead: int, behind: int) -> None:
    """Spec, Git status: ahead, behind: commits against the upstream."""
    base = repository.commit()
    for _ in range(behind):
        repository.commit("theirs")
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.git("reset", "-q", "--hard", base)
    for _ in range(ahead):
        repository.commit("ours")
    for name, value in (
        ("remote.origin.url", "/nowhere"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
    ):
        repository.git("config", name, value)
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    payload = work.status()
    assert (payload["ahead"], payload["behind"]) == (ahead, behind)


def test_a_branch_with_a_slash(repository: Repository, phone: Phone, work: Work) -> None:
    """Spec, Git status; session_ready names the branch too."""
    repository.commit()
    repository.git("checkout", "-q", "-b", "feature/ümlaut-1")
    assert (
        work.status()["branch"] == "feature/ümlaut-1" == phone.join(work.sid)["payload"]["branch"]
    )


def test_odd_names(repository: Repository, work: Work) -> None:
    """Issue: names with spaces, quotes, newlines and umlauts come as they are; one that is no UTF-8
    breaks nothing.
    """
    repository.commit_files(dict.fromkeys(ODD_NAMES, "1\n"))
    for name in ODD_NAMES:
        repository.write(name, "1\n2\n")
    assert work.changes() == dict.fromkeys(ODD_NAMES, ("modified", 1, 0))
    repository.write(b"bad \xff\xfe.txt", "1\n")
    repository.git("add", "-A")
    found = work.changes()
    assert len(found) == len(ODD_NAMES) + 1
    assert [kind for kind, _, _ in found.values()].count("added") == 1


@pytest.mark.spec("wscode.GIT_ERROR")
def test_no_repository(shared: Bridge, phone: Phone) -> None:
    """Spec: GIT_ERROR, recoverable; for both questions. A directory that is gone is no repository
    either.
    """
    directory = shared.root / "no repository"
    directory.mkdir(exist_ok=True)
    sid = session_in(shared, phone, directory)
    assert_refused(phone.request("git_status_request", {"session_id": sid}), "GIT_ERROR", True, sid)
    assert_refused(
        phone.request("git_diff", {"session_id": sid, "files": None, "cached": False}),
        "GIT_ERROR",
        True,
        sid,
    )
    shutil.rmtree(directory)
    answer = phone.request("git_status_request", {"session_id": sid})
    assert (
        answer["type"] == "error"
        and answer["payload"]["code"] in ("GIT_ERROR", "FILE_NOT_FOUND")
        and answer["payload"]["recoverable"] is True
    ), answer
    phone.ping()


@pytest.mark.parametrize("head", ["", "ref: /etc/passwd", "\0\xff"])
def test_a_broken_head(repository: Repository, phone: Phone, work: Work, head: str) -> None:
    """D10: each request is answered by one sentence for a person, not by git's usage."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    repository.write(".git/HEAD", head.encode("latin-1"))
    for type_, fields in (
        ("git_status_request", {}),
        ("git_diff", {"files": None, "cached": False}),
        ("git_commit", {"message": "A commit", "files": ["a"]}),
    ):
        answer = phone.request(type_, {"session_id": work.sid, **fields})
        said = assert_refused(answer, "GIT_ERROR", True, work.sid)["message"]
        assert said == "The repository is damaged: its HEAD names no branch and no commit."
    repository.write(".git/HEAD", "ref: refs/heads/main\n")
    assert changes(work.status()) == {"a": ("modified", 1, 1)}


def test_a_session_without_a_directory(shared: Bridge, sid: str, phone: Phone) -> None:
    """D34: a session known by a prompt alone has no directory: a clear error, not the bridge's own
    directory.
    """
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    answer = phone.request("git_status_request", {"session_id": sid})
    assert (
        answer["type"] == "error"
        and answer["payload"]["recoverable"] is True
        and answer["payload"]["session_id"] == sid
    ), answer


@pytest.fixture(scope="module")
def large(shared: Bridge) -> Repository:
    """10,000 files, 500 of them changed."""
    repository = Repository(shared.root / "large repository")
    names = [f"directory {number // 100}/file {number}.txt" for number in range(10_000)]
    import_files(repository, {name: f"{name}\n" * 20 for name in names})
    for name in names[::20]:
        repository.write(name, f"{name}\n" * 10 + "changed\n" + f"{name}\n" * 9)
    return repository


def test_ten_thousand_files(shared: Bridge, large: Repository, phone: Phone) -> None:
    """Issue, Shown by: of 10,000 files 500 changed: status under a second, a diff of all under
    three; on a busy machine where git itself is slow, some times what git needs.
    """
    slow = median("git itself", lambda: large.git("status", "--porcelain"))
    sid = session_in(shared, phone, large.path)
    payload = status(phone, sid)
    assert len(payload["changes"]) == 500
    assert all(change["additions"] == change["deletions"] == 1 for change in payload["changes"])
    assert median(
        "status",
        lambda: assert_status(phone.request("git_status_request", {"session_id": sid}), sid),
    ) < max(1, 10 * slow)
    assert len(diff(phone, sid)) == 500
    assert median(
        "diff of all",
        lambda: phone.request("git_diff", {"session_id": sid, "files": None, "cached": False}),
    ) < max(3, 30 * slow)


def test_other_messages_are_answered_meanwhile(shared: Bridge, large: Repository) -> None:
    """Spec, Limits: a heartbeat is answered within ten seconds whatever git does; two devices ask
    at once.
    """
    with shared.phones(2) as phones:
        sessions = [session_in(shared, phone, Path(large.path)) for phone in phones]
        sent = [
            phone.send("git_diff", {"session_id": sid, "files": None, "cached": False})
            for phone, sid in zip(phones, sessions, strict=True)
        ]
        for phone, id_ in zip(phones, sent, strict=True):
            phone.ping()
            assert (
                phone.until(lambda message, id_=id_: message.get("id") == id_, "git_diff_response")[  # type: ignore[misc]
                    "type"
                ]
                == "git_diff_response"
            )
