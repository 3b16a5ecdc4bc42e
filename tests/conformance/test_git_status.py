"""git_status_request and git_status_response (spec, Git resources; D7, D10)."""

import shutil

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, changes
from tests.conformance.samples import prompt
from tests.files.repositories import import_files, median

pytestmark = pytest.mark.spec("ws.git_status_request", "ws.git_status_response")
ODD_NAMES = [
    *("with space.txt", 'quote".txt', "it's.txt", "new\nline.txt", "tab\t.txt", "ümläut 会.txt"),
    *("-n.txt", "--all", ":(top)magic.txt", "*.star", "back\\slash", "dir ü/a b", "HEAD"),
]


@pytest.mark.spec("git.status.*")
def test_a_clean_repository(repository: Repository, work: Work) -> None:
    repository.commit_files({"a.txt": "a\n"})
    payload = work.status()
    clean = {"branch": "main", "ahead": 0, "behind": 0, "is_clean": True, "changes": []}
    assert payload == payload | clean
    assert payload.get("commit") is None, "D10: only in the answer to git_commit"


@pytest.mark.spec("git.change.*")
def test_each_kind_of_change(repository: Repository, work: Work) -> None:
    """What was added and is gone again is none."""
    one_line = dict.fromkeys(("staged", "removed"), "1\n")
    three = {"modified": "1\n2\n3\n", "old name": "a\nb\nc\n", "moved": "d\ne\nf\n"}
    repository.commit_files(one_line | three | {"deleted": "1\n2\n", ".gitignore": "*.log\n"})
    repository.write("modified", "1\ntwo\n3\n4\n")
    repository.write("staged", "1\n2\n")
    repository.write("added", "1\n2\n3\n")
    repository.write("soon gone", "1\n")
    repository.git("add", "staged", "added", "soon gone")
    repository.write("staged", "1\n2\n3\n")
    repository.git("rm", "-q", "removed")
    repository.git("mv", "old name", "new name")
    repository.git("mv", "moved", "and gone")
    for name in ("deleted", "and gone", "soon gone"):
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


def test_the_branch_is_named_as_in_session_ready(repository: Repository, work: Work) -> None:
    """Also one with a slash, and a detached head, which is no branch."""
    first = repository.commit_files({"a": "1\n"})
    for checkout, name in (
        (("-b", "feature/ümlaut-1"), "feature/ümlaut-1"),
        (("--detach",), f"({first[:12]})"),
    ):
        repository.git("checkout", "-q", *checkout)
        assert work.status()["branch"] == name
        assert work.phone.join(work.sid)["payload"]["branch"] == name


def test_ahead_and_behind(repository: Repository, work: Work) -> None:
    base = repository.commit()
    for _ in range(3):
        repository.commit("theirs")
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.git("reset", "-q", "--hard", base)
    for _ in range(2):
        repository.commit("ours")
    repository.git("config", "remote.origin.url", "/nowhere")
    repository.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    payload = work.status()
    assert (payload["ahead"], payload["behind"]) == (2, 3)


def test_odd_names_come_as_they_are(repository: Repository, work: Work) -> None:
    """One that is no UTF-8 breaks nothing."""
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
    """A directory that is gone is none either."""
    directory = shared.root / "no repository"
    directory.mkdir(exist_ok=True)
    work = Work(shared, phone, directory)
    for answer in (work.ask("git_status_request"), work.ask_diff()):
        assert_refused(answer, "GIT_ERROR", True, work.sid)
    shutil.rmtree(directory)
    answer = work.ask("git_status_request")
    assert_refused(answer, answer["payload"]["code"], True, work.sid)
    assert answer["payload"]["code"] in ("GIT_ERROR", "FILE_NOT_FOUND")
    phone.ping()


OUT = "ref: refs/heads/../../../planted/x\n"


@pytest.mark.parametrize(
    "head", ["", "ref: /etc/passwd", "\0\xff", OUT, "ref: refs/../hooks/pre-push", "refs/heads/b"]
)
def test_a_broken_head(repository: Repository, work: Work, head: str) -> None:
    """D10: each request is answered by one sentence for a person, not by git's usage; git itself
    would commit to a reference that leads out of its directory, be it named by HEAD or a branch.
    """
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    if head == "refs/heads/b":
        repository.write(f".git/{head}", OUT)
        head = f"ref: {head}\n"
    repository.write(".git/HEAD", head.encode("latin-1"))
    for answer in (work.ask("git_status_request"), work.ask_diff(), work.commit("A", ["a"])):
        said = assert_refused(answer, "GIT_ERROR", True, work.sid)["message"]
        assert said == "The repository is damaged: its HEAD names no branch and no commit."
    assert not (repository.path / "planted").exists()
    repository.write(".git/HEAD", "ref: refs/heads/main\n")
    assert work.changes() == {"a": ("modified", 1, 1)}


def test_a_session_without_a_directory(shared: Bridge, sid: str, phone: Phone) -> None:
    """D34: known by a prompt alone, it has none: an error, not the bridge's own directory."""
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    answer = phone.request("git_status_request", {"session_id": sid})
    assert_refused(answer, answer["payload"]["code"], True, sid)


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
    """Status under a second, a diff of all 500 changes under three; where git itself is slow, some
    times what git needs.
    """
    slow = median("git itself", lambda: large.git("status", "--porcelain"))
    work = Work(shared, phone, large.path)
    found = work.status()["changes"]
    assert len(found) == 500
    assert all(change["additions"] == change["deletions"] == 1 for change in found)
    assert median("status", lambda: work.ask("git_status_request")) < max(1, 10 * slow)
    assert len(work.diff()) == 500
    assert median("diff of all", work.ask_diff) < max(3, 30 * slow)


def test_heartbeats_are_answered_while_git_works(shared: Bridge, large: Repository) -> None:
    with shared.phones(2) as phones:
        sessions = [Work(shared, phone, large.path).sid for phone in phones]
        asked = {"files": None, "cached": False}
        sent = [
            phone.send("git_diff", {"session_id": sid} | asked)
            for phone, sid in zip(phones, sessions, strict=True)
        ]
        for phone, id_ in zip(phones, sent, strict=True):
            phone.ping()
            phone.until(
                lambda m, id_=id_: m.get("id") == id_ and m["type"] == "git_diff_response",  # type: ignore[misc]
                "git_diff_response",
            )
