"""Define the messages that a client may send."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from bridge_project.kernel import limits
from bridge_project.protocol import types
from bridge_project.protocol.base import ClientPayload, Phase

_WIRE_INT_MAX = 2**53 - 1  # the spec sends larger integers as strings

# Only the first wrong item is reported: a 10 MB array of wrong ones must not become gigabytes of
# violations.
Strings = Annotated[list[str], Field(fail_fast=True)]


def _null_is(default: int) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value is None else value)


class SessionPayload(ClientPayload):
    """Hold a payload about a session, which the client must have joined."""

    needs_joined = True
    session_id: types.SessionId


class Auth(ClientPayload):
    """Authenticate the device; always the first message.

    ``device_id`` binds the token at its first use (D15).
    """

    type = "auth"
    phase = Phase.OPEN
    reply = ("connection_ack", "connection_error")
    token: str = Field(repr=False)
    client_version: str = Field(max_length=64)
    platform: types.Platform
    device_id: str | None = Field(None, max_length=limits.DEVICE_ID_MAX_CHARS)


class HealthCheck(ClientPayload):
    """Ask for the connection's state and its warnings."""

    type = "health_check"
    phase = Phase.AUTHENTICATED
    reply = ("health_status",)
    timestamp: types.Timestamp
    client_nonce: str
    client_capabilities: Strings


class AcknowledgeWarning(ClientPayload):
    """Send whether the user acknowledges a warning."""

    type = "acknowledge_warning"
    phase = Phase.AUTHENTICATED
    reply = ("acknowledgment_accepted",)
    warning_code: str
    acknowledged: bool
    acknowledged_at: types.Timestamp


class HeartbeatPing(ClientPayload):
    """Show that the client lives; only ``type`` and ``timestamp`` are sent."""

    type = "heartbeat_ping"
    phase = Phase.AUTHENTICATED
    reply = ("heartbeat_pong",)


class SessionStart(ClientPayload):
    """Join a session, or create one, or resume one (D22, D60).

    It is created when ``session_id`` is null, or unknown while ``resume`` is false. ``worktree``: a
    new session begins in a work tree of this branch, made in ``.worktrees/`` at the repository's
    top; when a person ends the session it is removed, if nothing in it would be lost: all is
    committed and pushed, and nothing ignored is there (D64). ``trust`` as in ``git_commit``. With
    ``resume``, an id that only the agent's own store knows begins that session here, in its stored
    directory. ``take_over``: an observed session goes on under the bridge; ``end_terminal`` also
    ends the program that runs it now, if that is idle or asks (D67).
    """

    type = "session_start"
    idempotent = True
    reply = ("session_ready",)
    nullable = frozenset({"session_id"})
    agent: str
    session_id: types.SessionId | None = None
    working_directory: str
    resume: bool
    take_over: Literal[True, "end_terminal"] | None = None
    worktree: str | None = None
    trust: str | None = None


class SessionEnd(SessionPayload):
    """End or leave a session; from the bridge: it has ended.

    The client that ended it gets the row under the id of its request, and not again. No join is
    needed while the agent is being started, or once the grace timer closed the session.
    ``give_back``: the agent is stopped and the session is paused, to go on in a terminal; a
    ``session_update`` is the answer, and nothing has ended (D67). ``title`` (added): from the
    bridge, how the session was called last; one that was short had no other message to say it.
    """

    type = "session_end"
    from_server = True
    reply = ("session_update",)
    feed = "all"
    reason: types.SessionEndReason
    give_back: bool | None = None
    title: str | None = None


class HistoryList(ClientPayload):
    """Ask for the sessions that an agent keeps in its own store, newest first (D67).

    ``directory``: only those that began there or below; ``query``: words of the title or the
    directory; ``before``: only those whose last activity is earlier.
    """

    type = "history_list"
    queue = "files"
    reply = ("history_list_response",)
    agent: str
    directory: str | None = None
    query: str | None = Field(None, max_length=200)
    limit: Annotated[
        int, Field(ge=1, le=limits.HISTORY_SESSIONS), _null_is(limits.HISTORY_SESSIONS)
    ] = limits.HISTORY_SESSIONS
    before: types.Timestamp | None = None


