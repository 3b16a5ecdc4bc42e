"""git_push (D64): the branch goes to its upstream, and nothing else does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, Work
from tests.servers import free_port

pytestmark = [pytest.mark.spec("ws.git_push"), pytest.mark.spec("ws.git_push_response")]


@pytest.fixture
def remote(repository: Repository) -> Path:
    """A bare repository beside it, with its first commit."""
    repository.commit_files({"a": "1\n"}, "First")
    path = repository.path.with_name(f"{repository.path.name}.git")
    repository.git("clone", "-q", "--bare", str(repository.path), str(path))
    repository.git("remote", "add", "origin", str(path))
    repository.git("fetch", "-q", "origin")
    return path


def pushed(work: Work, **fields: Any) -> dict[str, Any]:
    answer = work.ask("git_push", **fields)
    assert answer["type"] == "git_push_response", answer
    return dict(answer["payload"])


def refused(answer: Message) -> str:
    return str(assert_refused(answer, "GIT_ERROR", True)["message"])


def test_a_branch_goes_to_its_upstream(repository: Repository, remote: Path, work: Work) -> None:
    """Shown first, then done; tags and other branches stay."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    for name, value in (("push.followTags", "true"), ("push.default", "matching")):
        repository.git("config", name, value)
    repository.git("branch", "other")
    head = repository.commit_files({"a": "2\n"}, "Second")
    repository.git("tag", "-a", "v1", "-m", "v1")
    before = repository.git("for-each-ref", cwd=remote)
    shown = pushed(work, dry_run=True, head=head, repository=str(repository.path))
    expected: dict[str, Any] = {
        "session_id": work.sid,
        "remote": "origin",
        "branch": "main",
        "url": str(remote),
    }
    expected |= {"commits": [{"hash": head, "summary": "Second"}], "count": 1, "links": []}
    assert shown == expected | {"pushed": False}
    assert repository.git("for-each-ref", cwd=remote) == before
    assert pushed(work, head=head) == expected | {"pushed": True}
    refs = repository.git("for-each-ref", "--format=%(refname) %(objectname)", cwd=remote)
    assert refs == f"refs/heads/main {head}\n"
    assert pushed(work)["count"] == 0
    said = refused(work.ask("git_push", head="0" * 40))
    assert "moved on" in said


def test_it_goes_where_it_was_shown(repository: Repository, remote: Path, work: Work) -> None:
    """Not to what the remote or the branch leads to by then."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    repository.commit_files({"a": "2\n"})
    shown = pushed(work, dry_run=True)
    seen = {name: shown[name] for name in ("branch", "url")}
    elsewhere = repository.path.with_name(f"{repository.path.name}-else.git")
    repository.git("clone", "-q", "--bare", str(remote), str(elsewhere))
    before = repository.git("for-each-ref", cwd=elsewhere)
    repository.git("remote", "set-url", "origin", str(elsewhere))
    assert str(elsewhere) in refused(work.ask("git_push", **seen))
    repository.git("remote", "set-url", "origin", str(remote))
    repository.git("config", "branch.main.merge", "refs/heads/other")
    assert "other" in refused(work.ask("git_push", **seen))
    assert repository.git("for-each-ref", cwd=elsewhere) == before
    repository.git("config", "branch.main.merge", "refs/heads/main")
    assert pushed(work, **seen)["pushed"] is True


def test_an_upstream_is_set_when_asked(repository: Repository, remote: Path, work: Work) -> None:
    """At the only remote, under the same name; several are named."""
    repository.git("checkout", "-q", "-b", "feature/ü-1")
    head = repository.commit_files({"a": "2\n"})
    assert "upstream" in refused(work.ask("git_push"))
    repository.git("remote", "add", "second", str(remote))
    said = refused(work.ask("git_push", set_upstream=True))
    assert "origin" in said and "second" in said
    repository.git("remote", "remove", "second")
    assert pushed(work, set_upstream=True)["branch"] == "feature/ü-1"
    assert repository.git("rev-parse", "refs/heads/feature/ü-1", cwd=remote).strip() == head
    assert repository.git("rev-parse", "--symbolic-full-name", "@{u}").strip() == (
        "refs/remotes/origin/feature/ü-1"
    )
    repository.git("checkout", "-q", "--detach")
    assert "detached" in refused(work.ask("git_push"))


def test_an_upstream_that_is_gone(repository: Repository, remote: Path, work: Work) -> None:
    """As after a merge: git still has it for this branch, and a push makes it again."""
    repository.git("switch", "-q", "-c", "topic")
    repository.git("push", "-q", "-u", "origin", "topic")
    repository.git("branch", "-q", "-D", "topic", cwd=remote)
    assert "gone" not in work.status()["upstream"]
    repository.git("fetch", "-q", "--prune", "origin")
    head = repository.commit_files({"a": "2\n"}, "Second")
    gone = {"remote": "origin", "branch": "topic", "url": str(remote), "gone": True}
    assert work.status()["upstream"] == gone
    assert pushed(work, dry_run=True)["branch"] == "topic"
    assert pushed(work)["pushed"]
    assert repository.git("rev-parse", "topic", cwd=remote).strip() == head
    assert "gone" not in work.status()["upstream"]


def test_it_is_never_forced(repository: Repository, remote: Path, work: Work) -> None:
    """Also where the refspec of the configuration would; the server's words are in the error."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    repository.git("config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
    repository.git("commit", "-q", "--amend", "-m", "Rewritten")
    theirs = repository.git("rev-parse", "main", cwd=remote)
    assert "non-fast-forward" in refused(work.ask("git_push"))
    repository.git("reset", "-q", "--hard", "origin/main")
    repository.commit_files({"a": "3\n"})
    hook = remote / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no entry\necho see https://git.example/why\nexit 1\n")
    hook.chmod(0o755)
    assert "no entry" in refused(work.ask("git_push"))
    assert repository.git("rev-parse", "main", cwd=remote) == theirs
    hook.write_text("#!/bin/sh\necho see https://git.example/new/1\n")
    assert pushed(work)["links"] == ["https://git.example/new/1"]


