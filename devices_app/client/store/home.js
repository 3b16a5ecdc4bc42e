// Fold the bridge's messages into the state of all screens: sessions and approvals. Pure: each
// function returns a new state; folding stored rows gives the same state as folding live ones.

import { sessionOf } from "../protocol/messages.js";
import { asked, closeApprovals, decided, openApprovals, waits } from "./approvals.js";

export const FULL = 0.8; // the share of its context from which on a session is called full

/**
 * Return which share of its context a session has used; null where its agent does not say.
 *
 * @param {Wire.Usage | null | undefined} usage
 */
export function contextShare(usage) {
  const { context_tokens: tokens = 0, context_window: all = 0 } = usage ?? {};
  return all > 0 ? tokens / all : null;
}

/** @returns {Home} */
export const emptyHome = () => ({ device: "", presence: null, sessions: {}, approvals: {} });

/** @param {string} id @returns {Session} */
const blankSession = (id) => ({
  session_id: id,
  agent: "",
  title: "",
  working_directory: "",
  kind: "", // observed, bridge
  session_status: "active", // or created, paused, closed, error
  turn: "idle", // or working, waiting
  doing: null, // or {tool, summary, since}
  pending_approvals: 0,
  last_activity_at: "",
  quiet_since: null, // or since when nobody knows what it does
  rules: [], // what a person approves without being asked
  pinned: false,
  archived: false,
  shared: false, // it is the desk's too
  asks: null, // whether its agent asks first; null: nobody knows
  usage: null, // or what it has used, as far as its agent says
  filled: false, // most of its context was used at some time
  resumable: false,
  unseen: false, // it finished or failed while nobody looked
  failed: false, // its last turn
  trouble: "", // why it is in error, in words
});
/** @type {Partial<Session>} */
const AT_REST = { turn: "idle", doing: null, quiet_since: null };
/** @type {Partial<Session>} */
const CLOSED = { ...AT_REST, session_status: "closed" };

/** @type {Reducers} */
const REDUCERS = {
  connection_ack: (home, { payload }) => {
    const { device_name: device = home.device, presence = null } = payload;
    return listed({ ...home, device, presence }, payload);
  },
  // an older one may come again: the answer to this device is no row that it has acknowledged
  presence_state: (home, { payload: presence }) =>
    (home.presence?.since ?? "") > presence.since ? home : { ...home, presence },
  session_options: (home, { payload }) => withSession(home, payload),
  session_update: (home, { payload }) => withSession(home, payload.session),
  session_started: (home, { payload: { session_id, session }, timestamp }) => {
    if (isOld(home, session_id, timestamp)) return home;
    /** @type {Partial<Session>} */
    const view = { session_status: "active", last_activity_at: timestamp, ...session };
    return withSession(home, { ...view, session_id });
  },
  /** @param {Home} home */
  session_ready: (home, { payload }) =>
    withSession(home, {
      session_status: "active",
      branch: "",
      .../** @type {SessionNews} */ (payload),
    }),
  session_end: ended,
  approval_required: asked,
  approval_state: waits,
  approval_recorded: (home, { payload }) => decided(home, payload),
  notification: notified,
  stream_end: streamEnded,
};

/**
 * Take a message of the bridge into the state; `viewing` is the session on the screen, if any.
 *
 * @param {Home} home @param {{ type: string; payload: any }} message @returns {Home}
 */
export const reduceHome = (home, message, viewing = null) =>
  /** @type {Record<string, Function>} */ (REDUCERS)[message.type]?.(home, message, viewing) ??
  home;

/**
 * Take messages in their order; `viewed` are the sessions on screens.
 *
 * @param {Home} home
 * @param {(Wire.Message | Gap)[]} messages
 * @param {Set<string | null>} viewed
 */
export const foldHome = (home, messages, viewed) =>
  messages.reduce(
    (state, message) =>
      reduceHome(state, message, viewed.has(sessionOf(message)) ? sessionOf(message) : null),
    home,
  );

/**
 * Take the answer of `GET /sessions`, with closed sessions too; forget those that it lacks.
 *
 * @param {Home} home
 * @param {(Wire.Session & { agent?: string })[]} list
 */
