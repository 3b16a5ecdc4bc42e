"""Define the spec's and the shared limits; settings replace some (D44)."""

from typing import Final

MB: Final = 2**20

# -- the spec's Limits table -----------------------------------------------------------------------
MAX_SESSIONS: Final = 10  # bridge-run sessions at once (D36)
MAX_WEBSOCKET_CONNECTIONS: Final = 5  # authenticated sockets at once (D23)
MAX_MESSAGE_SIZE_MB: Final = 10  # HTTP body, WebSocket message, file content
HOOK_TIMEOUT_SECONDS: Final = 30  # what /info promises a hook producer
TIMESTAMP_SKEW_SECONDS: Final = 300  # either side of the server's clock
HEARTBEAT_INTERVAL_SECONDS: Final = 15
PONG_WAIT_SECONDS: Final = 10  # after it a client reconnects (also in D27)
RECONNECT_DELAYS_SECONDS: Final = (1, 2, 5, 10, 30)  # a client's waits; the last one repeats
SESSION_GRACE_SECONDS: Final = 300
REPLAY_BUFFER_BYTES: Final = 100_000  # a bridge-run session's stream (D30)
REPLAY_BUFFER_SECONDS: Final = 30 * 60
FILE_TREE_DEPTH: Final = 3
FILE_READ_LINES: Final = 2000  # lines of one file_read that names no limit (D11)
FILE_TREE_MAX_DEPTH: Final = 20  # deeper asks for more than a phone can show
FILE_TREE_MAX_ENTRIES: Final = 20_000  # one answer stays of a size that a phone can take
FILE_SCAN_MAX_ENTRIES: Final = 5 * FILE_TREE_MAX_ENTRIES  # names read for one answer
FILE_BINARY_MAX_BYTES: Final = 5 * MB  # file_read of a binary file (D11)
FILE_PATH_MAX_BYTES: Final = 4096  # what operating systems take
FILE_LINKS_MAX: Final = 40  # links followed for one path, as Linux does it
FILE_STEPS_MAX: Final = 10_000  # names walked for one path
FILE_SEARCH_PATHS: Final = 50  # in one file_search_response (D69)
FILE_SEARCH_SECONDS: Final = 0.3  # to look for them; what was found by then is the answer
FILE_IGNORED_SECONDS: Final = 10.0  # what git ignores counts so long for the next search
FILE_SEARCH_QUERY_CHARS: Final = 1000  # longer than any path that one types
FILE_READERS: Final = 4  # HTTP requests about files worked on at once
DISK_THREADS_HUNG: Final = 2  # at once on one mount, of files and git; one that hangs keeps them
DISK_HUNG_SECONDS: Final = 10.0  # without a sign of progress, then a mount counts as hung
BRANCH_SECONDS: Final = 2.0  # to find the branch that session_ready shows
REAL_PATH_SECONDS: Final = 0.5  # to find where a path leads; everything waits meanwhile
FILE_ANSWERS: Final = 8  # at once over HTTP: each may hold MAX_MESSAGE_SIZE_MB
FILE_ANSWER_SECONDS: Final = 60.0  # to send one while others wait; after that it is cut
GIT_PROCESSES: Final = 4  # git requests worked on at once; the others wait
GIT_READ_SECONDS: Final = 30.0  # for one call of git that reads; after that a person has given up
GIT_CHECK_SECONDS: Final = 1.0  # then FIFOs that block git are looked for; most calls take less
GIT_COMMIT_SECONDS: Final = 120.0  # for a commit with its hooks, which may lint and test
GIT_PUSH_SECONDS: Final = 300.0  # for a push with its hook, over a slow line
GIT_PUSH_LISTED: Final = 100  # commits named in a git_push_response
GIT_LOCK_SECONDS: Final = 5.0  # to wait for another git that writes the same index
GIT_END_SECONDS: Final = 2.0  # between asking git to end and ending it
GIT_LIST_MAX_BYTES: Final = 32 * MB  # names that one call of git may list
GIT_CONFIG_MAX_BYTES: Final = MB  # a repository's configuration; real ones have a few kilobytes
GIT_INDEX_MAX_BYTES: Final = 512 * MB  # copied before it is read; 10,000 files take about 1 MB
GIT_CHANGES_MAX: Final = 20_000  # in one status, as many as entries in one tree
GIT_SUBMODULES_MAX: Final = 50  # looked into for one status; each costs a few calls of git
GIT_COUNT_MAX_BYTES: Final = 16 * MB  # of untracked files, read to count their lines
GIT_COUNT_MAX_FILES: Final = 2000
GIT_ENCODED_BYTES: Final = MB  # of each side of a file in UTF-16 that is compared
GIT_ENCODED_FILES: Final = 20  # git is asked for each side of each
GIT_DIFF_MAX_BYTES: Final = 8 * MB  # of one git_diff_response, which must also fit in a message
GIT_DIFF_MAX_LINES: Final = 100_000  # each costs memory by the hundred bytes, however short it is
GIT_PATCH_MAX_BYTES: Final = 16 * MB  # read from git for them
GIT_BIG_FILE_BYTES: Final = 32 * MB  # larger files are not compared by line: that takes gigabytes
GIT_REASON_MAX_CHARS: Final = 2000  # of what git or a hook says, in an error's message
GIT_PATHSPECS_MAX: Final = 100  # names given to git to look for: each file takes each of them
ACKNOWLEDGED_WARNING_SECONDS: Final = 8 * 3600  # "8h" (D24)
CIRCUIT_BREAKER_FAILURES: Final = 5
CIRCUIT_BREAKER_PROBE_SECONDS: Final = 60
TOOL_TIMEOUT_BASH_SECONDS: Final = 300.0

