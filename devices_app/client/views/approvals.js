// List approvals as cards: those that wait, and those decided lately.

import { connectionSign, guard, h, keyed, row, screen, setPart } from "../parts/dom.js";
import { ago, callLine, dotted, titleOf } from "../parts/text.js";
import { approvalKey, openApprovals } from "../store/approvals.js";

export const RISK = {
  low: "Low risk",
  medium: "Medium risk",
  high: "High risk: it changes or runs something that matters",
  critical: "Critical: it can destroy something",
};
const CHECKING_MS = 10_000;

/**
 * Make the list of waiting approvals, oldest first, and of those decided lately.
 *
 * @param {App} _
 */
export function approvalsView({ model, go }) {
  const connection = connectionSign({ model, go });
  const waiting = h("div.cards");
  const empty = h("p.empty");
  const past = h("ul.rows");
  const pastTitle = h("h2.section", {}, "Decided lately");
  const content = h("div.scroller", {}, waiting, empty, pastTitle, past);
  const node = screen("Approvals", { behind: connection.node }, content);
  const paint = () => {
    connection.paint();
    showCards(waiting, model, go);
    empty.hidden = waiting.childElementCount > 0;
    empty.textContent = model.connection.phase === "ready" ? "Nothing waits for you." : "Offline.";
    const decided = Object.values(model.home.approvals)
      .filter(({ open }) => !open)
      .sort((a, b) => (b.decided_at || b.at).localeCompare(a.decided_at || a.at))
      .slice(0, 20);
    pastTitle.hidden = decided.length === 0;
    keyed(past, decided, {
      /** @param {Approval} approval */
      key: (approval) => `${approval.key} ${outcome(approval)}`,
      make: (one) => row(go.link("approval", one.key), { title: lineOf(one), meta: outcome(one) }),
    });
  };
  paint();
  return { node, paint };
}

/**
 * Show a card for each approval that waits.
 *
 * @param {Element_} place
 * @param {Model} model
 * @param {Go} go
 */
export function showCards(place, model, go) {
  keyed(place, openApprovals(model.home), {
    key: ({ key }) => key,
    /** @param {Approval} approval */
    make: (approval) => card(approval, model, go),
    /** @param {Element_} node @param {Approval} approval */
    update: (node, approval) => paintCard(node, approval, model),
  });
}

/** @param {Approval} _ */
export const lineOf = ({ tool, params, changed, description }) =>
  callLine(tool, changed ?? params, description);

/** @param {Approval} approval @param {Model} model @param {Go} go */
function card(approval, model, go) {
  const node = h(
    `a.card.risk-${approval.risk_level}`,
    go.link("approval", approval.key),
    h("span.card-top", {}, h("span.where"), h("span.age")),
    h("code.command", {}, lineOf(approval)),
    h("span.card-foot"),
  );
  guard(node);
  paintCard(node, approval, model);
  return node;
}

/** @param {Element_} node @param {Approval} approval @param {Model} model */
function paintCard(node, approval, model) {
  const { at, session_id: id, risk_level: risk } = approval;
  const waits = dotted(placeOf(approval), RISK[risk].split(":")[0]);
  setPart(node, ".where", titleOf(model.home.sessions[id], "Session"));
  setPart(node, ".age", ago(at));
  setPart(node, ".card-foot", standing(approval, model) || waits);
}

/**
 * Say where an approval asks.
 *
 * @param {Approval} approval
 */
export const placeOf = ({ source, answerable }) =>
  source === "agent_sdk" ? "Asks here" : `Asks at the machine${answerable ? " and here" : ""}`;

/**
 * Say in a sentence what became of this device's own decision.
 *
 * @param {Approval} approval
 * @param {Model} model
 */
export function standing(approval, model) {
  const item = itemOf(approval, model);
  if (!item) return "";
  if (item.state === "failed") return `Not sent: ${item.problem}`;
  const word = WORDS[/** @type {Free} */ (item.message.payload).decision];
  if (item.state === "waiting") return `${word} here, waits for the connection`;
  return Date.now() - item.first > CHECKING_MS ? "Not confirmed, checking" : `${word}, sending…`;
}

// Of an answer to an agent that asked at the machine too.
/** @type {Record<string, string>} */
const OUTCOMES = {
  taken: "The agent has taken it",
  desk_first: "The machine had answered before",
  not_confirmed: "The agent was told; nothing shows whether the machine was first",
};
/** @type {Record<string, string>} */
const WORDS = { approved: "Approved", rejected: "Rejected", modified: "Approved with changes" };

/**
 * Return the outbox's item that decides this approval.
 *
 * @param {Approval} approval
 * @param {Model} model
 */
export const itemOf = (approval, model) =>
  model.outbox.find(
    ({ message: { type, payload } }) =>
      type === "approval_response" &&
      approvalKey(payload.session_id, payload.tool_call_id) === approval.key,
  );

/**
 * Say what was decided here when somebody had decided already; empty where nothing was.
 *
 * @param {Approval | undefined} approval
 */
export const lateWords = (approval) =>
  approval?.late ? `Too late here: ${WORDS[approval.late]}` : "";

/** @param {string} at */
const dateOf = (at) => new Date(at).toLocaleString([], { dateStyle: "short", timeStyle: "short" });

/**
 * Say in a sentence what became of a decided approval.
 *
 * @param {Approval} approval
 */
export function outcome(approval) {
  const late = lateWords(approval);
  if (!approval.decision) return dotted("No longer open", late);
  const { decision, decided_at: when, forwarded, source, tool } = approval;
  const isAnswer = tool === "AskUserQuestion" && decision !== "rejected";
  const word = isAnswer ? "Answered" : (WORDS[decision] ?? decision);
  const by = approval.by ? ` by ${approval.by}` : "";
  const came = OUTCOMES[approval.outcome ?? ""];
  const nobody = source === "hooks" ? "it is decided at the machine" : "no agent took it";
  const took = { true: "The agent was told", false: `Recorded; ${nobody}` }[String(forwarded)];
  const told = came || took ? `. ${came ?? took}.` : " ·";
  return dotted(when ? `${word}${by}${told} ${dateOf(when)}` : `${word}${by}`, late);
}
