"""Store sessions, the log, tool calls, approvals, connections (D26 to D38, D46)."""

import json
import uuid
from typing import Any

from django.db import models
from django.utils import timezone

from bridge_project.kernel import limits


class RowNumber(models.BigIntegerField):  # type: ignore[type-arg]
    """Number rows; on SQLite an alias of the rowid, which needs no index of its own."""

    def db_type(self, connection: Any) -> str | None:
        return "integer" if connection.vendor == "sqlite" else super().db_type(connection)


class Feed(models.Model):
    """Store a stream of rows, a session's or ALL's, and how much it holds (D30)."""

    ALL = 0  # no automatic number is ever 0

    class Kind(models.TextChoices):
        ALL = "all"
        OBSERVED = "observed"
        BRIDGE = "bridge"

    kind = models.CharField(max_length=8, choices=Kind.choices)
    last_seq = models.BigIntegerField(default=0, help_text="Its newest row.")
    # A device whose cursor is below has missed something (D29).
    dropped_seq = models.BigIntegerField(default=0, help_text="The newest row it has discarded.")
    rows = models.BigIntegerField(default=0, help_text="Rows that it holds.")
    bytes = models.BigIntegerField(default=0, help_text="Bytes of their frames.")


class LogHead(models.Model):
    """Hold the newest row's number and the log's size; locked until commit (D26).

    It is one row, with id 1.
    """

    seq = models.BigIntegerField(default=0, help_text="The newest row.")
    bytes = models.BigIntegerField(default=0, help_text="Bytes that all feeds hold.")
    # Up to here rows are old: sent to who asks for them, and no gap for who does not (D73).
    old_seq = models.BigIntegerField(default=0, db_default=0)


class LogRow(models.Model):
    """Store one message of the log: its frame exactly as every socket sends it."""

    seq = RowNumber(primary_key=True)
    feed = models.ForeignKey(Feed, on_delete=models.CASCADE, db_index=False)
    type = models.CharField(max_length=32)
    # The envelope's id, which notification_ack names.
    message_id = models.CharField(max_length=36, unique=True)
    frame = models.TextField()
    size = models.IntegerField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["seq"]
        verbose_name = "pending message"
        verbose_name_plural = "pending queue"
        indexes = [models.Index(fields=["feed", "seq"], name="log_feed_seq")]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class Cursor(models.Model):
    """Store how far a device has acknowledged a feed (D27); none: Device.start_seq."""

    device = models.ForeignKey("devices_app.Device", on_delete=models.CASCADE)
    feed = models.ForeignKey(Feed, on_delete=models.CASCADE)
    position = models.BigIntegerField(help_text="Every row up to here has been received.")
    # Rows acknowledged beyond the position, while an earlier one is not.
    ahead = models.JSONField(default=list)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["device", "feed"], name="one_cursor_a_feed")]