# -- rates, as django-ratelimit writes them (D17) --------------------------------------------------
RATES: Final[dict[str, str]] = {
    "status": "60/m",  # /health and /info
    "documents": "60/m",  # /metrics, /schema, /asyncapi: scraping them refuses no /health
    "hooks.event": "120/m",
    "hooks.batch": "10/m",
    "sessions": "30/m",
    "attachments": "30/m",  # uploads (D70)
    "attachments.get": "300/m",  # a chat with many pictures
    "files": "60/m",
    "push": "30/m",  # receipts and renewals
    "ws": "30/m",  # upgrades, for each address
    "pair": "30/m",  # the pairing page, for each address
    "admin": "10/m",
    "admin.login": "10/m",  # tries at the admin site's log-in, for each address (D16)
    "failed-auth": "10/m",  # D16, for each address (IPv6: for each /64)
    "ws.messages": "1200/m",  # for each connection: a client's queue of 1,000 can be flushed
}

# -- the log (D26 to D32) --------------------------------------------------------------------------
HISTORY_DAYS: Final = 30
SEARCH_HITS: Final = 50  # in one session_search_response
SEARCH_QUERY_CHARS: Final = 1_000
SEARCH_TEXT_CHARS: Final = 50_000  # of a prompt or an answer that is searched
REPLAY_PAGE_ROWS: Final = 200  # in one answer, of those before a message (D73)
UNASKED_SECONDS: Final = 24 * 3600  # older rows are only sent to who asks for them (D73)
QUEUE_MAX_MESSAGES: Final = 10_000  # for each session
QUEUE_MAX_SESSION_BYTES: Final = 256 * MB
QUEUE_MAX_TOTAL_BYTES: Final = 2048 * MB
PAGE_ROWS: Final = 200  # rows read from the log at once
PAGE_BYTES: Final = 256 * 1024  # read from the log at once
BATCH_MAX_EVENTS: Final = 500  # D32
EVENT_ID_MEMORY_SECONDS: Final = 24 * 3600  # D31
SET_CLOCK_BELIEVED_SECONDS: Final = 24 * 3600  # then a clock set forward is believed (D30)
JSON_MAX_DEPTH: Final = 100  # D8
SESSION_ID_MAX_CHARS: Final = 256  # an index entry must hold it; real ids are UUIDs
TITLE_MAX_CHARS: Final = 120
RECENT_EVENTS: Final = 20  # D35
OPEN_CALLS_SHOWN: Final = 20  # of a turn, the newest; `doing` is one of them (D54)
OBSERVED_IDLE_SECONDS: Final = 24 * 3600  # without an event an observed session is closed (D34)
QUIET_SECONDS: Final = 300  # without a sign while it works or waits: `quiet_since` (D65)
TURN_END_SECONDS: Final = 10  # of silence end a turn that a Stop hook may have continued (D65)
TERMINAL_CHECK_SECONDS: Final = 2  # between looks at what agents in terminals do (D65)
PROCESS_CHECK_SECONDS: Final = 10  # between looks whether their processes live; two decide (D65)
HOOK_CHECK_SECONDS: Final = 0.25  # between looks at hooks that wait for an answer (D66)
HOOK_ANSWER_SECONDS: Final = 1.0  # within which such a hook takes the answer
HOOK_OUTCOME_SECONDS: Final = 10.0  # of silence: nothing shows who answered first (D66)
AWAY_SECONDS: Final = 12 * 3600  # then the owner counts as back (D66)
AWAY_MARK_SECONDS: Final = 60  # between signs that the bridge lives, to hooks that nobody sees
PROCESSES_KEPT: Final = 10  # of a session, the newest (D65)
PROGRAM_END_SECONDS: Final = 10.0  # for a terminal's program to end when it is told to (D67)
TRANSCRIPT_SECONDS: Final = 3.0  # for a program to write what was just said into it (D67)
INTERRUPTED_SECONDS: Final = 1.0  # for an agent to stop its turn before it is ended (D67)
HISTORY_SESSIONS: Final = 100  # in one history_list_response
HISTORY_PLACES: Final = 50  # where an agent looks that lists one directory at a time (D67)
IDLE_SESSION_FOLD_SECONDS: Final = 3600  # older idle observed sessions are folded (D65)
IDLE_SESSIONS_SHOWN: Final = 20  # of those, the newest
REQUEST_MEMORY_SECONDS: Final = 600  # a repeated client message is only answered again (D31)
REQUEST_POLL_SECONDS: Final = 0.1
TOOL_CALL_KEEP_SECONDS: Final = 24 * 3600  # without an approval
RESUMABLE_SESSION_KEEP_SECONDS: Final = 30 * 24 * 3600  # as long as agents keep theirs (D60)

