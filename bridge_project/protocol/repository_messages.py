"""Define the answers about files and git repositories."""

from __future__ import annotations

from typing import Literal

from bridge_project.protocol.base import ServerPayload
from bridge_project.protocol.resources import (
    DiffFile,
    DirectoryEntry,
    GitChange,
    GitCommitSummary,
)
from bridge_project.protocol.types import Count, FileEncoding


class GitStatusResponse(ServerPayload):
    """``commit`` is there only in the answer to ``git_commit``; ``truncated``: there are more
    changes (D10).
    """

    type = "git_status_response"
    summary = "The state of the repository."
    session_id: str
    branch: str
    ahead: Count
    behind: Count
    is_clean: bool
    changes: list[GitChange]
    commit: GitCommitSummary | None = None
    truncated: bool | None = None


class GitDiffResponse(ServerPayload):
    """``truncated``: some file has more lines, or there are more files, than one answer holds
    (D10).
    """

    type = "git_diff_response"
    summary = "The changes line by line."
    session_id: str
    files: list[DiffFile]
    truncated: bool | None = None


class FileListResponse(ServerPayload):
    """``path`` is the directory's real path; ``truncated`` only when something was cut: there is
    more than one answer shows.
    """

    type = "file_list_response"
    summary = "A directory."
    session_id: str
    path: str
    entries: list[DirectoryEntry]
    truncated: Literal[True] | None = None


class FileReadResponse(ServerPayload):
    """``size``: bytes of the file; ``lines``: lines of the file; a binary one comes whole as base64
    (D11).
    """

    type = "file_read_response"
    summary = "Lines of a file."
    session_id: str
    path: str
    content: str
    size: Count
    lines: Count
    encoding: FileEncoding = "utf-8"