class SessionSearch(ClientPayload):
    """Search titles, directories, prompts and final answers, newest first (D73).

    A hit has all words of ``query``, in whatever case; ``before``: only what is older. What came
    in the millisecond of the last hit comes with it, also beyond ``limit``.
    """

    type = "session_search"
    reply = ("session_search_response",)
    query: str = Field(max_length=limits.SEARCH_QUERY_CHARS)
    limit: Annotated[int, Field(ge=1, le=limits.SEARCH_HITS), _null_is(limits.SEARCH_HITS)] = (
        limits.SEARCH_HITS
    )
    before: types.Timestamp | None = None


class SessionEdit(ClientPayload):
    """Name a session, pin it or take it out of the lists (D73).

    Only the fields that are given. A title that a person gives stays.
    """

    type = "session_edit"
    reply = ("session_update",)
    session_id: str
    title: str | None = Field(None, min_length=1, max_length=limits.TITLE_MAX_CHARS)
    pinned: bool | None = None
    archived: bool | None = None


class Message(SessionPayload):
    """Send a prompt to the session's agent.

    A command that would change how the agent asks is refused (D69). ``attachments`` (added): ids of
    files that were uploaded to this session (D70). ``not_before``: it waits until then, at most 7
    days, or until the agent's limit ends, where the agent has said when; then it resumes a session
    that rests (D71). ``when``: ``now`` gives it to the turn that runs, where the agent ``steers``;
    else, and by default, it comes after that.
    """

    type = "message"
    idempotent = True
    reply = ("stream_start", "stream_chunk", "stream_end")
    content: types.Prompt
    role: Literal["user"]
    attachments: types.AttachmentIds | None = None
    not_before: types.NotBefore | None = None
    when: Literal["later", "now"] | None = None


class MessageWithdraw(ClientPayload):
    """Take a message back that no agent has been given yet (D71).

    The answer is its state: ``withdrawn``, as every device is told, or what it has been before. One
    that has not come yet is not given when it comes within an hour. No join is needed.
    """

    type = "message_withdraw"
    reply = ("message_state",)
    session_id: types.SessionId
    message_id: str = Field(min_length=1, max_length=limits.CLIENT_MESSAGE_ID_MAX_CHARS)


class SessionInterrupt(SessionPayload):
    """Stop the running turn, and processes that the agent's commands left (D40).

    Without a turn nothing answers it. While the agent is being started, it cancels the start, and
    needs no join.
    """

    type = "session_interrupt"
    reply = ("stream_end",)


class ApprovalResponse(ClientPayload):
    """Decide about a tool call (D38).

    ``modified`` needs ``modifications``: the parameters with which the tool shall run instead.
    ``option_id``: which of the ``options`` of ``approval_required``; to approve needs it where
    several allow the call, to reject takes the first. ``reason``: what the agent is told when the
    call is rejected. ``remember``: with ``approved``, which of the call's rules to keep for the
    rest of the session (D68). A question that is ``answerable`` is answered by ``modified`` only.
    """

    type = "approval_response"
    idempotent = True
    reply = ("approval_recorded",)
    nullable = frozenset({"modifications"})
    session_id: types.SessionId
    tool_call_id: str
    decision: types.Decision
    modifications: dict[str, Any] | None = Field(
        None,
        validate_default=True,
        description="With modified, the parameters that the tool runs with. A question"
        " (AskUserQuestion) is answered so: its `questions` as they came, and `answers`, each"
        " question's words → the chosen label, or other words.",
    )

    option_id: str | None = None
    reason: str | None = Field(None, max_length=limits.REJECTION_REASON_CHARS)
    remember: str | None = None

    # On the field, not the model: a model's validator does not run while another field is wrong,
    # and every violation is to be listed.
    @field_validator("modifications")
    @classmethod
    def _require_modifications(
        cls, value: dict[str, Any] | None, info: ValidationInfo
    ) -> dict[str, Any] | None:
        if value is None and info.data.get("decision") == "modified":
            raise ValueError("must be given when decision is modified")
        return value


class SessionSet(SessionPayload):
    """Choose a value of one of the session's options (D69).

    An option or a value that the agent does not offer (now) is refused, and nothing is changed.
    """

    type = "session_set"
    queue = "agent"
    reply = ("session_options",)
    option_id: str
    value: str


class RuleRemove(ClientPayload):
    """Take a rule of a session back: what it covered asks again (D68).

    The answer shows the session without it, also when somebody has taken it back before.
    """

    type = "rule_remove"
    reply = ("session_update",)
    session_id: types.SessionId
    rule_id: str