# -- sockets (D21 to D30) --------------------------------------------------------------------------
AUTH_WAIT_SECONDS: Final = 10
LIVENESS_SECONDS: Final = 45  # three heartbeats
SLOW_SOCKET_SECONDS: Final = 30  # no byte taken for this long while something waits: close 4413
SOCKET_BUFFER_BYTES: Final = 256 * 1024  # above this the log is not read on for that socket
LEASE_SECONDS: Final = 15  # a killed process's rows stop counting (D46)
LEASE_RENEWAL_SECONDS: Final = 5
SERVE_LOCK_SECONDS: Final = 0.3  # a start waits for commands that test the lock, not for a bridge
POLL_SECONDS: Final = 0.5  # between polls for revocations, and for rows not notified of (D15)
SESSION_UPDATE_SECONDS: Final = 1.0  # between two session_update of one session (D54)
QUIET_UPDATE_SECONDS: Final = 4  # the same while the log does not grow: a quiet pause, a resume
QUEUED_BYTES: Final = MB  # of requests behind a slow one; above it the socket is not read
ACK_MAX_IDS: Final = 20_000  # in one notification_ack; twice a session's default rows
REDIS_SECONDS: Final = 2.0  # how long the channel layer may take before it counts as away
REDIS_RETRY_SECONDS: Final = 1.0
CLIENT_MESSAGE_ID_MAX_CHARS: Final = 128  # D4
CLOCK_SKEW_WARNING_SECONDS: Final = 300  # D25

# -- devices and tokens (D15, D16, D43) ------------------------------------------------------------
MIN_TOKEN_CHARS: Final = 32
PAIRING_TTL_SECONDS: Final = 600
VOID_DEVICE_KEEP_SECONDS: Final = 24 * 3600  # listed after its unused code became void
DEVICE_ID_MAX_CHARS: Final = 256  # a column must hold it; real ones are UUIDs