@pytest.mark.parametrize("url", ["git@git.example:a/b.git", "git.example:b", "./a:b", "a/b:c"])
def test_an_address_as_ssh_has_it(repository: Repository, work: Work, url: str) -> None:
    """A colon before any slash is no path, which would lie in the repository."""
    repository.commit_files({"a": "1\n"})
    repository.git("remote", "add", "origin", url)
    answer = work.ask("git_push", dry_run=True, set_upstream=True)
    if url.startswith("git"):
        assert answer["payload"]["url"] == url
    else:
        assert "lies in the repository" in refused(answer)


NEVER = {
    "core.sshCommand": "touch {mark}; false",
    "credential.helper": "!touch {mark}",
    "credential.https://git.example.helper": "!touch {mark}",
    "remote.origin.receivepack": "touch {mark}; git-receive-pack",
    "remote.origin.vcs": "evil",
    "remote.origin.url": "ext::sh -c 'touch {mark}'",
    "remote.origin.pushurl": "evil::there",
    "url.ext::touch {mark} .pushInsteadOf": "/",
}


def test_a_push_never_fetches_before(
    repository: Repository, remote: Path, work: Work, tmp_path: Path
) -> None:
    """`push.negotiate` would, from where another setting says that the same address leads."""
    mark = tmp_path / "ran"
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    for key, value in {
        "remote.origin.url": "there:",
        f"url.{remote}.pushInsteadOf": "there:",
        f"url.ext::touch {mark} %S.insteadOf": str(remote),
        "protocol.allow": "always",
        "push.negotiate": "true",
    }.items():
        repository.git("config", key, value)
    repository.commit_files({"a": "2\n"})
    assert pushed(work)["url"] == str(remote)
    assert not mark.exists()
    repository.commit_files({"a": "3\n"})
    repository.git("push", "-q", "origin", check=False)
    assert mark.exists(), "no trap: plain git does not run it either"


@pytest.mark.parametrize("key", NEVER)
def test_a_program_of_the_configuration_is_never_used(
    repository: Repository, remote: Path, work: Work, tmp_path: Path, key: str
) -> None:
    """Each is a way in which git would run a command; the error names it."""
    mark = tmp_path / "ran"
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    repository.commit_files({"a": "2\n"})
    before = repository.git("rev-parse", "main", cwd=remote)
    repository.git("config", key.format(mark=mark), NEVER[key].format(mark=mark))
    for dry_run in (True, False):
        assert "never used" in refused(work.ask("git_push", dry_run=dry_run))
    assert not mark.exists() and repository.git("rev-parse", "main", cwd=remote) == before


