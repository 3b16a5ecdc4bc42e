// Made by `python manage.py generate_docs` from `bridge_project/protocol/`: edit that.
// Only the type checker reads it; it is not served.

declare namespace Wire {
  /** Fields that an agent, a tool or a code decides. */
  type Free = Record<string, any>;

  interface AgentInfo {
    name: string;
    can_start: boolean;
    can_modify: boolean;
    steers: boolean;
    asks?: boolean;
    version?: string;
    reason?: string;
    history?: string;
  }

  interface ApprovalOption {
    id: string;
    name: string;
    kind: "allow_once" | "reject_once";
  }

  interface Continue {
    how: "join" | "answer" | "take_over" | null;
    reason: string;
    ends: boolean;
  }

  interface DiffFile {
    path: string;
    old_path: string;
    new_path: string;
    status: "modified" | "added" | "deleted" | "untracked" | "renamed";
    additions: number;
    deletions: number;
    hunks: DiffHunk[];
    old_mode?: string;
    new_mode?: string;
    binary?: boolean;
    truncated?: boolean;
    counted?: boolean;
    filtered?: boolean;
    charset?: string;
  }

  interface DiffHunk {
    header: string;
    old_start: number;
    old_lines: number;
    new_start: number;
    new_lines: number;
    lines: DiffLine[];
  }

  interface DiffLine {
    type: "context" | "added" | "removed";
    content: string;
    no_newline?: boolean;
  }

  interface DirectoryEntry {
    name: string;
    type: "file" | "directory";
    size?: number;
  }

  interface Doing {
    tool: string;
    summary: string;
    since: string;
  }

  interface FileTree {
    path: string;
    entries: TreeEntry[];
    truncated?: true;
    more?: number;
  }

  interface GitChange {
    path: string;
    status: "modified" | "added" | "deleted" | "untracked" | "renamed";
    additions: number;
    deletions: number;
    conflicted: boolean;
    staged: boolean;
    counted: boolean;
    filtered?: boolean;
  }

  interface GitCommitName {
    hash: string;
    summary: string;
  }

  interface GitCommitSummary {
    hash: string;
    summary: string;
    files_changed: number;
    additions: number;
    deletions: number;
    also?: string[];
    note?: string;
  }

  interface GitUpstream {
    remote: string;
    branch: string;
    url: string;
    gone?: boolean;
  }

  interface HealthChecks {
    tls_valid: boolean;
    clock_sync: boolean;
    version_compatible: boolean;
    token_permissions: boolean;
  }

  interface LastPush {
    service: string;
    at: string;
    problem?: string;
    shown_at?: string;
  }

  interface Notify {
    kinds:
      | ("approval_required"
        | "approval_decided"
        | "task_complete"
        | "error"
        | "agent_idle"
        | "agent_notification")[];
    muted: string[];
    reminder_minutes: number;
    quiet: QuietHours | null;
    detail: "quiet" | "full";
  }

  interface PastSession {
    agent: string;
    session_id: string;
    title: string;
    working_directory: string;
    last_activity_at: string;
    live: boolean;
    shared: boolean;
  }

  interface Picture {
    type: "image";
    attachment_id: string;
    media_type: string;
    size: number;
  }

  interface Presence {
    away: boolean;
    device: string | null;
    since: string;
  }

  interface PushKeys {
    p256dh: string;
    auth: string;
  }

  interface PushOffer {
    public_key: string;
  }

  interface PushSubscription {
    endpoint: string;
    keys: PushKeys;
  }

  interface QuietHours {
    from: string;
    to: string;
    zone: string;
  }

  interface RecentEvent {
    type: string;
    timestamp: string;
    tool?: string;
  }

  interface RuleOffer {
    id: string;
    label: string;
    covers: string;
    not: string;
  }

  interface RuleUse {
    id: string;
    label: string;
    device: string;
    since: string;
  }

  interface SearchHit {
    session_id: string;
    title: string;
    message_id?: string;
    at: string;
    where: "title" | "directory" | "prompt" | "answer";
    excerpt: string;
  }

  interface Session {
    kind: "observed" | "bridge";
    session_status: "created" | "active" | "paused" | "closed" | "error";
    turn: "idle" | "working" | "waiting";
    doing: Doing | null;
    pending_approvals: number;
    resumable: boolean;
    last_activity_at: string;
    quiet_since: string | null;
    rules: SessionRule[];
    usage: Usage | null;
    pinned: boolean;
    archived: boolean;
    shared: boolean;
    asks: boolean | null;
    continue: Continue;
    id: string;
    agent_type: string;
    title: string;
    working_directory: string;
    status: "created" | "active" | "paused" | "closed" | "error";
    created_at: string;
    websocket_connected: boolean;
    hook_count: number;
    recent_events?: RecentEvent[];
  }