# -- push (D56) ------------------------------------------------------------------------------------
PUSH_PROOF_SECONDS: Final = 20.0  # then an unproven row is pushed: a frozen phone looks alive
PUSH_ANSWER_SECONDS: Final = 10.0  # to connect to a push service, and again for its answer
PUSH_TEST_SECONDS: Final = 15.0  # for the answer to push_test, looking up the name included
PUSH_CLAIM_SECONDS: Final = 60  # after which another process sends what one had begun
PUSH_RETRY_SECONDS: Final = 5  # before the second try; doubled with each, or as the service asks
PUSH_RETRY_MAX_SECONDS: Final = 3600
PUSH_NEWS_SECONDS: Final = 3600  # older rows are no news, but for an approval that still waits
PUSH_TTL_SECONDS: Final = 24 * 3600  # a push service keeps it so long for a phone that is off
PUSH_BYTES: Final = 3000  # of a push before it is encrypted; services take 4,096 encrypted
PUSH_ANSWER_BYTES: Final = 16 * 1024  # read of a push service's answer, its head included
PUSH_ENDPOINT_MAX_CHARS: Final = 2048  # real ones have under 500
PUSH_SENDERS: Final = 8  # pushes that are being sent at once
PUSH_SENDERS_A_HOST: Final = 2  # of one push service: others do not wait for one that is silent
NOTIFY_MUTED_MAX: Final = 500  # sessions that a device has muted
REMINDERS: Final = 3  # pushes about an approval that still waits, after the first
HELD_CHECK_SECONDS: Final = 10.0  # between looks for reminders, and for the end of quiet hours
NOTIFY_SECONDS: Final = 10.0  # for an address of BRIDGE_NOTIFY_URLS to take a message
NOTIFY_TRIES: Final = 4  # of a message at such an address, with PUSH_RETRY_SECONDS and so on
PUSH_REQUEST_SENDERS: Final = 4  # test pushes and look-ups of names, for which a device waits

# -- the admin site (D16) ------------------------------------------------------------------------
PASSWORDS_WAITING: Final = 2  # to be checked, beside the one that is: each holds one of 8 threads
ADMIN_FORM_BYTES: Final = 64 * 1024  # of a form's body; real ones have a few kilobytes

# -- agents that the bridge runs (D35 to D41) ------------------------------------------------------
AGENT_START_SECONDS: Final = 60.0  # until an agent takes prompts; a new one from npm takes half
AGENT_VERSION_SECONDS: Final = 5.0  # for a program to say its version (D75)
AGENT_VERSION_AGAIN_SECONDS: Final = 300.0  # after which one that could not is asked again
AGENT_CLOSE_SECONDS: Final = 3.0  # for an agent to end when told
AGENT_IDLE_SECONDS: Final = 30 * 60  # without a turn, after which a session is paused (D35)
AGENT_EVENTS_WAITING: Final = 1000  # that an agent may be ahead of the log
AGENT_CHARS_WAITING: Final = 4 * MB  # of text in them; one message more may come
AGENT_PROMPTS_WAITING: Final = 1000  # of one session: what a client may have queued while away
AGENT_PROMPTS_CHARS: Final = 64 * MB  # all of them together, unless one alone is longer
AGENT_HISTORY_FILE_BYTES: Final = 64 * MB  # of its transcript, read whole; most have under 10 MB
AGENT_HISTORY_CHARS: Final = 200_000  # kept of what an agent tells when it loads a session
AGENT_REASON_MAX_CHARS: Final = 2000  # of why an agent failed
TURN_SILENCE_SECONDS: Final = 60.0  # a turn silent for so long is reported to all, priority low
MODEL_RETRY_SECONDS: Final = 10.0  # between notifications that an agent retries its model
INTERRUPT_SECONDS: Final = 5.0  # an agent that does not yield by then is ended (D40)
STREAM_COALESCE_SECONDS: Final = 0.05  # between two writes of what one agent says
STREAM_CHUNK_CHARS: Final = 16_000  # of whatever script, a stream_chunk fits into a replay_buffer
LATER_MAX_SECONDS: Final = 7 * 86_400  # that a message may wait for its time
LATER_CHECK_SECONDS: Final = 2.0  # between two looks at those whose time may have come
LATER_LATE_SECONDS: Final = 60  # after which its sender is told that it was sent late
LATER_RETRY_SECONDS: Final = 60  # between two tries to resume its session
LATER_RETRIES_SECONDS: Final = 3600  # that they go on
WITHDRAWAL_KEEP_SECONDS: Final = 3600  # of a message that has not come yet
COMMAND_KEEP_SECONDS: Final = 24 * 3600  # of taken ones, to investigate failures
TOOL_OUTPUT_BYTES: Final = 256 * 1024  # of what a tool gave, in one tool_result
ATTACHMENT_BYTES: Final = MAX_MESSAGE_SIZE_MB * MB  # of one picture or file (D70)
ATTACHMENTS_SESSION_BYTES: Final = 256 * MB  # of a session; then the oldest go
ATTACHMENTS_TOTAL_BYTES: Final = 2048 * MB
ATTACHMENTS_A_MESSAGE: Final = 10
PICTURE_BYTES: Final = 3_750_000  # that a model is given as one: in base64 5 MB, as most take
ATTACHMENT_NAME_BYTES: Final = 255  # what file systems take
PICTURE_PIXELS: Final = 50_000_000  # a larger one is a file like any: drawn, it has 4 bytes a pixel
PICTURE_SIDE_PIXELS: Final = 8000  # models refuse more, and with it each message that follows
ATTACHMENT_LEFTOVER_SECONDS: Final = 3600  # a file without a row was left by a crash, or is new
PICTURE_TEXT_CHARS: Final = 4096  # of base64: a longer picture is named instead (D70)

