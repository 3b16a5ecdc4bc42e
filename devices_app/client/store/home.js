// What all screens share: sessions and approvals, folded from the bridge's messages. Pure: each
// function returns a new state and changes nothing; a fold over kept rows equals what came live.

/**
 * @typedef {object} Session
 * @property {string} session_id
 * @property {string} agent
 * @property {string} title
 * @property {string} working_directory
 * @property {"observed" | "bridge" | ""} kind
 * @property {string} session_status created, active, paused, closed, error
 * @property {string} turn idle, working, waiting
 * @property {{tool: string, summary: string, since: string} | null} doing
 * @property {number} pending_approvals
 * @property {string} last_activity_at
 * @property {boolean} resumable
 * @property {boolean} unseen it finished or failed while nobody looked
 * @property {string} trouble why it is in error, in words
 */

/**
 * @typedef {object} Approval
 * @property {string} key session and tool call
 * @property {string} row_id the id of its message
 * @property {string} session_id
 * @property {string} tool_call_id
 * @property {string} tool
 * @property {object} params
 * @property {string} description
 * @property {string} risk_level
 * @property {string} source hooks, agent_sdk
 * @property {string} reasoning
 * @property {string} at when it was asked, ISO 8601
 * @property {"open" | "deciding" | "decided"} state
 * @property {string} decision
 * @property {string} by who decided, in words for a person
 * @property {string} decided_at
 * @property {boolean | null} forwarded true: the agent was told; null: not known
 */

export const RISKS = ["low", "medium", "high", "critical"];
const KEPT_DECIDED = 40;

export const emptyHome = () => ({ sessions: {}, approvals: {} });

export const approvalKey = (sessionId, callId) => `${sessionId}\n${callId}`;

const blankSession = (id) => ({
  session_id: id,
  agent: "",
  title: "",
  working_directory: "",
  kind: "",
  session_status: "active",
  turn: "idle",
  doing: null,
  pending_approvals: 0,
  last_activity_at: "",
  resumable: false,
  unseen: false,
  trouble: "",
});

/** Take one message of the bridge into the state; `viewing` is the session on the screen, if any. */
export function reduceHome(home, message, viewing = null) {
  const { type, payload, timestamp } = message;
  switch (type) {
    case "connection_ack":
      return listed(home, payload.active_sessions);
    case "session_update":
      return withSession(home, payload.session, viewing);
    case "session_started":
      return withSession(
        home,
        {
          session_status: "active",
          last_activity_at: timestamp,
          ...payload.session,
          session_id: payload.session_id,
        },
        viewing,
      );
    case "session_ready":
      return withSession(
        home,
        {
          session_id: payload.session_id,
          agent: payload.agent,
          working_directory: payload.working_directory,
          session_status: payload.session_status ?? "active",
          asks: payload.asks,
          branch: payload.branch ?? "",
        },
        viewing,
      );
    case "session_end":
      return ended(home, payload, viewing);
    case "approval_required":
      return asked(home, message);
    case "approval_recorded":
      return decided(home, payload, { by: "you", forwarded: payload.forwarded });
    case "notification":
      return notified(home, message, viewing);
    case "tool_result":
    case "tool_error":
      return ran(home, payload, timestamp);
    case "agent_event":
      return happened(home, payload, viewing);
    case "stream_end":
      return streamEnded(home, payload, viewing);
    default:
      return home;
  }
}

/** Take the answer of `GET /sessions`, which knows closed sessions that can be resumed too. */
export function reduceSessionList(home, list) {
  const known = list.map((view) => ({
    ...view,
    session_id: view.id,
    agent: view.agent ?? view.agent_type,
    session_status: view.session_status ?? view.status,
  }));
  return known.reduce((state, view) => withSession(state, view, null), home);
}