class Session(models.Model):
    """Store an agent's session, observed by hooks or run by the bridge (D34, D35)."""

    class Kind(models.TextChoices):
        OBSERVED = "observed"
        BRIDGE = "bridge"

    class Status(models.TextChoices):
        CREATED = "created"
        ACTIVE = "active"
        PAUSED = "paused"
        CLOSED = "closed"
        ERROR = "error"

    class Turn(models.TextChoices):
        """List what an agent does now: nothing, work, or wait for a person (D54)."""

        IDLE = "idle"
        WORKING = "working"
        WAITING = "waiting"

    RUNS = (Status.CREATED, Status.ACTIVE)  # a bridge-run one takes a place of max_sessions (D36)

    session_id = models.CharField(max_length=256, unique=True)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    feed = models.OneToOneField(Feed, on_delete=models.CASCADE)
    agent_type = models.CharField(max_length=128)
    title = models.CharField(max_length=200, default="")
    titled = models.BooleanField(default=False, help_text="By a prompt: the title stays (D6).")
    named = models.BooleanField(
        default=False, db_default=False, help_text="By a person: no agent names it anew (D73)."
    )
    pinned = models.BooleanField(default=False, db_default=False)
    archived = models.BooleanField(default=False, db_default=False)
    # by a person (D73); that is no activity
    edited_at = models.DateTimeField(null=True, db_index=True)
    working_directory = models.TextField(default="")
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(default=timezone.now)
    last_activity_at = models.DateTimeField(default=timezone.now, db_index=True)
    closed_at = models.DateTimeField(null=True)
    hook_count = models.BigIntegerField(default=0)
    # {type, timestamp, tool} of the last 20, newest first (D35).
    recent_events = models.JSONField(default=list)
    # Tool calls that wait for a decision; kept here so that an event need not count them.
    pending_approvals = models.IntegerField(default=0)
    turn = models.CharField(max_length=7, choices=Turn.choices, default=Turn.IDLE, db_index=True)
    # Calls of this turn that run or wait, oldest first, as JSON text: {id, tool, summary, since,
    # waits}. Empty when there is none.
    doing = models.TextField(default="")
    # Observed sessions: a device decided about a call in this turn, which may not have run (D37).
    decided_by_device = models.BooleanField(default=False)
    # Observed sessions (D65): the last event, or when the agent's registry last said that it works.
    last_sign_at = models.DateTimeField(default=timezone.now)
    # JSON list of the processes that have run it, as the hook command noted them, oldest first.
    processes = models.TextField(default="")
    # JSON list of the ids of its background tasks that run, as its last Stop named them.
    tasks = models.TextField(default="")
    # Calls in a terminal that a device can answer now (D66).
    answerable = models.PositiveSmallIntegerField(default=0, db_default=0)
    # JSON list of what a person lets the agent do without asking each time (D68), as in
    # approvals/rules/store.py.
    rules = models.TextField(default="")
    # JSON of a Stop that counts when nothing follows it: {leaves_subagents, notification}.
    held_stop = models.TextField(default="")

    # Of sessions that the bridge runs, or has run (D67):
    # The process that runs the agent; only that one writes what the agent says.
    owner = models.UUIDField(null=True)
    # Of the process in which its agent runs (D79): the path of its socket; the number of the last
    # event of it that was stored; and JSON of what the one that owns it must know beside that, as
    # in session_writer.py.
    host = models.TextField(default="", db_default="")
    host_seq = models.BigIntegerField(default=0, db_default=0)
    host_state = models.TextField(default="", db_default="")
    # The agent's own id of the session: the checkpoint that a resume needs (D35).
    resume_id = models.TextField(default="")
    reason = models.TextField(default="", help_text="Why it is paused or in error.")
    expired = models.BooleanField(
        default=False, help_text="Closed by its grace timer: it can be resumed (D60)."
    )
    forgotten = models.BooleanField(
        default=False, help_text="Its agent does not know it any more, as of the last resume."
    )
    began_elsewhere = models.BooleanField(
        default=False, help_text="Its agent's records tell what was before its first row (D67)."
    )
    # Whether the agent asks before it acts (D59); unknown when nobody knows.
    asks = models.BooleanField(null=True)
    # JSON text of a `resources.Usage`; empty while the agent has said nothing (D72).
    usage = models.TextField(default="")
    # JSON text of {options, commands}, what the agent lets a person choose (D69), and how often
    # that has changed.
    offers = models.TextField(default="")
    offered = models.IntegerField(default=0)
    picture_bytes = models.IntegerField(
        default=0, db_default=0, help_text="Of the largest picture that its agent takes (D70)."
    )
    # The message_id of the stream that has begun and not ended.
    open_message = models.CharField(max_length=36, default="")

    class Meta:
        ordering = ["-last_activity_at"]
        indexes = [
            models.Index(
                fields=["owner"], name="sessions_by_owner", condition=models.Q(owner__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return f"{self.title or self.session_id} ({self.kind}, {self.status})"

    @property
    def own_id(self) -> str:
        """Return the agent's own id of the session."""
        return self.resume_id or self.session_id

    def set_turn(self, turn: Turn) -> None:
        """Set what the agent does now, without a call; the caller saves it."""
        self.turn, self.doing = turn, ""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Return the calls of this turn that run or wait, as ``doing`` holds them."""
        return json.loads(self.doing) if self.doing else []

    @property
    def waits(self) -> bool:
        """Return whether a call waits for a person, if only for the one at the machine.

        True for an observed session also after a device has decided, until the agent goes on.
        """
        return self.pending_approvals > 0 or any(one["waits"] for one in self.calls)

    def set_calls(self, calls: list[dict[str, Any]]) -> None:
        """Set the open calls of a turn that goes on: it works, or waits for a decision."""
        newest = sorted(calls, key=lambda one: one["waits"])[-limits.OPEN_CALLS_SHOWN :]
        self.doing = json.dumps(newest) if calls else ""
        self.turn = self.Turn.WAITING if self.waits else self.Turn.WORKING


class Said(models.Model):
    """Store what a search looks through: a prompt, or the end of an answer (D73)."""

    class Where(models.TextChoices):
        PROMPT = "prompt"
        ANSWER = "answer"

    seq = RowNumber(primary_key=True, help_text="Of the row that has it, or ends it.")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=True)
    at = models.DateTimeField(db_index=True)
    # first of the texts, since a database reads no further than it must
    folded = models.TextField(help_text="The text as it is compared.")
    text = models.TextField()
    where = models.CharField(max_length=6, choices=Where.choices)
    message_id = models.CharField(max_length=36)

    class Meta:
        verbose_name = "text that is searched"
        verbose_name_plural = "texts that are searched"


class SaidUpTo(models.Model):
    """Hold the row of the log up to which it is in `Said`; it is one row, with id 1."""

    seq = models.BigIntegerField(default=0)


class Attachment(models.Model):
    """Store what is known of a file that a person or an agent sent (D70).

    The file itself is in the data directory: ``attachments/<session's key>/<attachment_id>``.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False)
    attachment_id = models.CharField(max_length=36)
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=32, help_text="By its first bytes.")
    size = models.IntegerField()
    sha256 = models.CharField(max_length=64)
    whole = models.BooleanField(help_text="Whether a picture has an end.")
    # By which its sender knows it; empty: by nothing.
    client_id = models.CharField(max_length=limits.CLIENT_MESSAGE_ID_MAX_CHARS, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "attachment_id"], name="attachment_once"),
            models.UniqueConstraint(
                fields=["session", "client_id", "sha256"],
                name="attachment_sent_once",
                condition=~models.Q(client_id=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.type})"


class ToolCall(models.Model):
    """Store a tool call and its approval record (D37, D38).

    What an agent sent is kept as JSON text: a database's own JSON type takes neither every number
    nor NUL.
    """

    class Decision(models.TextChoices):
        PENDING = "pending"
        APPROVED = "approved"
        REJECTED = "rejected"
        MODIFIED = "modified"

    class DecidedBy(models.TextChoices):
        """List who decides: device, rule, person at the machine (AGENT), bridge."""

        DEVICE = "device"
        RULE = "rule"
        AGENT = "agent"
        BRIDGE = "bridge"

    class Outcome(models.TextChoices):
        """List who won, a device or the desk, as far as it can be known (D66)."""

        TAKEN = "taken"
        DESK_FIRST = "desk_first"
        NOT_CONFIRMED = "not_confirmed"

    class Source(models.TextChoices):
        HOOKS = "hooks"
        AGENT_SDK = "agent_sdk"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False)
    tool_call_id = models.CharField(max_length=256)
    tool = models.CharField(max_length=128)
    description = models.TextField()
    params = models.TextField()
    # The subagent that it is of; empty: the session's agent.
    agent_id = models.CharField(max_length=256, default="")
    agent_type = models.CharField(max_length=128, default="")
    same = models.CharField(max_length=64, help_text="The same for equal calls.")
    reasoning = models.TextField(null=True)
    risk_level = models.CharField(max_length=8)
    source = models.CharField(max_length=9, choices=Source.choices)
    # Null: nobody was asked.
    decision = models.CharField(max_length=8, choices=Decision.choices, null=True)
    modifications = models.TextField(null=True)
    result = models.TextField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    decided_at = models.DateTimeField(null=True)
    decided_by = models.CharField(max_length=8, choices=DecidedBy.choices, default="")
    device = models.ForeignKey(
        "devices_app.Device", on_delete=models.SET_NULL, null=True, db_index=False
    )
    # Of the bridge: session_closed, session_paused, agent_died, interrupted, turn_ended,
    # taken_over, given_back, at_the_desk; of a
    # device's decision that was only recorded: no_result (not_run in old rows).
    reason = models.CharField(max_length=32, default="")
    # False: no agent session took the decision, so it waits for a person at the machine.
    forwarded = models.BooleanField(default=False)
    # What the rule for just this call would be known by (D68); empty: none is offered.
    exact = models.CharField(max_length=64, default="", db_default="")
    # The nonce of the hook that waits for the answer now, and the process that holds it; the
    # process stays until it is known what came of the decision (D66).
    hook = models.CharField(max_length=32, default="")
    holder = models.UUIDField(null=True)
    # What came of a decision by a device that such a hook took, or came too late for.
    outcome = models.CharField(max_length=13, choices=Outcome.choices, default="")
    # The tool has run, or never will; until then the call is open.
    finished_at = models.DateTimeField(null=True)
    # The approval_required: every connecting device gets it while it is pending (D28).
    frame = models.TextField(default="")

    class Meta:
        ordering = ["-pk"]
        verbose_name = "approval"
        constraints = [
            models.UniqueConstraint(
                fields=["session", "tool_call_id"], name="tool_call_once_a_session"
            )
        ]
        indexes = [
            models.Index(
                fields=["session", "same"],
                name="open_tool_calls",
                condition=models.Q(finished_at=None),
            ),
            models.Index(
                fields=["decision"],
                name="pending_approvals",
                condition=models.Q(decision="pending"),
            ),
            models.Index(fields=["created_at"], name="tool_calls_by_age"),
            models.Index(
                fields=["holder"],
                name="waiting_hooks",
                condition=models.Q(holder__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.tool_call_id} ({self.decision or 'not asked'})"


class Command(models.Model):
    """Store a command for a session's agent, taken once by its process (D35, D46)."""

    class Kind(models.TextChoices):
        PROMPT = "prompt"
        STEER = "steer"  # a prompt that a turn takes in, where one runs
        LATER = "later"  # a prompt until its time has come
        DECIDE = "decide"
        INTERRUPT = "interrupt"
        SET = "set"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False)
    kind = models.CharField(max_length=9, choices=Kind.choices)
    payload = models.TextField(help_text="JSON, as text for the same reason as a tool call's.")
    created_at = models.DateTimeField(default=timezone.now)
    # Marked before the agent is told, so that it is told nothing twice.
    taken_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="Of a prompt that waits for its time.")
    # The id of the host for whose agent it was taken (D79).
    host = models.CharField(max_length=32, default="", db_default="")
    # Of `set`: null until the agent has answered, then JSON text of what was wrong, or empty.
    answer = models.TextField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["session", "id"], name="waiting_commands", condition=models.Q(taken_at=None)
            ),
            models.Index(fields=["session"], name="commands_by_session"),
            models.Index(fields=["due_at"], name="later_prompts", condition=models.Q(kind="later")),
            models.Index(fields=["created_at"], name="commands_by_age"),
        ]