  interface SessionChoice {
    value: string;
    name: string;
    description: string;
  }

  interface SessionCommand {
    name: string;
    description: string;
    hint: string;
  }

  interface SessionInfo {
    kind: "observed" | "bridge";
    session_status: "created" | "active" | "paused" | "closed" | "error";
    turn: "idle" | "working" | "waiting";
    doing: Doing | null;
    pending_approvals: number;
    resumable: boolean;
    last_activity_at: string;
    quiet_since: string | null;
    rules: SessionRule[];
    usage: Usage | null;
    pinned: boolean;
    archived: boolean;
    shared: boolean;
    asks: boolean | null;
    continue: Continue;
    session_id: string;
    agent: string;
    title: string;
    working_directory?: string;
  }

  interface SessionList {
    sessions: Session[];
    total: number;
  }

  interface SessionOption {
    id: string;
    name: string;
    kind: "model" | "effort" | "plan" | "other";
    value: string;
    choices: SessionChoice[];
  }

  interface SessionRule {
    id: string;
    label: string;
    device: string;
    since: string;
    used: number;
  }

  interface SubAgent {
    id: string;
    type: string;
  }

  interface ToolErrorDetails {
    exit_code?: number;
    stderr?: string;
    stdout?: string;
    execution_time_ms?: number;
  }

  interface ToolOutcome {
    success: boolean;
    content: string;
    diff?: any;
    metadata?: Free;
    error?: string;
    duration_ms?: number;
    pictures?: Picture[];
  }

  interface TreeEntry {
    name: string;
    type: "file" | "directory";
    size?: number;
    modified_at?: string;
    children?: TreeEntry[];
    truncated?: true;
    more?: number;
  }

  interface Usage {
    context_tokens?: number;
    context_window?: number;
    cost_usd?: number;
    limits?: UsageLimit[];
  }

  interface UsageLimit {
    name: string;
    status: "ok" | "near" | "reached";
    used?: number;
    resets_at?: string;
  }

  interface Violation {
    field: string;
    constraint: string;
    received: string;
  }

  /** What a client may send: type → payload. */
  interface Requests {
    auth: {
      token: string;
      client_version: string;
      platform: "ios" | "android" | "web";
      device_id?: string | null;
    };
    health_check: {
      timestamp: string;
      client_nonce: string;
      client_capabilities: string[];
    };
    acknowledge_warning: {
      warning_code: string;
      acknowledged: boolean;
      acknowledged_at: string;
    };
    heartbeat_ping: {};
    session_start: {
      agent: string;
      session_id?: string | null;
      working_directory: string;
      resume: boolean;
      take_over?: true | "end_terminal" | null;
      worktree?: string | null;
      trust?: string | null;
    };
    session_end: {
      session_id: string;
      reason: "user_request" | "timeout" | "error" | "completed";
      give_back?: boolean | null;
      title?: string | null;
    };
    history_list: {
      agent: string;
      directory?: string | null;
      query?: string | null;
      limit?: number;
      before?: string | null;
    };
    session_search: {
      query: string;
      limit?: number;
      before?: string | null;
    };
    session_edit: {
      session_id: string;
      title?: string | null;
      pinned?: boolean | null;
      archived?: boolean | null;
    };
    message: {
      session_id: string;
      content: string;
      role: "user";
      attachments?: string[] | null;
      not_before?: string | null;
      when?: "later" | "now" | null;
    };
    message_withdraw: {
      session_id: string;
      message_id: string;
    };
    session_interrupt: {
      session_id: string;
    };
    approval_response: {
      session_id: string;
      tool_call_id: string;
      decision: "approved" | "rejected" | "modified";
      modifications?: Free | null;
      option_id?: string | null;
      reason?: string | null;
      remember?: string | null;
    };
    session_set: {
      session_id: string;
      option_id: string;
      value: string;
    };
    rule_remove: {
      session_id: string;
      rule_id: string;
    };
    presence_set: {
      away: boolean;
    };
    git_status_request: {
      session_id: string;
    };
    git_commit: {
      session_id: string;
      message: string;
      files?: string[] | null;
      repository?: string | null;
      head?: string | null;
      trust?: string | null;
    };
    git_push: {
      session_id: string;
      repository?: string | null;
      head?: string | null;
      branch?: string | null;
      url?: string | null;
      set_upstream?: boolean;
      dry_run?: boolean;
      trust?: string | null;
    };
    git_diff: {
      session_id: string;
      files?: string[] | null;
      cached: boolean;
    };
    file_list: {
      session_id: string;
      path: string;
    };
    file_read: {
      session_id: string;
      path: string;
      offset?: number;
      limit?: number;
    };
    file_search: {
      session_id: string;
      query: string;
      limit?: number;
    };
    notification_ack: {
      notification_ids: string[];
    };
    replay_request: {
      session_id: string;
      after_id?: string | null;
      before_id?: string | null;
      since?: string | null;
      limit?: number | null;
    };
    push_subscribe: {
      subscription: PushSubscription;
      detail?: "quiet" | "full";
    };
    push_unsubscribe: {};
    push_test: {};
    notify_set: {
      kinds?:
        | ("approval_required"
          | "approval_decided"
          | "task_complete"
          | "error"
          | "agent_idle"
          | "agent_notification")[]
        | null;
      muted?: string[] | null;
      reminder_minutes?: number | null;
      quiet?: QuietHours | null;
      detail?: "quiet" | "full" | null;
    };
  }