def test_a_hook_needs_trust_for_this_address(
    repository: Repository, remote: Path, work: Work
) -> None:
    """Trust for a commit is none for a push, and none for another address."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    repository.hook("pre-push", "touch .git/ran")
    repository.write("a", "2\n")
    work.committed("Second", ["a"])
    digests = set()
    for name in ("origin", "moved"):
        if name == "moved":
            remote.rename(remote.with_name("moved.git"))
            repository.git("remote", "set-url", "origin", str(remote.with_name("moved.git")))
        answer = work.ask("git_push")
        details = assert_refused(answer, "GIT_TRUST_REQUIRED", True)["details"]
        digests.add(details["digest"])
        assert [one["name"] for one in details["programs"]] == ["pre-push"]
        assert not (repository.path / ".git/ran").exists()
    assert len(digests) == 2
    assert pushed(work, trust=details["digest"])["pushed"] is True
    assert (repository.path / ".git/ran").exists()
    remote.with_name("moved.git").rename(remote)


def test_a_remote_that_is_gone(repository: Repository, remote: Path, work: Work) -> None:
    """Its directory, its server, or the remote itself; no password is in the words."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    repository.commit_files({"a": "2\n"})
    gone = f"http://grace:secret@127.0.0.1:{free_port()}/a.git"
    for url, words in {f"{remote} gone": "not appear to be", gone: "Failed to connect"}.items():
        repository.git("config", "remote.origin.url", url)
        said = refused(work.ask("git_push"))
        assert words in said and "secret" not in said
    repository.git("config", "remote.origin.url", str(repository.path / "inner.git"))
    assert "in the repository itself" in refused(work.ask("git_push"))
    repository.git("config", "--remove-section", "remote.origin")
    assert "origin" in refused(work.ask("git_push"))


# settings → where the branch `feature` goes, whose upstream is main of origin
WAYS = {
    ("push.default upstream",): ("{origin}", "main"),
    ("push.default current",): ("{origin}", "feature"),
    ("branch.feature.pushRemote fork",): ("{fork}", "feature"),
    ("remote.pushDefault fork",): ("{fork}", "feature"),
    ("remote.pushDefault origin", "push.default upstream"): ("{origin}", "main"),
    ("branch.feature.pushRemote {fork}",): ("{fork}", "feature"),
    ("branch.feature.remote {fork}", "push.default upstream"): ("{fork}", "main"),
    ("branch.feature.remote ../fork.git", "push.default current"): ("../fork.git", "feature"),
    ("remote.origin.push refs/heads/*:refs/heads/ada/*",): ("{origin}", "ada/feature"),
    ("remote.origin.pushurl {fork}", "push.default upstream"): ("{fork}", "main"),
    ("url.{fork}.pushInsteadOf {origin}", "push.default upstream"): ("{fork}", "main"),
    ("url.{fork}.pushInsteadOf there:", "branch.feature.pushRemote there:"): ("{fork}", "feature"),
}


@pytest.mark.parametrize("settings", WAYS)
def test_it_goes_where_it_goes_at_the_machine(
    shared: Bridge, phone: Phone, repository: Repository, settings: tuple[str, ...]
) -> None:
    """By whatever setting; the answer's address and branch are those, and so is what arrives."""
    place = Repository(repository.path / "in")
    place.commit_files({"a": "1\n"}, "First")
    paths = {name: str(repository.path / f"{name}.git") for name in ("origin", "fork")}
    for name, path in paths.items():
        place.git("clone", "-q", "--bare", str(place.path), path)
        place.git("remote", "add", name, path)
        place.git("fetch", "-q", name)
    place.git("checkout", "-q", "-b", "feature", "origin/main")
    head = place.commit_files({"a": "2\n"}, "Second")
    for setting in settings:
        place.git("config", *(word.format(**paths) for word in setting.split(" ")))
    url, branch = (one.format(**paths) for one in WAYS[settings])
    at_the_desk = place.git("push", "--dry-run", "--porcelain")
    assert f"To {url}\n" in at_the_desk and f":refs/heads/{branch}\t" in at_the_desk
    work = Work(shared, phone, place.path)
    for dry_run in (True, False):
        answer = pushed(work, dry_run=dry_run)
        assert (answer["url"], answer["branch"]) == (url, branch)
        assert answer["commits"][0] == {"hash": head, "summary": "Second"}
    bare = paths["fork" if "fork" in url else "origin"]
    assert place.git("rev-parse", f"refs/heads/{branch}", cwd=Path(bare)).strip() == head
    tips = [place.git("for-each-ref", cwd=Path(one)).count(head) for one in paths.values()]
    assert sum(tips) == 1


