// Offer to approve what is like a call, to say why one is rejected, and show a session's rules.

import { button, form, h, keyed, toast } from "../parts/dom.js";
import { openSheet, twoSteps } from "../parts/sheet.js";
import { clock, counted, oneLine, visible } from "../parts/text.js";
import { keepDraft, keepTyped } from "./drafts.js";

const REASON_CHARS = 2000;

/**
 * Make a fold with a button for each rule that is offered with a call: it approves the call, and
 * keeps it.
 *
 * @param {Approval} approval
 * @param {(id: string) => unknown} approve
 * @returns {Element_[]}
 */
export function ruleButtons(
  { remember, risk_level: risk },
  approve,
  words = "Approve for this session",
) {
  const offers = (remember ?? []).map((rule) => {
    const label = `${words}: ${oneLine(rule.label)}`;
    const act = () => approve(rule.id);
    const node =
      risk === "high"
        ? twoSteps(`${label}…`, `Yes, ${label}`, act).node
        : button("button", act, label);
    node.classList.add("quiet");
    const covers = h("span.meta", {}, `Covers ${visible(rule.covers)}. `);
    return h("div.rule-offer", {}, node, covers, h("span.meta", {}, `Not: ${visible(rule.not)}.`));
  });
  if (!offers.length) return [];
  return [h("details.browse.rule-offers", {}, h("summary", {}, `${words}…`), offers)];
}

/**
 * Make a line in which to say why a call is rejected, shown by a button, or as it was left.
 *
 * @param {(reason: string) => unknown} reject
 * @param {Model} model
 * @param {string} key of the approval
 */
export function whyForm(
  reject,
  model,
  key,
  words = "Reject and say why",
  done = "Reject with this reason",
) {
  const about = { type: "text", maxlength: REASON_CHARS, "aria-label": "Why" };
  const line = h("input", { ...about, placeholder: "Why" });
  const draft = `why:${key}`;
  const say = () => {
    keepDraft(model, draft, "");
    reject(line.value.trim());
  };
  const node = form("why", say, line, h("button.reject", { type: "submit" }, done));
  node.hidden = true;
  const open = () => {
    node.hidden = false;
    opener.hidden = true;
  };
  const show = () => {
    open();
    line.focus();
  };
  const opener = button("button.quiet", show, `${words}…`);
  keepTyped(line, model, draft).then(() => line.value && open());
  return h("div.reasons", {}, opener, node);
}

/** @param {Session | undefined} session */
export const rulesWords = (session) =>
  session?.rules?.length ? counted(session.rules.length, "rule") : "";

/**
 * Open the list of a session's rules, each with a button that takes it back; return what paints it.
 *
 * @param {string} id
 * @param {App} _
 * @param {() => void} closed
 */
export function openRules(id, { model }, closed) {
  const list = h("ul.rows.rules");
  const none = h("p.empty", {}, "Every call that changes something asks.");
  const paint = () => {
    const rules = model.home.sessions[id]?.rules ?? [];
    none.hidden = rules.length > 0;
    keyed(list, rules, { key: ({ id: rule, used }) => `${rule} ${used}`, make: line });
  };
  /** @param {Wire.SessionRule} rule */
  const line = (rule) => {
    const used = `${oneLine(rule.device)}, since ${clock(rule.since)}, used ${counted(rule.used, "time")}`;
    const gone = async () => {
      try {
        await model.call("ask", "rule_remove", { session_id: id, rule_id: rule.id });
      } catch (/** @type {any} */ error) {
        toast(error.message, "warn");
      }
    };
    const words = h("div", {}, h("span.title", {}, visible(rule.label)), h("span.meta", {}, used));
    return h("li.rule", {}, words, button("button", gone, "Remove"));
  };
  const about = h(
    "p.meta",
    {},
    "What these cover is approved without asking, in this session only. They end with it, with an",
    " interrupt or a pause.",
  );
  openSheet("Rules of this session", [about, none, list], [], closed);
  paint();
  return paint;
}