  /** What the bridge sends: type → payload. */
  interface Payloads {
    connection_ack: {
      server_version: string;
      supported_agents: string[];
      connection_mode:
        | "local_only"
        | "private_network"
        | "secure_remote"
        | "direct_public"
        | "misconfigured";
      connection_mode_description: string;
      bridge_url: string;
      requires_health_verification: boolean;
      active_sessions: SessionInfo[];
      idle_sessions: number;
      device_name?: string;
      device_token?: string;
      push?: PushOffer;
      notify?: Notify;
      presence?: Presence;
    };
    connection_error: {
      code: string;
      message: string;
      documentation_url?: string;
      remediation?: string;
      details?: Free;
    };
    health_status: {
      status: "healthy" | "warning";
      connection_mode:
        | "local_only"
        | "private_network"
        | "secure_remote"
        | "direct_public"
        | "misconfigured";
      warnings: string[];
      warning_details: Free;
      checks: HealthChecks;
      server_timestamp: string;
      latency_ms: number;
      ready: boolean;
      requires_acknowledgment: boolean;
    };
    acknowledgment_accepted: {
      warning_code: string;
      ready: boolean;
      session_timeout: string;
    };
    heartbeat_pong: {};
    session_ready: {
      session_id: string;
      agent: string;
      working_directory: string;
      branch: string;
      status: "ready";
      session_status: "created" | "active" | "paused" | "closed" | "error";
      asks: boolean | null;
      resume_command?: string;
      options?: SessionOption[];
      commands?: SessionCommand[];
    };
    session_end: {
      session_id: string;
      reason: "user_request" | "timeout" | "error" | "completed";
      give_back?: boolean;
      title?: string;
    };
    session_update: {
      session: SessionInfo;
    };
    history_list_response: {
      sessions: PastSession[];
      more: boolean;
      note?: string;
    };
    session_search_response: {
      hits: SearchHit[];
      more: boolean;
    };
    stream_start: {
      session_id: string;
      message_id: string;
    };
    stream_chunk: {
      session_id: string;
      message_id: string;
      content: string;
      is_tool_use: boolean;
      pictures?: Picture[];
    };
    stream_end: {
      session_id: string;
      message_id: string;
      finish_reason: "stop" | "tool_call" | "length" | "error";
      usage?: Free;
      interrupted?: boolean;
    };
    message_state: {
      session_id: string;
      message_id: string;
      state: "queued" | "given" | "withdrawn" | "refused";
    };
    approval_recorded: {
      session_id: string;
      tool_call_id: string;
      decision: "approved" | "rejected" | "modified";
      forwarded: boolean;
      decided_at: string;
    };
    session_options: {
      session_id: string;
      options: SessionOption[];
      commands: SessionCommand[];
    };
    presence_state: {
      away: boolean;
      device: string | null;
      since: string;
    };
    git_status_response: {
      session_id: string;
      branch: string;
      ahead: number;
      behind: number;
      repository: string;
      head: string | null;
      upstream: GitUpstream | null;
      state: "merge" | "rebase" | "am" | "cherry-pick" | "revert" | "bisect" | null;
      is_clean: boolean;
      changes: GitChange[];
      commit?: GitCommitSummary;
      truncated?: boolean;
    };
    git_push_response: {
      session_id: string;
      remote: string;
      branch: string;
      url: string;
      commits: GitCommitName[];
      count: number;
      links: string[];
      pushed: boolean;
    };
    git_diff_response: {
      session_id: string;
      files: DiffFile[];
      truncated?: boolean;
    };
    file_list_response: {
      session_id: string;
      path: string;
      entries: DirectoryEntry[];
      truncated?: true;
      more?: number;
    };
    file_read_response: {
      session_id: string;
      path: string;
      content: string;
      size: number;
      lines: number;
      encoding: "utf-8" | "base64";
      text?: string;
      charset?: string;
    };
    file_search_response: {
      session_id: string;
      paths: string[];
      more: boolean;
    };
    replay_buffer: {
      session_id: string;
      messages: Free[];
      complete: boolean;
      source?: "agent";
      older?: true;
    };
    push_state: {
      subscribed: boolean;
      detail: "quiet" | "full" | null;
      problem?: string;
      last?: LastPush;
    };
    notify_state: {
      kinds:
        | ("approval_required"
          | "approval_decided"
          | "task_complete"
          | "error"
          | "agent_idle"
          | "agent_notification")[];
      muted: string[];
      reminder_minutes: number;
      quiet: QuietHours | null;
      detail: "quiet" | "full";
    };
    session_started: {
      session_id: string;
      session?: SessionInfo;
    };
    tool_call: {
      session_id: string;
      tool_call_id: string;
      tool: string;
      params: Free;
      description: string;
      agent?: SubAgent;
      decided_by?: "device" | "agent" | "bridge" | "rule";
      rule?: RuleUse;
    };
    approval_required: {
      session_id: string;
      tool_call_id: string;
      tool: string;
      params: Free;
      description: string;
      risk_level: "low" | "medium" | "high" | "critical";
      source: "hooks" | "agent_sdk";
      reasoning?: string;
      agent?: SubAgent;
      changed?: boolean;
      decision?: "approved" | "rejected" | "modified";
      decided_at?: string;
      decided_by?: "device" | "agent" | "bridge" | "rule";
      modifications?: Free;
      options?: ApprovalOption[];
      option_id?: string;
      remember?: RuleOffer[];
      remembered?: string;
      answerable?: boolean;
      outcome?: "taken" | "desk_first" | "not_confirmed";
    };
    approval_state: {
      session_id: string;
      tool_call_id: string;
      answerable: boolean;
    };
    tool_result: {
      session_id: string;
      tool_call_id: string;
      tool: string;
      result: ToolOutcome;
      agent?: SubAgent;
      changed?: boolean;
      params?: Free;
    };
    tool_error: {
      session_id: string;
      tool_call_id: string;
      tool: string;
      code: "TOOL_EXECUTION_FAILED" | "TOOL_TIMEOUT";
      message: string;
      details: ToolErrorDetails;
      retryable: boolean;
      max_retries: number;
    };
    agent_event: {
      event:
        | "SessionStart"
        | "SessionEnd"
        | "PreToolUse"
        | "PostToolUse"
        | "UserPromptSubmit"
        | "Stop"
        | "SubagentStop"
        | "PreCompact"
        | "Notification";
      event_type:
        | "SessionStart"
        | "SessionEnd"
        | "PreToolUse"
        | "PostToolUse"
        | "UserPromptSubmit"
        | "Stop"
        | "SubagentStop"
        | "PreCompact"
        | "Notification";
      event_id: string;
      session_id: string;
      timestamp: string;
      payload: Free;
    };
    notification: {
      notification_id: string;
      session_id: string | null;
      notification_type:
        | "approval_required"
        | "approval_decided"
        | "task_complete"
        | "error"
        | "agent_idle"
        | "agent_notification";
      title: string;
      body: string;
      priority: "low" | "normal" | "high";
      data: Free;
    };
    error: {
      code: string;
      message: string;
      session_id: string | null;
      recoverable: boolean;
      violations?: Violation[];
      details?: Free;
    };
  }