class Presence(models.Model):
    """Store whether the owner is away (D66), in one row, with id 1."""

    away = models.BooleanField(default=False)
    device_name = models.CharField(max_length=80, default="", help_text="Which said so, if any.")
    since = models.DateTimeField(default=timezone.now)


class Process(models.Model):
    """Store a serving process; it is alive while its lease lasts (D46)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    # The data directory's own id: a successor there takes over at once (D35).
    instance = models.CharField(max_length=64)
    started_at = models.DateTimeField(default=timezone.now)
    lease_until = models.DateTimeField()


class Connection(models.Model):
    """Store an authenticated WebSocket of any process."""

    process = models.ForeignKey(Process, on_delete=models.CASCADE)
    device = models.ForeignKey("devices_app.Device", on_delete=models.CASCADE)
    # What it was opened with; when that ends, so does it.
    token = models.ForeignKey("devices_app.Token", on_delete=models.CASCADE, null=True)
    opened_at = models.DateTimeField(default=timezone.now)
    address = models.CharField(max_length=45)
    # A newer connection of the device took over; whoever holds this one closes it (D23).
    replaced = models.BooleanField(default=False)


class Join(models.Model):
    """Store that a connection has joined a session; counted in broadcast_count (D33)."""

    connection = models.ForeignKey(Connection, on_delete=models.CASCADE)
    session = models.ForeignKey(Session, on_delete=models.CASCADE)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["connection", "session"], name="joined_once")
        ]


class ClientRequest(models.Model):
    """Store a client message that must not be handled twice, and its answer (D31)."""

    device = models.ForeignKey("devices_app.Device", on_delete=models.CASCADE)
    # SHA-256 of its type, id and payload, and of the connection where its id holds only there.
    digest = models.CharField(max_length=64)
    process_id = models.UUIDField(help_text="The process that does it.")
    # The frame that answered it, empty where nothing does; null while it is being done.
    answer = models.TextField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["device", "digest"], name="client_request_once")
        ]