# -- certificates (D19) ----------------------------------------------------------------------------
LEAF_DAYS: Final = 397  # the longest that phones accept
LEAF_RENEW_BEFORE_DAYS: Final = 30
CA_DAYS: Final = 3650

# -- the server's edge (D9, D19, D30) --------------------------------------------------------------
REQUEST_SECONDS: Final = 60  # for a request to arrive whole, or the next one to begin
# large bodies in memory, of hook events and as much of requests; parsed, up to 30 times that
BODIES_IN_FLIGHT_BYTES: Final = 2 * MAX_MESSAGE_SIZE_MB * MB
SMALL_BODY_BYTES: Final = 64 * 1024  # a larger body is read after its token, and may have to wait
DRAIN_SECONDS: Final = 30  # that a refused client may go on sending, to read why
DRAIN_BYTES: Final = 1024 * MB  # and how much; what is drained is not kept
LINGER_SECONDS: Final = 15  # without a byte leaving a closed connection, then it is reset
HANDSHAKE_SECONDS: Final = 20  # for the application to accept or refuse an upgrade
CLOSE_WAIT_SECONDS: Final = 5  # for the answer to a close frame
STOP_SECONDS: Final = 10  # for requests in flight and open sockets when the bridge stops
EXIT_SECONDS: Final = 5  # after that, for threads that still wait for a database or a disk
PING_SECONDS: Final = 20  # between two protocol pings of the server
INBOUND_BUFFER_BYTES: Final = MB  # not yet handled: above it the socket is not read
DEFLATE_WINDOW_BITS: Final = 13  # D58: 48 KB a socket
DEFLATE_MEMORY_LEVEL: Final = 5
DEFLATE_FRAME_BYTES: Final = 10 * 1024  # inflated, counted as a frame: 10 KB of zeros become 10 MB
DEFLATE_FROM_BYTES: Final = 200  # a heartbeat is sent as it is: compressing it would save nothing
# Connections that have shown no valid token, for one address (IPv6: a /64) and in all. Each costs
# about 40 KB and a file of the 1,024 that a process may often have; a browser opens six.
UNAUTHENTICATED_PER_ADDRESS: Final = 128
UNAUTHENTICATED: Final = 512
ENVELOPE_BYTES: Final = 4096  # of a message, beside the rows, files or lines that it lists
MESSAGE_BEGINNING_BYTES: Final = 4096  # of one that is not read, where its id is looked for
EARLY_BYTES: Final = 128 * 1024  # of a message before `auth`, which has under 2 KB
EARLY_FRAMES: Final = 100  # before then; a client sends one, and perhaps pings
FRAMES_AT_ONCE: Final = 50  # of 30 microseconds, however empty each is; then others have their turn
CERTIFICATE_CHECK_SECONDS: Final = 60  # also the machine's addresses, which the certificate names

# -- the log file: what one client, and all of them, may write into it ----------------------------
LOG_WINDOW_SECONDS: Final = 60.0  # after which the lines that were held back are counted in one
LOG_REFUSALS: Final = 200  # the first of each client and code; with their counts 90 KB a minute
LOG_REQUESTS: Final = 1000  # that were answered well, of all clients; 140 KB a minute
LOG_CLIENT_REQUESTS: Final = 200  # of one client with one status; a device needs fewer