// connection_ack lists every session that is not closed: any other that was open has ended meanwhile.
function listed(home, list) {
  const open = new Set(list.map((view) => view.session_id));
  const sessions = Object.fromEntries(
    Object.entries(home.sessions).map(([id, session]) => [
      id,
      open.has(id) || session.session_status === "closed"
        ? session
        : { ...session, session_status: "closed", turn: "idle", doing: null },
    ]),
  );
  return list.reduce(
    (state, view) => withSession(state, { session_status: "active", ...view }, null),
    { ...home, sessions },
  );
}

const FIELDS = Object.keys(blankSession("")).concat("asks", "branch", "created_at");

function withSession(home, view, viewing) {
  const id = view.session_id;
  if (typeof id !== "string") return home;
  const before = home.sessions[id] ?? blankSession(id);
  const after = { ...before };
  for (const field of FIELDS) if (view[field] !== undefined) after[field] = view[field];
  const finished = before.turn !== "idle" && after.turn === "idle";
  if (finished && id !== viewing) after.unseen = true;
  if (after.session_status !== "error") after.trouble = "";
  return { ...home, sessions: { ...home.sessions, [id]: after } };
}

function ended(home, payload, viewing) {
  const state = withSession(
    home,
    {
      session_id: payload.session_id,
      session_status: "closed",
      turn: "idle",
      doing: null,
      pending_approvals: 0,
    },
    viewing,
  );
  const open = openApprovals(state).filter(
    (approval) => approval.session_id === payload.session_id,
  );
  return open.reduce(
    (next, approval) =>
      decided(
        next,
        { ...approval, decision: "rejected" },
        { by: "the end of the session", forwarded: null },
      ),
    state,
  );
}

function asked(home, message) {
  const { payload, id, timestamp } = message;
  const key = approvalKey(payload.session_id, payload.tool_call_id);
  const before = home.approvals[key];
  if (before?.state === "decided" && before.row_id === id) return home;
  const approval = {
    key,
    row_id: id,
    session_id: payload.session_id,
    tool_call_id: payload.tool_call_id,
    tool: payload.tool,
    params: payload.params,
    description: payload.description ?? "",
    risk_level: RISKS.includes(payload.risk_level) ? payload.risk_level : "critical",
    source: payload.source,
    reasoning: payload.reasoning ?? "",
    at: timestamp,
    state: "open",
    decision: "",
    by: "",
    decided_at: "",
    forwarded: null,
    ...(before?.row_id === id && before.state === "deciding"
      ? { state: "deciding", decision: before.decision }
      : {}),
  };
  const open = withApproval(home, approval);
  if (!payload.decision || payload.decision === "pending") return open;
  return decided(open, payload, { by: words(payload.decided_by, payload.device), forwarded: null });
}

function withApproval(home, approval) {
  const approvals = { ...home.approvals, [approval.key]: approval };
  const old = Object.values(approvals)
    .filter(({ state }) => state === "decided")
    .sort((a, b) => a.at.localeCompare(b.at));
  for (const { key } of old.slice(0, Math.max(0, old.length - KEPT_DECIDED))) delete approvals[key];
  return { ...home, approvals };
}

function decided(home, payload, { by, forwarded }) {
  const before = home.approvals[approvalKey(payload.session_id, payload.tool_call_id)];
  if (!before || (before.state === "decided" && forwarded === null)) return home;
  const own = before.state === "decided" && before.by !== "" ? before.by : by;
  return withApproval(home, {
    ...before,
    state: "decided",
    decision: payload.decision,
    by: forwarded === null ? own : by,
    decided_at: payload.decided_at ?? before.decided_at,
    forwarded: forwarded ?? before.forwarded,
  });
}

const words = (decidedBy, device) => {
  if (device) return device;
  return (
    { agent: "somebody at the machine", bridge: "the bridge", device: "another device" }[
      decidedBy
    ] ??
    decidedBy ??
    ""
  );
};

