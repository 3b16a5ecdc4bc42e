"""Push the current branch to its upstream, by plain git and nothing else (D64)."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from bridge_project.kernel import limits
from bridge_project.kernel.mounts import lies_in
from bridge_project.kernel.path_jail import shown
from bridge_project.protocol.repository_messages import GitPushResponse
from bridge_project.protocol.resources import GitCommitName
from files_app.git import settings
from files_app.git.commit import check_head
from files_app.git.facts import head_of, head_ref, public, push_urls
from files_app.git.plain import Plain, batch_ssh
from files_app.git.sandbox import mirror
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from files_app.git.settings import Effective
from sessions_app.working_directory import Repository

# a repository could name a program by these, which a push would run
_NEVER: Final = re.compile(
    r"remote\..*\.(?:receivepack|uploadpack|vcs)|core\.(?:sshcommand|gitproxy|askpass)"
    r"|credential\.(?:.*\.)?helper",
    re.DOTALL,
)
_SAME_NAME: Final = ("current", "matching")  # values of push.default
_SCHEMES: Final = frozenset({"http", "https", "ssh", "git", "git+ssh", "ssh+git", "file"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SSH: Final = re.compile(r"[^/]*:")  # how git tells host:path from a path
_HELPER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_REMOTE_SAID: Final = re.compile(rb"^remote: ?", re.MULTILINE)
_LINK: Final = re.compile(r"https?://[^\s<>\"']+")
_LINKS_MAX: Final = 10


class Target(NamedTuple):
    """Hold where the branch goes; ``new``: it becomes its upstream.

    ``known``: the reference by which the repository knows it, empty for none.
    """

    remote: str
    branch: str
    ref: str
    urls: tuple[str, ...]
    new: bool
    known: str

    @property
    def shown(self) -> dict[str, str]:
        """Return how an answer names it."""
        url = ", ".join(map(public, self.urls))
        branch = shown(self.ref.removeprefix("refs/heads/"))
        return {"remote": shown(self.remote), "branch": branch, "url": url}

    def check(self, **seen: str | None) -> None:
        """Raise GIT_ERROR where a client was shown another branch or address."""
        moved = (name for name, one in seen.items() if one not in (None, self.shown[name]))
        if name := next(moved, ""):
            raise git_error(f"It would go elsewhere now: the {name} is {self.shown[name]}.")


def target(place: Repository, *, set_upstream: bool) -> Target:
    """Return where a push goes. Raises GIT_ERROR where that is not safe."""
    found = settings.effective(place)
    values = settings.last(found)
    name = head_ref(place).removeprefix("refs/heads/")
    if not name:
        raise git_error("HEAD is detached: there is no branch to push.")
    upstream, merge = values.get(f"branch.{name}.remote"), values.get(f"branch.{name}.merge")
    chosen = values.get(f"branch.{name}.pushremote") or values.get("remote.pushdefault")
    remotes = _remotes(found)
    usual = upstream or (remotes[0] if len(remotes) == 1 else "origin")
    triangular = chosen not in (None, usual)
    new = merge is None and not triangular
    if new and not set_upstream and remotes:
        raise git_error(f"The branch {shown(name)} has no upstream; ask for one to be set.")
    remote = chosen or upstream or _only(remotes)
    form = "--format=%(push:remoteref)%00%(push)%00%(upstream)"
    said = settings.ask(place, "for-each-ref", form, f"refs/heads/{name}").rstrip(b"\n")
    # the first by `remote.*.push`
    mapped, known, tracking = [*os.fsdecode(said).split("\0"), "", ""][:3]
    same_name = merge is None or triangular or values.get("push.default") in _SAME_NAME
    ref = mapped or (f"refs/heads/{name}" if same_name else merge) or ""
    if remote == upstream and ref == merge:
        known = tracking
    if remote == "." or remote.startswith("-") or not ref.startswith("refs/heads/"):
        where = f"{shown(ref)} of {shown(remote)}"
        raise git_error(f"This branch would go to {where}, which is no branch of a remote.")
    urls = push_urls(place, remote, values)
    _check(place, found, remote, urls)
    return Target(remote, name, ref, urls, new, known)


def _remotes(found: list[Effective]) -> list[str]:
    keys = (one.key for one in found if re.fullmatch(r"remote\..*\.url", one.key, re.DOTALL))
    return sorted({key.removeprefix("remote.").removesuffix(".url") for key in keys})


def _only(remotes: list[str]) -> str:
    if not remotes:
        raise git_error("The repository has no remote to push to.")
    if len(remotes) > 1:
        names = ", ".join(map(shown, remotes))
        raise git_error(f"There are several remotes ({names}): set the upstream at the machine.")
    return remotes[0]


def _check(place: Repository, found: list[Effective], remote: str, urls: tuple[str, ...]) -> None:
    """Refuse programs that the repository's configuration names for a push."""
    for one in found:
        others = one.key.startswith("remote.") and not one.key.startswith(f"remote.{remote}.")
        if one.own and one.value and not others and _NEVER.fullmatch(one.key):
            raise git_error(
                f"The repository's configuration names a program for the push, which is never"
                f" used: {shown(one.key)}."
            )
    for url in urls:
        scheme = _SCHEME.match(url)
        if _HELPER.match(url) or (scheme and scheme[1].lower() not in _SCHEMES):
            raise git_error(
                f"The remote's address is a command, which is never used: {public(url)}"
            )
        path = url.removeprefix("file://")
        if scheme[1].lower() == "file" if scheme else not _SSH.match(url):
            real = os.path.realpath(os.path.join(place.top, path))
            around = (os.path.realpath(one) for one in (place.top, place.common_dir))
            if any(lies_in(real, one) for one in around):
                raise git_error("The remote lies in the repository itself, with its programs.")


