"""Define the answers about files and git repositories."""

from typing import Literal

from bridge_project.protocol.base import ServerPayload
from bridge_project.protocol.resources import (
    DiffFile,
    DirectoryEntry,
    GitChange,
    GitCommitName,
    GitCommitSummary,
    GitUpstream,
)
from bridge_project.protocol.types import Count, FileEncoding, GitState


class GitStatusResponse(ServerPayload):
    """Describe the state of the repository (D10, D63).

    ``repository`` is the work tree's top, ``head`` the last commit, ``state`` what git is in the
    middle of; ``branch`` is a short commit in parentheses where HEAD is detached. A change is what
    has become of a file since ``head``, index and work tree together. Its path is relative to the
    session's directory; a byte that is no UTF-8 is U+FFFD. Untracked files are listed as
    ``status.showUntrackedFiles`` has it, a directory of them as one change whose path ends in a
    slash; their lines are counted up to 2,000 files and 16 MB. A file that was only taken out of
    the index is ``deleted``; a conflict, or a submodule that differs, is ``modified``; the first 50
    submodules are looked into, and none in them. ``counted`` false: its lines are not known, and
    are 0. ``filtered``: only a filter at the machine knows whether it has changed, and ``is_clean``
    leaves it out. ``commit`` only in the answer to ``git_commit``: ``also`` lists what went in
    unnamed, ``note`` what a person must know. ``truncated``: there are more changes.
    """

    type = "git_status_response"
    nullable = frozenset({"head", "upstream", "state"})
    session_id: str
    branch: str
    ahead: Count
    behind: Count
    repository: str
    head: str | None = None
    upstream: GitUpstream | None = None
    state: GitState | None = None
    is_clean: bool
    changes: list[GitChange]
    commit: GitCommitSummary | None = None
    truncated: bool | None = None


class GitPushResponse(ServerPayload):
    """Say which commits have gone to a remote, or would go (D64).

    ``commits`` names the newest 100 of ``count``; ``links``: web addresses that the server printed;
    ``url`` has no credentials.
    """

    type = "git_push_response"
    session_id: str
    remote: str
    branch: str
    url: str
    commits: list[GitCommitName]
    count: Count
    links: list[str]
    pushed: bool


class GitDiffResponse(ServerPayload):
    """Describe changes line by line (D10).

    ``truncated``: there are more lines or files than one answer holds (8 MB, 100,000 lines); files
    whose lines are cut are listed with their true counts. A conflict is shown against our side.
    Untracked files are shown when they, or a directory around them, are named. A file over 32 MB
    counts as ``binary``.
    """

    type = "git_diff_response"
    session_id: str
    files: list[DiffFile]
    truncated: bool | None = None


class FileListResponse(ServerPayload):
    """List a directory; ``path`` is its real path.

    ``truncated`` only when there are more entries than one answer holds; ``more``: how many, where
    that is known.
    """

    type = "file_list_response"
    session_id: str
    path: str
    entries: list[DirectoryEntry]
    truncated: Literal[True] | None = None
    more: Count | None = None


class FileSearchResponse(ServerPayload):
    """Name files by their paths below the session's directory, the best first (D69).

    What git ignores comes last. ``more``: there are others, or not all were looked at.
    """

    type = "file_search_response"
    session_id: str
    paths: list[str]
    more: bool


class FileReadResponse(ServerPayload):
    """Return lines of a file (D11).

    ``size``: the file's bytes; ``lines``: the file's line count. A binary file comes whole, as
    base64. If it is text in another encoding than UTF-8, and that is sure, ``text`` is all of it
    and ``charset`` the encoding, by the names of the web.
    """

    type = "file_read_response"
    session_id: str
    path: str
    content: str
    size: Count
    lines: Count
    encoding: FileEncoding = "utf-8"
    text: str | None = None
    charset: str | None = None
