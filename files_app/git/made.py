"""Tell a commit of the bridge from everybody else's (D63)."""

import os
from datetime import datetime
from typing import Final

from files_app.git.facts import head_of
from files_app.git.plain import Plain
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository

LOG: Final = ("log", "--max-count=1", "--no-show-signature", "--encoding=UTF-8")
_REFLOG_MAX: Final = 1000  # newest entries looked through for a commit


def earlier(git: Git, action: str, last: str, message: str, begun: datetime) -> str:
    """Return the commit that an earlier try of this request made, empty for none."""
    found = logged(git.place, action)
    if found is None and is_last(git, last, message, begun):
        return last
    return found or ""


def logged(place: Repository, action: str) -> str | None:
    """Return the commit made so, empty for none; None where there is no reflog.

    Nothing else tells it from a commit by somebody else at the same moment: a hook may change its
    message, its files and the branch.
    """
    plain = Plain(place)
    head = head_of(plain)
    form = ("--no-show-signature", "--encoding=UTF-8", "--format=%H %P%x09%gs")
    limit = f"--max-count={_REFLOG_MAX}"
    listed = plain.done("log", "--walk-reflogs", *form, limit, "HEAD", "--", good=(0, 128)).out
    entries = [line.partition("\t") for line in listed.decode("utf-8", "replace").split("\n")[:-1]]
    hashes = [[*one.split(" "), ""] for one, _, _ in entries]
    for at in reversed(range(len(entries))):
        # what its hooks did has the same words, but not with the commit before as parent
        former = hashes[at + 1][0] if at + 1 < len(entries) else ""
        ours = entries[at][2].startswith(f"{action}: ") and hashes[at][1] == former
        # git writes it before it moves HEAD, and may have been ended between the two
        if ours and (at or hashes[at][0] == head):
            return hashes[at][0]
    return "" if entries else None


def branches(plain: Plain, own: str) -> list[str]:
    """Return the branches that a commit is on."""
    form = "--format=%(refname:lstrip=2)"
    return os.fsdecode(plain("for-each-ref", form, f"--contains={own}", "refs/heads")).splitlines()


def parent(git: Git | Plain, own: str) -> str:
    done = git.done("rev-parse", "--verify", "--quiet", f"{own}^", good=(0, 1))
    return done.out.decode().strip()


def is_last(
    git: Git | Plain, last: str, message: str, begun: datetime, *, whole: bool = True
) -> bool:
    """Return whether a commit with this message was made since then."""
    if not last:
        return False
    # Not by its files: others may have staged more since, which must not be committed for that.
    told = git(*LOG, "--format=%ct %B", last, "--").decode("utf-8", "replace")
    made, _, body = told.partition(" ")
    cleaned = git("stripspace", stdin=message.encode()).decode("utf-8", "replace").strip()
    if not made.isdigit() or int(made) < int(begun.timestamp()):
        return False
    return body.strip() == cleaned if whole else cleaned in body