export function reduceSessionList(home, list) {
  const known = list.map((view) => ({
    ...view,
    session_id: view.id,
    agent: view.agent ?? view.agent_type,
    session_status: view.session_status ?? view.status,
  }));
  const ids = new Set(known.map(({ session_id: id }) => id));
  const kept = Object.entries(home.sessions).filter(
    ([id, session]) => ids.has(id) || session.session_status !== "closed",
  );
  const state = { ...home, sessions: Object.fromEntries(kept) };
  // Of an open one there may be newer news than this answer.
  const isNews = (
    /** @type {(typeof known)[number]} */ { id, session_status, last_activity_at },
  ) => {
    const before = home.sessions[id];
    if (!before || before.session_status === "closed") return true;
    return session_status === "closed" && last_activity_at >= before.last_activity_at;
  };
  const rest = known.filter(isNews);
  return rest.reduce(withSession, /** @type {Home} */ (state));
}

// connection_ack lists every session that is not closed, but for old idle ones in terminals, which
// it counts, and idle archived ones: any other that was open has ended.
/** @param {Home} home @param {Wire.Payloads["connection_ack"]} _ */
function listed(home, { active_sessions: list, idle_sessions: folded }) {
  const open = new Set(list.map((view) => view.session_id));
  const absent = (/** @type {Session} */ session) => ({
    ...session,
    pending_approvals: 0,
    ...(session.archived || (folded && session.kind === "observed") ? AT_REST : CLOSED),
  });
  const sessions = Object.fromEntries(
    Object.entries(home.sessions).map(([id, session]) => [
      id,
      open.has(id) || session.session_status === "closed" ? session : absent(session),
    ]),
  );
  const views = list.map((view) => ({
    session_status: /** @type {const} */ ("active"),
    .../** @type {SessionNews} */ (view),
  }));
  return views.reduce(withSession, { ...home, sessions });
}

/** @type {(keyof Session)[]} */
const FIELDS = /** @type {any} */ (
  Object.keys(blankSession("")).concat(
    ...["branch", "created_at", "continue", "resume_command", "options", "commands"],
  )
);

/** @param {Home} home @param {SessionNews} view */
function withSession(home, view) {
  const id = view.session_id;
  if (typeof id !== "string") return home;
  const before = home.sessions[id] ?? blankSession(id);
  const after = /** @type {Free} */ ({ ...before });
  for (const field of FIELDS) if (view[field] !== undefined) after[field] = view[field];
  if ((contextShare(after.usage) ?? 0) >= FULL) after.filled = true;
  // the branch there comes with the next session_ready
  if (after.working_directory !== before.working_directory && view.branch === undefined)
    delete after.branch;
  if (view.turn === "working" && before.turn === "idle") after.failed = false;
  if (after.session_status !== "error" && !after.failed) after.trouble = "";
  return { ...home, sessions: { ...home.sessions, [id]: /** @type {Session} */ (after) } };
}

/** @param {Home} home @param {Wire.Envelope<"session_end">} _ */
function ended(home, { payload: { session_id: id, title }, timestamp }) {
  if (isOld(home, id, timestamp) && home.sessions[id].session_status !== "closed") return home;
  const over = { session_id: id, ...CLOSED, pending_approvals: 0, ...(title && { title }) };
  const state = withSession(home, over);
  const open = openApprovals(state).filter(({ session_id: other }) => other === id);
  const keys = open.map(({ key }) => key);
  return closeApprovals(state, keys, "the end of the session");
}

/**
 * @param {Home} home
 * @param {Wire.Envelope<"notification">} message
 * @param {string | null} viewing
 */
function notified(home, message, viewing) {
  const { notification_type: kind, data, session_id: id } = message.payload;
  let state = home;
  if (kind === "approval_decided" && id && data.tool_call_id) {
    /** @type {Decided} */
    const told = { decided_at: message.timestamp, .../** @type {any} */ (data), session_id: id };
    state = decided(state, { ...told, why: /because [^.]+/.exec(message.payload.body)?.[0] });
  }
  if (!id || !state.sessions[id]) return state;
  /** @type {SessionNews} */
  const view = { session_id: id };
  if (!isOld(state, id, message.timestamp)) view.last_activity_at = message.timestamp;
  // Of low priority is an end by a person, or of the session: nothing was finished.
  const isDone = kind === "task_complete" && message.payload.priority !== "low";
  if (isDone) view.failed = false;
  if (kind === "error") {
    view.trouble = message.payload.body;
    if (data.code !== "MESSAGES_DISCARDED") view.failed = true;
  }
  if ((isDone || view.failed) && id !== viewing) view.unseen = true;
  return withSession(state, view);
}

// A row that was missed may be older than what connection_ack has told.
/** @param {Home} home @param {string} id @param {string} timestamp */
const isOld = (home, id, timestamp) => timestamp < (home.sessions[id]?.last_activity_at ?? "");

