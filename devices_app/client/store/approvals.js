// Fold the bridge's messages into approvals. Pure: each function returns a new state.

import { named } from "../protocol/messages.js";

const RISKS = ["low", "medium", "high", "critical"];
const KEPT_DECIDED = 40;

/** @param {string} sessionId @param {string} callId */
export const approvalKey = (sessionId, callId) => `${sessionId}\n${callId}`;

/**
 * Take an `approval_required`, which has a decision if it was decided already.
 *
 * @param {Home} home
 * @param {Wire.Envelope<"approval_required"> & { exact?: string }} _
 */
export function asked(home, { payload, id, timestamp, exact }) {
  const key = approvalKey(payload.session_id, payload.tool_call_id);
  const before = home.approvals[key];
  if (before?.row_id === id && before.decision) return home;
  /** @type {Approval} */
  const approval = {
    key, // session and tool call
    row_id: id, // of its message
    session_id: payload.session_id,
    tool_call_id: payload.tool_call_id,
    tool: payload.tool,
    params: payload.params,
    exact, // the parameters as JSON, where JavaScript does not hold their numbers
    description: payload.description ?? "",
    risk_level: RISKS.includes(payload.risk_level) ? payload.risk_level : "critical",
    source: payload.source,
    reasoning: payload.reasoning ?? "",
    agent: payload.agent ?? null, // the subagent that asks
    rewritten: payload.changed === true, // by a hook of the agent, before it asked
    options: payload.options ?? [], // several ways to allow it, or to refuse it
    remember: payload.remember ?? [], // rules for the session that would cover it
    answerable: payload.answerable === true, // here too, beside the dialog of a terminal
    outcome: "", // what came of a decision for a terminal
    at: timestamp,
    open: true, // somebody may decide
    decision: "", // also of one that is not open any more, when nobody here knows why
    by: "", // who decided, in words for a person
    decided_at: "",
    forwarded: null, // true: the agent was told; null: not known
    changed: null, // with which parameters it was approved, where those are others
  };
  const state = withApproval(home, approval);
  return !payload.decision || String(payload.decision) === "pending"
    ? state
    : decided(state, payload);
}

/**
 * Take that a call in a terminal can be answered here, or no longer.
 *
 * @param {Home} home
 * @param {Wire.Envelope<"approval_state">} _
 */
export function waits(home, { payload }) {
  const before = home.approvals[approvalKey(payload.session_id, payload.tool_call_id)];
  return before ? withApproval(home, { ...before, answerable: payload.answerable }) : home;
}

/**
 * Tell whether an answer given here reaches the agent.
 *
 * @param {Pick<Approval, "source" | "answerable">} _
 */
export const reaches = ({ source, answerable }) => source === "agent_sdk" || answerable === true;

/**
 * Tell whether a session waits for an answer that can be given here.
 *
 * @param {Home} home
 * @param {string} session
 */
export const asksHere = (home, session) =>
  openApprovals(home).some((one) => one.session_id === session && reaches(one));

/**
 * Take a decision, from whatever message tells it; later ones add what they know.
 *
 * @param {Home} home
 * @param {Decided} payload
 */
export function decided(home, payload) {
  const before = home.approvals[approvalKey(payload.session_id, payload.tool_call_id)];
  if (!before) return home;
  return withApproval(home, {
    ...before,
    open: false,
    decision: payload.decision ?? "",
    by: who(home, payload) || before.by,
    decided_at: payload.decided_at ?? before.decided_at,
    forwarded: payload.forwarded ?? before.forwarded,
    changed: payload.modifications ?? before.changed,
    outcome: payload.outcome ?? before.outcome,
  });
}

/**
 * Keep that this device has decided too late.
 *
 * @param {Home} home
 * @param {string} key
 * @param {Decision} late
 */
export function tooLate(home, key, late) {
  const before = home.approvals[key];
  return before ? withApproval(home, { ...before, late }) : home;
}

/** @type {Record<string, string>} */
const PLACES = {
  rule: "a rule",
  agent: "somebody at the machine",
  bridge: "the bridge",
  device: "a device",
};

/** @param {Home} home @param {Decided} _ */
function who(home, { device, decided_by: place, forwarded, why }) {
  if (device) return device === home.device ? "you" : named(device);
  // `approval_recorded` answers this device, and the same decision of another one too.
  if (forwarded !== undefined) return "";
  return [PLACES[place ?? ""] ?? "", place === "bridge" && why].filter(Boolean).join(" ");
}

/**
 * Close approvals that nobody can decide any more: `keys` of them, by whom in words.
 *
 * @param {Home} home
 * @param {string[]} keys
 */
export function closeApprovals(home, keys, by = "") {
  return keys.reduce(
    (state, key) => withApproval(state, { ...state.approvals[key], open: false, by }),
    home,
  );
}

// The keys of approvals that are over though nothing said so: the bridge shows every connection all
// that are open. `shown`: ids of what it has shown; before it has shown `expected` of them, none.
/**
 * @param {Home} home
 * @param {string} session
 * @param {Set<string>} shown
 * @param {number} expected
 */
export function staleApprovals(home, session, shown, expected) {
  const open = openApprovals(home).filter(({ session_id: id }) => id === session);
  const stale = open.filter(({ row_id: id }) => !shown.has(id));
  return open.length - stale.length < expected ? [] : stale.map(({ key }) => key);
}

/** @param {Home} home @param {Approval} approval */
function withApproval(home, approval) {
  const approvals = { ...home.approvals, [approval.key]: approval };
  const old = Object.values(approvals)
    .filter(({ open }) => !open)
    .sort((a, b) => a.at.localeCompare(b.at));
  for (const { key } of old.slice(0, Math.max(0, old.length - KEPT_DECIDED))) delete approvals[key];
  return { ...home, approvals };
}

/**
 * Return the approvals that wait for somebody, oldest first.
 *
 * @param {Home} home
 */
export const openApprovals = (home) =>
  Object.values(home.approvals)
    .filter(({ open }) => open)
    .sort((a, b) => a.at.localeCompare(b.at));