function notified(home, message, viewing) {
  const { notification_type: kind, data, session_id: id } = message.payload;
  let state = home;
  if (kind === "approval_decided" && id && data.tool_call_id) {
    state = decided(
      state,
      { ...data, session_id: id, decided_at: message.timestamp },
      { by: words(data.decided_by, data.device), forwarded: null },
    );
  }
  if (!id || !state.sessions[id]) return state;
  const view = { session_id: id, last_activity_at: message.timestamp };
  if (kind === "error") view.trouble = message.payload.body;
  if ((kind === "task_complete" || kind === "error") && id !== viewing) view.unseen = true;
  return withSession(state, view, viewing);
}

// A call that ran needs no decision any more, whoever gave it.
function ran(home, payload, timestamp) {
  const approval = home.approvals[approvalKey(payload.session_id, payload.tool_call_id)];
  if (!approval || approval.state === "decided") return home;
  return decided(
    home,
    { ...payload, decision: "approved", decided_at: timestamp },
    { by: "somebody at the machine", forwarded: null },
  );
}

function happened(home, payload, viewing) {
  const id = payload.session_id;
  const view = { session_id: id, last_activity_at: payload.timestamp };
  const known = home.sessions[id];
  if (payload.event === "UserPromptSubmit") {
    view.turn = "working";
    if (known && !known.title)
      view.title = String(payload.payload.prompt ?? "")
        .split("\n")[0]
        .slice(0, 200);
  }
  if (payload.event === "PreToolUse") view.turn = "working";
  if (payload.event === "Stop") Object.assign(view, { turn: "idle", doing: null });
  if (payload.event === "SessionEnd")
    Object.assign(view, { session_status: "closed", turn: "idle", doing: null });
  return withSession(home, view, viewing);
}

function streamEnded(home, payload, viewing) {
  return payload.finish_reason === "tool_call"
    ? home
    : withSession(home, { session_id: payload.session_id, turn: "idle", doing: null }, viewing);
}

/** Note that this device is about to decide; `decision` "" takes it back. */
export function markDeciding(home, key, decision) {
  const approval = home.approvals[key];
  if (!approval || approval.state === "decided") return home;
  return withApproval(home, { ...approval, state: decision ? "deciding" : "open", decision });
}

/** Note that a person has looked at the session. */
export const markSeen = (home, id) =>
  home.sessions[id]?.unseen ? withSession(home, { session_id: id, unseen: false }, id) : home;

/** Close what the bridge no longer holds open: it greets every connection with all open approvals. */
export function dropStale(home, greeted) {
  const stale = openApprovals(home).filter(({ row_id }) => !greeted.has(row_id));
  return stale.reduce(
    (state, approval) =>
      withApproval(state, { ...approval, state: "decided", by: "", decision: "" }),
    home,
  );
}

/** Approvals that wait for somebody, oldest first. */
export const openApprovals = (home) =>
  Object.values(home.approvals)
    .filter(({ state }) => state !== "decided")
    .sort((a, b) => a.at.localeCompare(b.at));

/** What a session is at, as one word: approval, error, finished, working, paused, idle, ended. */
export function attention(home, session) {
  if (
    openApprovals(home).some(({ session_id }) => session_id === session.session_id) ||
    session.turn === "waiting"
  )
    return "approval";
  if (session.session_status === "closed") return "ended";
  if (session.session_status === "error") return "error";
  if (session.unseen) return "finished";
  if (session.turn === "working") return "working";
  return session.session_status === "paused" ? "paused" : "idle";
}

const ORDER = ["approval", "error", "finished", "working", "paused", "idle", "ended"];

/** Sessions as the home screen shows them: by attention, then the latest first. */
export function sortedSessions(home) {
  return Object.values(home.sessions)
    .map((session) => ({ session, state: attention(home, session) }))
    .sort(
      (a, b) =>
        ORDER.indexOf(a.state) - ORDER.indexOf(b.state) ||
        b.session.last_activity_at.localeCompare(a.session.last_activity_at),
    );
}