def test_what_goes_to_no_branch(repository: Repository, remote: Path, work: Work) -> None:
    """For review, as with Gerrit: that is for the machine."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    repository.git("config", "remote.origin.push", "refs/heads/*:refs/for/*")
    assert "refs/for/main" in refused(work.ask("git_push"))


def test_a_server_that_has_moved_on(repository: Repository, remote: Path, work: Work) -> None:
    """Nobody asks it before: what would go is shown, and then it says why it does not."""
    repository.git("branch", "-q", "--set-upstream-to=origin/main")
    other = remote.with_name(f"{remote.name} other")
    repository.git("clone", "-q", str(remote), str(other))
    repository.git("commit", "-q", "--allow-empty", "-m", "Theirs", cwd=other)
    repository.git("push", "-q", cwd=other)
    theirs = repository.git("rev-parse", "main", cwd=remote)
    repository.commit_files({"a": "2\n"}, "Mine")
    assert pushed(work, dry_run=True)["count"] == 1
    said = refused(work.ask("git_push"))
    assert "rejected" in said and "fetch first" in said
    assert repository.git("rev-parse", "main", cwd=remote) == theirs


ODD = ("+plus", 'it\'s-a-"b"', "x;touch$IFS'y'", "refs/heads/main", "a.b%20c&d|e", "会🎉")


def test_a_branch_with_an_odd_name(repository: Repository, remote: Path, work: Work) -> None:
    """It goes to the same name, or to its upstream's; a tag of that name is not meant."""
    for name in ODD:
        repository.git("checkout", "-q", "-b", name, "main")
        repository.git("tag", "-f", name, "main")
        head = repository.commit_files({"b": f"{name}\n"})
        assert pushed(work, set_upstream=True)["branch"] == name
        assert repository.git("rev-parse", f"refs/heads/{name}", cwd=remote).strip() == head
        repository.git(
            "config", f"branch.{name}.merge", f"refs/heads/their {name}".replace(" ", "-")
        )
        head = repository.commit_files({"b": "again\n"})
        assert pushed(work)["branch"] == f"their-{name}"
        assert repository.git("rev-parse", f"refs/heads/their-{name}", cwd=remote).strip() == head
    assert repository.git("tag", cwd=remote) == ""


def shallow(place: Path, remote: Path, by: Repository) -> Path:
    by.git("clone", "-q", "--bare", str(by.path), str(remote))
    by.git("clone", "-q", "--depth=1", f"file://{remote}", str(place))
    return place


def sha256(place: Path, remote: Path, by: Repository) -> Path:
    Repository(place, "--object-format=sha256").commit_files({"a": "1\n"})
    by.git("clone", "-q", "--bare", str(place), str(remote))
    by.git("remote", "add", "origin", str(remote), cwd=place)
    by.git("fetch", "-q", "origin", cwd=place)
    by.git("branch", "-q", "--set-upstream-to=origin/main", cwd=place)
    return place


def submodule(place: Path, remote: Path, by: Repository) -> Path:
    by.git("clone", "-q", "--bare", str(by.path), str(remote))
    Repository(place).git("submodule", "--quiet", "add", str(remote), "sub")
    return place / "sub"


@pytest.mark.parametrize("kind", [shallow, sha256, submodule])
def test_other_repositories(
    shared: Bridge,
    phone: Phone,
    repository: Repository,
    kind: Callable[[Path, Path, Repository], Path],
) -> None:
    """A shallow clone, one with the other hash, and a submodule, which alone is pushed."""
    repository.commit_files({"a": "1\n"}, "First")
    repository.commit_files({"a": "2\n"}, "Second")
    place, bare = (repository.path.with_name(f"{repository.path.name} {n}") for n in ("2", "3"))
    where = kind(place, bare, repository)
    work = Work(shared, phone, where)
    (where / "a").write_text("3\n")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        repository.git("config", name, value, cwd=where)
    made = work.committed("Third", ["a"])
    shown = pushed(work, dry_run=True)
    assert shown["commits"] == [{"hash": made["hash"], "summary": "Third"}] and shown["count"] == 1
    assert pushed(work, head=made["hash"], repository=str(where))["pushed"] is True
    assert repository.git("rev-parse", "main", cwd=bare).strip() == made["hash"]
    assert work.status()["ahead"] == 0 and pushed(work)["count"] == 0
