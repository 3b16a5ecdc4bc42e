"""Tell a commit of the bridge from everybody else's (D63)."""

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psutil

from bridge_project.kernel import limits
from bridge_project.kernel.disk_threads import bounded_otherwise
from files_app.git.facts import head_of
from files_app.git.plain import NO_PAGER, Plain
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository

LOG: Final = ("log", "--max-count=1", "--no-show-signature", "--encoding=UTF-8")
ACTION: Final = "GIT_REFLOG_ACTION"
_REFLOG_MAX: Final = 1000  # newest entries looked through for a commit
_REFUSED: Final = 1  # git's exit code when nothing was committed; a later fault has others


@dataclass(frozen=True, slots=True)
class Attempt:
    """Describe one try of a commit, on top of ``before`` of ``branch``.

    ``action`` names it in the reflog. ``room`` holds git's trace, and outlives a crash.
    """

    place: Repository
    room: str
    action: str
    message: str
    begun: datetime
    branch: str = ""
    before: str = ""

    @property
    def trace(self) -> str:
        return f"{self.room}/trace"

    def keep(self) -> None:
        """Write down where the commit begins, for whoever takes over after a crash."""
        Path(self.trace).unlink(missing_ok=True)
        with open(f"{self.room}/head", "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump([self.branch, self.before], file)

    def own(self, *, succeeded: bool = False) -> str:
        """Return the commit that git made, empty for none; somebody may have added to it.

        Git's trace says whether it moved the branch. Which commit that was, the reflog says, or
        where there is none the history: the first commit on top of the one before. Neither files
        nor message would, since hooks may change both.
        """
        made = succeeded or _moved(self.trace)
        if made is False:
            return ""
        plain = Plain(self.place)
        next_ones = self._next(plain)
        logged = _logged(self.place, self.action, self.before)
        there = [one for one in logged or () if one in next_ones or branches(plain, one)]
        if there or (logged and not next_ones):
            return (there or logged or [""])[0]
        if made or logged:
            return next_ones[0] if next_ones else ""
        if logged is None and next_ones and self._is_like(plain, next_ones[0]):
            return next_ones[0]
        return ""

    def _next(self, plain: Plain) -> list[str]:
        """Return the commits on top of the one before, HEAD's and the branch's."""
        since = [f"^{self.before}"] if self.before else []
        found = []
        for tip in filter(None, dict.fromkeys(("HEAD", self.branch))):
            how = ("rev-list", "--first-parent", "--reverse", "--parents", tip, *since, "--")
            listed = plain.done(*how, good=(0, 128)).out.decode().splitlines()
            parents = [line.split() for line in listed[:1]]
            found += [one[0] for one in parents if [*one[1:], ""][0] == self.before]
        return found

    def _is_like(self, plain: Plain, commit: str) -> bool:
        """Return whether a commit has this message and was made since: a sign, no proof."""
        told = plain(*LOG, "--format=%ct %B", commit, "--").decode("utf-8", "replace")
        made, _, body = told.partition(" ")
        cleaned = plain("stripspace", stdin=self.message.encode()).decode("utf-8", "replace")
        return int(made) >= int(self.begun.timestamp()) and cleaned.strip() in body


def earlier(attempt: Attempt) -> str:
    """Return the commit that an earlier try of this request made, empty for none."""
    try:
        with open(f"{attempt.room}/head", encoding="utf-8", errors="surrogateescape") as file:
            branch, before = json.load(file)
    except (FileNotFoundError, ValueError):  # another process's try, or none that came so far
        return next(iter(_logged(attempt.place, attempt.action) or ()), "")
    known = (attempt.place, attempt.room, attempt.action, attempt.message, attempt.begun)
    return Attempt(*known, branch, before).own()


def wait_for_left(action: str, begun: datetime, seconds: float) -> None:
    """Wait for a git that outlived its bridge; end it when its time is over."""
    for left in _left(action):
        try:
            with bounded_otherwise():
                left.wait(max(0.0, begun.timestamp() + seconds - time.time()))
        except psutil.TimeoutExpired:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, psutil.TimeoutExpired):
                    os.killpg(left.pid, number)
                    left.wait(limits.GIT_END_SECONDS)


def _left(action: str) -> list[psutil.Process]:
    """Return gits that a bridge has started with this action; each leads its group."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or not ours
            ours = process.uids().real == os.getuid() and process.cmdline()[1:2] == [NO_PAGER]
            if ours and process.environ().get(ACTION) == action:
                found.append(process)
    return found


def _moved(trace: str) -> bool | None:
    """Return whether git moved the branch; None where its trace does not say.

    After the branch git runs other programs than before it. What hooks call writes to the same
    file, under a longer id.
    """
    own, waits, failed = "", False, False
    for event in _events(trace):
        own = own or event["sid"]
        kind = event["event"] if event["sid"] == own else ""
        if kind == "child_start":
            if _comes_after(event):
                return True
            waits = event.get("child_class") != "subprocess"  # a filter that stays
        elif kind == "child_exit":
            waits, failed = False, event["code"] != 0
        elif kind == "error" and "cannot lock ref" in event.get("msg", ""):
            return False  # somebody else has moved it
        elif kind in ("exit", "atexit"):
            if event["code"] == 0:
                return True
            return False if waits or failed or event["code"] == _REFUSED else None
    return False if waits or failed else None


def _comes_after(event: dict[str, Any]) -> bool:
    hook, command = event.get("hook_name"), event.get("argv", [])
    if hook == "reference-transaction":
        return bool(command[-1:] == ["committed"])
    return hook in ("post-commit", "post-rewrite") or command[1:2] in (["maintenance"], ["gc"])


def _events(trace: str) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(FileNotFoundError), open(trace, "rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):  # cut when git was killed
                found.append(json.loads(line))
    return found


def _logged(place: Repository, action: str, before: str | None = None) -> list[str] | None:
    """Return the reflog's commits of this action, None where there is no reflog.

    ``before``: only those on top of it. What a hook committed there is among them.
    """
    plain = Plain(place)
    head = head_of(plain)
    form = ("--no-show-signature", "--encoding=UTF-8", "--format=%H %P%x09%gs")
    limit = f"--max-count={_REFLOG_MAX}"
    listed = plain.done("log", "--walk-reflogs", *form, limit, "HEAD", "--", good=(0, 128)).out
    entries = [line.partition("\t") for line in listed.decode("utf-8", "replace").split("\n")[:-1]]
    hashes = [[*one.split(" "), ""] for one, _, _ in entries]
    found = []
    for at in reversed(range(len(entries))):
        # what its hooks did has the same words, but not with the commit before as parent
        former = hashes[at + 1][0] if at + 1 < len(entries) else ""
        ours = entries[at][2].startswith(f"{action}: ") and hashes[at][1] == former
        ours = ours and before in (None, former)
        # git writes it before it moves HEAD, and may have been ended between the two
        if ours and (at or hashes[at][0] == head):
            found.append(hashes[at][0])
    return found if entries else None


def branches(plain: Plain, own: str) -> list[str]:
    """Return the branches that a commit is on."""
    form = "--format=%(refname:lstrip=2)"
    return os.fsdecode(plain("for-each-ref", form, f"--contains={own}", "refs/heads")).splitlines()


def parent(git: Git | Plain, own: str) -> str:
    done = git.done("rev-parse", "--verify", "--quiet", f"{own}^", good=(0, 1))
    return done.out.decode().strip()