// A turn may be over before a `session_update` has told that it began.
/** @param {Home} home @param {Wire.Envelope<"stream_end">} _ @param {string | null} viewing */
function streamEnded(home, { payload, timestamp }, viewing) {
  const { session_id: id, finish_reason: reason } = payload;
  if (reason === "tool_call" || isOld(home, id, timestamp)) return home;
  /** @type {SessionNews} */
  const view = { session_id: id, turn: "idle", doing: null, failed: reason === "error" };
  if (id !== viewing && !payload.interrupted) view.unseen = true;
  return withSession(home, view);
}

/**
 * Note that a person has looked at the session.
 *
 * @param {Home} home
 * @param {string} id
 */
export const markSeen = (home, id) =>
  home.sessions[id]?.unseen ? withSession(home, { session_id: id, unseen: false }) : home;

/**
 * Return a session's state in one word of ORDER.
 *
 * @param {Home} home
 * @param {Session} session
 */
export function attention(home, session, asking = askingOf(home)) {
  const asks = asking.has(session.session_id);
  const isWaiting = session.turn === "waiting";
  if (asks || (isWaiting && session.kind !== "observed")) return "approval";
  if (session.session_status === "closed") return "ended";
  if (session.session_status === "error") return "error";
  if (session.unseen && session.failed) return "error";
  if (session.unseen && session.turn === "idle") return "finished";
  if (session.turn === "working" || session.session_status === "created") return "working";
  if (isWaiting) return "machine"; // nothing can be decided here
  return session.session_status === "paused" ? "paused" : "idle";
}

/** @param {Home} home */
const askingOf = (home) => new Set(openApprovals(home).map(({ session_id: id }) => id));

const ORDER = ["approval", "error", "finished", "working", "machine", "paused", "idle", "ended"];

/**
 * Sort sessions for the home screen: by attention, then the latest first.
 *
 * @param {Home} home
 */
export function sortedSessions(home) {
  const asking = askingOf(home);
  return Object.values(home.sessions)
    .map((session) => ({ session, state: attention(home, session, asking) }))
    .sort(
      (a, b) =>
        ORDER.indexOf(a.state) - ORDER.indexOf(b.state) ||
        byTime(b.session.last_activity_at, a.session.last_activity_at),
    );
}

/** @param {string} a @param {string} b */
const byTime = (a, b) => (a < b ? -1 : Number(a > b));

/** @param {Listed[]} list @param {(one: Listed) => string} key */
function grouped(list, key) {
  /** @type {Map<string, Listed[]>} */
  const groups = new Map();
  for (const one of list) if (!groups.get(key(one))?.push(one)) groups.set(key(one), [one]);
  return groups;
}

const AT_PEACE = new Set(["paused", "idle", "ended"]);
/** What a folded group shows all the same. */
export const NEEDS_YOU = new Set(["approval", "error", "finished"]);

/**
 * Arrange sessions for the home screen: pinned ones, the open ones by directory (those that are
 * alone in theirs under ""), ended and archived ones. An archived one that waits, works or has news
 * stands among the others.
 *
 * @param {Home} home
 */
export function arranged(home) {
  /** @type {Record<"pinned" | "open" | "ended" | "archived", Listed[]>} */
  const lists = { pinned: [], open: [], ended: [], archived: [] };
  for (const one of sortedSessions(home)) {
    const { session, state } = one;
    const isOpen = state === "ended" ? "ended" : "open";
    const isAway = session.archived && AT_PEACE.has(state);
    lists[isAway ? "archived" : session.pinned ? "pinned" : isOpen].push(one);
  }
  const { open, ...rest } = lists;
  /** @param {Listed} one */
  const directoryOf = ({ session }) => session.working_directory;
  const shared = grouped(open, directoryOf);
  /** @param {Listed} one */
  const isShared = (one) => Number(shared.get(directoryOf(one))?.length) > 1;
  const groups = grouped(open, (one) => (isShared(one) ? directoryOf(one) : ""));
  return { ...rest, groups };
}

/**
 * Return the sessions that finished or failed while nobody looked: failed ones first, then oldest.
 *
 * @param {Home} home
 */
export const finishedUnseen = (home) =>
  Object.values(home.sessions)
    .filter(({ unseen, turn }) => unseen && turn !== "working")
    .sort(
      (a, b) =>
        Number(b.failed) - Number(a.failed) || byTime(a.last_activity_at, b.last_activity_at),
    );
