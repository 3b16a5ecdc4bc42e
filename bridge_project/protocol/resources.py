"""Define the resources that messages contain (SPEC Resources and their fields)."""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bridge_project.protocol import types
from bridge_project.protocol.base import Sent


class Doing(Sent):
    """Describe the newest call that waits for a person, else the newest that runs."""

    tool: str
    summary: str
    since: types.Timestamp


class SentWithNull(Sent):
    """Send fields of ``nullable`` as null, because a client merges an update."""

    # without a return type the schema stays that of the fields
    @model_serializer(mode="wrap")
    def _with_null(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        return dict.fromkeys(self.nullable) | write(self)


class RuleUse(Sent):
    """Name the rule that approved a call, who set it on which device, and when (D68)."""

    id: str
    label: str
    device: str
    since: types.Timestamp


class SessionRule(RuleUse):
    """Describe a rule of a session; ``used``: how many calls it has approved (D68)."""

    used: types.Count = 0


class UsageLimit(Sent):
    """Describe a limit of the agent's account; ``used``: the share of it, from 0 to 1."""

    name: str
    status: types.LimitStatus
    used: types.Number | None = None
    resets_at: types.Timestamp | None = None


class Usage(Sent):
    """Say what a session has used, as far as its agent does (D72)."""

    context_tokens: types.Count | None = None
    context_window: types.Count | None = None
    cost_usd: types.Number | None = None
    limits: list[UsageLimit] | None = None


class Continue(SentWithNull):
    """Say how a device can go on with a session (D67).

    ``join``: ``session_start``, with ``resume`` for one that rests, and for an observed one with
    ``take_over``, which then ends nothing (D80); ``take_over``: the same with it; ``ends``: that
    ends the program that runs it at the machine; ``reason``: what a person is told before. ``how``
    null: not at all, for ``reason``.
    """

    nullable = frozenset({"how"})
    how: types.ContinueHow | None = None
    reason: str = ""
    ends: bool = False


class SessionState(SentWithNull):
    """Describe a session for home screens, beyond the specification (D54).

    ``turn``: the agent does nothing, works, or waits for a person; ``doing`` is null when no tool
    call is open. ``resumable``: ``session_start`` with ``resume`` true starts its agent again
    (D60). ``quiet_since``: the last sign of an observed session that works or waits and has given
    none for five minutes, else null (D65). ``rules``: what a person approves without being asked
    each time, oldest first (D68). ``usage``: null where its agent says nothing (D72). ``pinned``,
    ``archived``: as a person has put it (D73). ``shared``: it is the desk's, and the bridge has
    only joined it (D80). ``asks``: the agent asks before it changes or runs something; null when
    unknown, as for an observed session (D59).
    """

    nullable = frozenset({"doing", "quiet_since", "usage", "asks"})
    kind: types.SessionKind
    session_status: types.SessionStatus
    turn: types.Turn
    doing: Doing | None = None
    pending_approvals: types.Count
    resumable: bool
    last_activity_at: types.Timestamp
    quiet_since: types.Timestamp | None = None
    rules: list[SessionRule] = []
    usage: Usage | None = None
    pinned: bool = False
    archived: bool = False
    shared: bool = False
    asks: bool | None = None
    continue_: Continue = Field(alias="continue")


class SessionInfo(SessionState):
    session_id: str
    agent: str
    title: str
    working_directory: str | None = None


class PastSession(Sent):
    """Describe a session of an agent's store (D67).

    ``live``: a program at the machine runs it, or may: it cannot be continued here now.
    ``shared``: one does, and lets the bridge join (D80).
    """

    agent: str
    session_id: str
    title: str
    working_directory: str
    last_activity_at: types.Timestamp
    live: bool
    shared: bool = False


class SearchHit(Sent):
    """Describe a place where words were found (D73).

    ``message_id`` (of a prompt or an answer): its row's, or of the row that ends it; ``excerpt``:
    the text around the first word.
    """

    session_id: str
    title: str
    message_id: str | None = None
    at: types.Timestamp
    where: Literal["title", "directory", "prompt", "answer"]
    excerpt: str


class SubAgent(Sent):
    """Name the subagent that a tool call is of (D65).

    ``id``: where the bridge runs the agent, the ``tool_call_id`` of the call that started it (D69).
    """

    id: str
    type: str = ""


class Presence(Sent):
    """Say whether the owner is away, which device said so, and since when (D66).

    ``device`` null: it was said at the machine, or ended by itself.
    """

    nullable = frozenset({"device"})
    away: bool
    device: str | None = None
    since: types.Timestamp

    @model_serializer(mode="wrap")
    def _with_null(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        return dict.fromkeys(self.nullable) | write(self)


class PushOffer(Sent):
    """Offer push; ``public_key``: for VAPID, uncompressed, in base64url (D56)."""

    public_key: str


class HealthChecks(Sent):
    tls_valid: bool
    clock_sync: bool
    version_compatible: bool
    token_permissions: bool


class Picture(Sent):
    """Describe an agent's picture, which is an attachment of the session (D70)."""

    type: Literal["image"] = "image"
    attachment_id: str
    media_type: str
    size: types.Count


class ToolOutcome(Sent):
    """Hold what a tool gave.

    ``pictures`` (added): of ``content``, where each stands as ``[image/png, 160 KB]`` (D70).
    """

    success: bool
    content: str
    diff: Any = None
    metadata: dict[str, Any] | None = None
    error: str | None = None
    duration_ms: types.Count | None = None
    pictures: list[Picture] | None = None


class ApprovalOption(Sent):
    """Describe one of several ways in which an agent lets its call be decided (D68)."""

    id: str
    name: str
    kind: types.OptionKind


class SessionChoice(Sent):
    value: str
    name: str
    description: str = ""


class SessionOption(Sent):
    """Describe what an agent lets a person choose for its session (D69).

    ``value``: of the choice that stands, "" when none of them does. ``kind`` ``plan``: whether it
    plans first, ``on`` or ``off``.
    """

    id: str
    name: str
    kind: types.SettingKind
    value: str
    choices: list[SessionChoice]


class SessionCommand(Sent):
    """Describe a command, given by a message that begins with ``/`` and its name."""

    name: str
    description: str = ""
    hint: str = ""


class RuleOffer(Sent):
    """Offer to approve a call and what is like it, for the rest of the session (D68).

    ``covers`` and ``not`` say in words what the rule would approve, and what asks all the same.
    """

    id: str
    label: str
    covers: str
    excluded: str = Field(alias="not")


class ToolErrorDetails(Sent):
    exit_code: int | None = None
    stderr: str | None = None
    stdout: str | None = None
    execution_time_ms: types.Number | None = None


class GitChange(Sent):
    """Describe a changed file (D63).

    ``staged``: any of it is; ``counted`` false: its lines are not known, and are 0 here;
    ``filtered``: a filter that only the machine may run decides whether it has changed at all.
    """

    path: str
    status: types.GitFileStatus
    additions: types.Count
    deletions: types.Count
    conflicted: bool = False
    staged: bool = False
    counted: bool = True
    filtered: bool | None = None


class GitCommitName(Sent):
    """Name a commit (D64)."""

    hash: str
    summary: str


class GitUpstream(Sent):
    """Name the branch that HEAD's branch follows; ``url`` has no credentials (D63).

    ``gone``: the remote had no such branch when git last looked, if ever; a push makes it.
    """

    remote: str
    branch: str
    url: str
    gone: bool | None = None


class GitProgram(Sent):
    """Describe a program of a repository; ``command``: a setting's value (D63)."""

    kind: str
    name: str
    command: str | None = None
    path: str | None = None


class GitCommitSummary(Sent):
    """Describe a commit.

    ``also``: staged paths that went in unnamed; ``note``: what a person must know (D63).
    """

    hash: str
    summary: str
    files_changed: types.Count
    additions: types.Count
    deletions: types.Count
    also: list[str] | None = None
    note: str | None = None


class DiffLine(Sent):
    """Describe a line of a diff; ``content`` has no sign and no line feed.

    ``no_newline`` (added, D10): the file ends here without a line feed.
    """

    type: types.DiffLineType
    content: str
    no_newline: bool | None = None


class DiffHunk(Sent):
    header: str
    old_start: types.Count
    old_lines: types.Count
    new_start: types.Count
    new_lines: types.Count
    lines: list[DiffLine]


class DiffFile(Sent):
    """Describe a changed file; ``old_path`` differs only if it was renamed.

    Added (D10): ``binary`` for a file without lines, ``truncated`` where lines are missing,
    ``charset``: from which encoding the lines were decoded, if not UTF-8 (the old ones, if they
    differ in it).
    """

    path: str
    old_path: str
    new_path: str
    status: types.GitFileStatus
    additions: types.Count
    deletions: types.Count
    hunks: list[DiffHunk]
    old_mode: str | None = None
    new_mode: str | None = None
    binary: bool | None = None
    truncated: bool | None = None
    counted: bool | None = None
    filtered: bool | None = None
    charset: str | None = None


class DirectoryEntry(Sent):
    """Describe a directory's entry; only files have ``size``, in bytes."""

    name: str
    type: types.EntryType
    size: types.Count | None = None


class Violation(Sent):
    """Describe a violation; ``received`` is a short description, never a secret."""

    field: str
    constraint: str
    received: str