  /** Request → its answers. */
  interface Replies {
    auth: "connection_ack" | "connection_error";
    health_check: "health_status";
    acknowledge_warning: "acknowledgment_accepted";
    heartbeat_ping: "heartbeat_pong";
    session_start: "session_ready";
    session_end: "session_update";
    history_list: "history_list_response";
    session_search: "session_search_response";
    session_edit: "session_update";
    message: "stream_start" | "stream_chunk" | "stream_end";
    message_withdraw: "message_state";
    session_interrupt: "stream_end";
    approval_response: "approval_recorded";
    session_set: "session_options";
    rule_remove: "session_update";
    presence_set: "presence_state";
    git_status_request: "git_status_response";
    git_commit: "git_status_response";
    git_push: "git_push_response";
    git_diff: "git_diff_response";
    file_list: "file_list_response";
    file_read: "file_read_response";
    file_search: "file_search_response";
    replay_request: "replay_buffer";
    push_subscribe: "push_state";
    push_unsubscribe: "push_state";
    push_test: "push_state";
    notify_set: "notify_state";
  }

  /** Types of the log's rows. */
  type Row =
    | "session_end"
    | "session_started"
    | "message_state"
    | "stream_start"
    | "stream_chunk"
    | "stream_end"
    | "tool_call"
    | "approval_required"
    | "approval_state"
    | "presence_state"
    | "tool_result"
    | "tool_error"
    | "agent_event"
    | "notification"
    | "error";

  interface Envelope<T extends keyof Payloads> {
    type: T;
    id: string;
    timestamp: string;
    payload: Payloads[T];
  }
  /** A message from the bridge; a heartbeat comes without id and payload. */
  type Message = { [T in keyof Payloads]: Envelope<T> }[keyof Payloads];
}