class PresenceSet(ClientPayload):
    """Say whether the owner is away (D66).

    While that is so, calls in terminals wait for the answer of a device also where the agent shows
    no dialog meanwhile, as for subagents. It is over after 12 hours, by any device, and by a prompt
    at the machine.
    """

    type = "presence_set"
    reply = ("presence_state",)
    away: bool


class GitStatusRequest(SessionPayload):
    """Ask for the state of the repository."""

    type = "git_status_request"
    queue = "git"
    reply = ("git_status_response",)


class GitCommit(SessionPayload):
    """Commit files; ``files`` null: all that is staged (D10, D63).

    Named files are committed as they are in the work tree, whatever is staged of them; a directory
    means all files in it, a renamed file also the end of its old name. In the middle of a merge,
    rebase, am, cherry-pick or revert the whole index is committed, and a named file counts as
    resolved; it is refused while markers of a conflict are in it, or another file is in conflict.
    A commit that is not made leaves the index as it was; what a hook changed in the work tree stays
    and is named (``details.changed``). ``repository`` and ``head``: what the client has seen, else
    nothing is done. ``trust``: the digest of a GIT_TRUST_REQUIRED whose programs may run.
    """

    type = "git_commit"
    idempotent = True
    queue = "git"
    reply = ("git_status_response",)
    nullable = frozenset({"files"})
    message: str
    files: Strings | None = None
    repository: str | None = None
    head: str | None = None
    trust: str | None = None


class GitPush(SessionPayload):
    """Push the current branch to its upstream, never by force (D64).

    It goes where it would go at the machine, and the answer says where. ``dry_run``: only say which
    commits would go, as far as the repository knows; no server is asked. ``set_upstream``: where
    the branch has none, to the same name at the only remote. ``branch`` and ``url``: where it goes,
    as the client was shown; it is refused where that has changed. The rest is as in ``git_commit``.
    """

    type = "git_push"
    idempotent = True
    queue = "git"
    reply = ("git_push_response",)
    repository: str | None = None
    head: str | None = None
    branch: str | None = None
    url: str | None = None
    set_upstream: bool = False
    dry_run: bool = False
    trust: str | None = None


class GitDiff(SessionPayload):
    """Ask for changes line by line (D10).

    ``files`` null: all changes; ``cached`` false: the work tree against the index.
    """

    type = "git_diff"
    queue = "git"
    reply = ("git_diff_response",)
    nullable = frozenset({"files"})
    files: Strings | None = None
    cached: bool


class FileList(SessionPayload):
    """Ask for the entries of a directory."""

    type = "file_list"
    queue = "files"
    reply = ("file_list_response",)
    path: str


class FileRead(SessionPayload):
    """Ask for lines of a file; ``offset`` and ``limit`` are optional and count lines."""

    type = "file_read"
    queue = "files"
    reply = ("file_read_response",)
    path: str
    offset: Annotated[int, Field(ge=0, le=_WIRE_INT_MAX), _null_is(0)] = 0
    limit: Annotated[int, Field(ge=1, le=_WIRE_INT_MAX), _null_is(limits.FILE_READ_LINES)] = (
        limits.FILE_READ_LINES
    )


class FileSearch(SessionPayload):
    """Ask for files by letters that their paths have in this order (D69).

    Those below the session's directory; case and blanks do not count.
    """

    type = "file_search"
    queue = "files"
    reply = ("file_search_response",)
    query: str = Field(max_length=limits.FILE_SEARCH_QUERY_CHARS)
    limit: Annotated[
        int, Field(ge=1, le=limits.FILE_SEARCH_PATHS), _null_is(limits.FILE_SEARCH_PATHS)
    ] = limits.FILE_SEARCH_PATHS


class NotificationAck(ClientPayload):
    """Acknowledge messages, of any type, by their envelope ids (D27)."""

    type = "notification_ack"
    phase = Phase.AUTHENTICATED
    notification_ids: Strings


class ReplayRequest(SessionPayload):
    """Ask for a session's messages by a message or a moment (D29, D73).

    Without any of them, for all that are kept. ``limit`` (added): at most so many of the newest of
    these; of those before ``before_id`` (added) no more than its largest value either way.
    """

    type = "replay_request"
    reply = ("replay_buffer",)
    after_id: str | None = None
    before_id: str | None = None
    since: types.Timestamp | None = None
    limit: int | None = Field(None, ge=1, le=limits.REPLAY_PAGE_ROWS)