# -- health (D48) ----------------------------------------------------------------------------------
DISK_FREE_MIN_BYTES: Final = 100 * MB
STORAGE_RETRY_SECONDS: Final = 5  # Retry-After of STORAGE_UNAVAILABLE
DATA_FILES_POLL_SECONDS: Final = 1.0  # whether files in use are in place; two checks decide (D46)
FAILURE_REPEAT_SECONDS: Final = 600  # between two alerts of a code: others shall be seen too (D51)

# -- agents' processes, and the calls that they ask the bridge to make (D41) -----------------------
JOINED_SESSIONS: Final = 20  # of the desk's at once, beside MAX_SESSIONS (D80)
JOIN_SECONDS: Final = 5.0  # for the desk's own server to answer
HOST_ALONE_SECONDS: Final = 120  # until a host without a bridge ends its agent (D79)
HOST_KEPT_BYTES: Final = 64 * MB  # of events that are not stored; then it reads no more
HOST_FRAME_BYTES: Final = 512 * MB  # of one message on its socket: a prompt with its pictures
HOST_ANSWER_SECONDS: Final = 5.0  # for a host, or a bridge, to say who it is
HOST_CLOSE_SECONDS: Final = 10.0  # for its agent to end; what is left then is ended by the guards
HOST_ACTIVITY_SECONDS: Final = 2.0  # between two signs of life that are no events
AGENT_END_SECONDS: Final = 2.0  # between asking an agent to end and ending it
AGENT_LINE_BYTES: Final = 256 * 1024  # of an agent's output read ahead; a line may be longer
AGENT_MESSAGE_BYTES: Final = 32 * MB  # a file of MAX_MESSAGE_SIZE_MB in JSON is shorter
AGENT_QUESTIONS_WAITING: Final = 100  # that one agent may ask at a time: each phone gets them all
AGENT_CALL_BYTES: Final = 4 * MB  # of a call's parameters; nobody is asked about more
AGENT_OPTIONS: Final = 200  # of a call, among which a person chooses; of a session, its choices
AGENT_COMMANDS: Final = 200  # that a device is told of
AGENT_OPTION_SECONDS: Final = 5.0  # for an agent to take the choice of an option (D69)
AGENT_DESCRIPTION_CHARS: Final = 500  # of a choice or a command
AGENT_OPTION_NAME_CHARS: Final = 200
RULES: Final = 50  # of a session (D68)
RULE_SECONDS: Final = 2.0  # to look at the files that a call names; then it asks
REJECTION_REASON_CHARS: Final = 2000  # what an agent is told when its call is refused
AGENT_NOISE_LINES: Final = 1000  # in a row that are no message: then what runs is no agent
AGENT_STDERR_CHARS: Final = 2000  # of an agent's last words, when it has ended by itself
CLAUDE_MEMORY_FILE_BYTES: Final = 64 * 1024  # of each memory file (D57)
CLAUDE_MEMORY_BYTES: Final = 256 * 1024  # of all of them, which is a third of a small context
CLAUDE_RULES: Final = 1000  # entries of .claude/rules that are looked at
ACP_QUIET_SECONDS: Final = 0.3  # without an update: a loaded session's history has been told
ACP_HISTORY_SECONDS: Final = 10.0  # to tell it at most
ACP_LIST_SECONDS: Final = 40.0  # to start and list its sessions (D67); a busy machine needs half
ACP_LIST_SESSIONS: Final = 10_000  # taken of them
ACP_LIST_KEPT_SECONDS: Final = 30.0  # for which the list is not asked for again
ACP_LIST_AGAIN_SECONDS: Final = 3.0  # for an id that it lacks
ACP_OWN_TURN_SECONDS: Final = 2.0  # without an update: a turn that it began itself is over (D76)
ACP_REFUSAL_SECONDS: Final = 1.0  # in which an agent refuses a message if it is busy (D71)
ACP_BUSY_SECONDS: Final = 5.0  # after which a message that it had no time for is given again (D71)
ACP_BUSY_MAX_SECONDS: Final = 600.0  # after which that is refused
ACP_MODE_SECONDS: Final = 5.0  # for an agent to be back in the mode in which it asks (D59)
ACP_MODE_RETURNS: Final = 3  # in one turn that it is set back; if it leaves it again, it must stop