def push(
    place: Repository,
    session_id: str,
    to: Target,
    *,
    head: str | None,
    dry_run: bool,
    check: Callable[[], object] = lambda: None,
) -> GitPushResponse:
    """Push, never by force; ``dry_run``: only say which commits would go.

    Raises BridgeError GIT_ERROR with git's reason or the server's.
    """
    with mirror.reading(place) as git:
        now = head_of(git)
        check_head(head, now)
        if not now:
            raise git_error("There is no commit to push.")
        commits, count = _going(git, to, now)
    links: list[str] = []
    if not dry_run:
        check()
        links = _push(place, to)
    return GitPushResponse(
        session_id=session_id,
        **to.shown,
        commits=commits,
        count=count,
        links=links,
        pushed=not dry_run,
    )


def _going(git: Git, to: Target, head: str) -> tuple[list[GitCommitName], int]:
    """Return the newest commits that the remote lacks, and how many it lacks."""
    name = to.known or f"refs/remotes/{to.remote}/{to.ref.removeprefix('refs/heads/')}"
    known = git.done("rev-parse", "--verify", "--quiet", name, good=(0, 1)).code == 0
    which = [head, "--not", name if known else f"--remotes={to.remote}"]
    form = ("--format=%H %s", "-z", "--no-show-signature", "--encoding=UTF-8")
    listed = git("log", *form, f"--max-count={limits.GIT_PUSH_LISTED}", *which)
    parts = [one.partition(" ") for one in listed.decode("utf-8", "replace").split("\0") if one]
    count = int(git("rev-list", "--count", *which))
    return [GitCommitName(hash=one, summary=text) for one, _, text in parts], count


def _push(place: Repository, to: Target) -> list[str]:
    """Push; return the web addresses that the server printed."""
    plain = Plain(place, more=batch_ssh(settings.last(settings.effective(place))))
    # nothing else, whatever the configuration says
    alone = ("--porcelain", "--no-follow-tags", "--recurse-submodules=no", "--no-force")
    upstream = ("--set-upstream",) if to.new else ()
    refs = f"refs/heads/{to.branch}:{to.ref}"
    # it would fetch first, by settings that nobody has looked at
    never = ("-c", "push.negotiate=false")
    command = (*never, "push", *alone, *upstream, "--", to.remote, refs)
    done = plain.done(*command, good=range(-64, 256), seconds=limits.GIT_PUSH_SECONDS)
    err = _REMOTE_SAID.sub(b"", done.err)
    if done.code:
        refused = b"\n".join(line for line in done.out.splitlines() if line.startswith(b"!"))
        raise git_error(plain.said(replace(done, err=err + b"\n" + refused)))
    told = b"\n".join(line for line in done.err.split(b"\n") if line.startswith(b"remote:"))
    return [public(link) for link in _LINK.findall(told.decode("utf-8", "replace"))][:_LINKS_MAX]
