// Show the sheet of a decision: the whole call, and buttons that suit its risk.

import { callParts, codeBlock, hasEdits } from "../parts/call.js";
import { compareTexts, diffLines, plain } from "../parts/diff.js";
import { button, factsOf, field, fill, guard, h, setText, toast } from "../parts/dom.js";
import { showMarkdown } from "../parts/markdown.js";
import { holdButton, openSheet, seenToEnd, twoSteps } from "../parts/sheet.js";
import { ago, oneLine, subagentOf, titleOf, visible } from "../parts/text.js";
import { jsonOf, membersOf, typedOf, withValues } from "../protocol/exact.js";
import { reaches } from "../store/approvals.js";
import { itemOf, outcome, placeOf, RISK, standing } from "./approvals.js";
import { keepDraft } from "./drafts.js";
import { questionForm, questionsOf } from "./questions.js";
import { ruleButtons, whyForm } from "./rules.js";

/**
 * Open the sheet of one approval; `closed` is called when somebody has closed it.
 *
 * @param {string} key
 * @param {App} _
 * @param {() => void} closed
 */
export function openApproval(key, { model, go }, closed) {
  const approval = model.home.approvals[key];
  if (!approval) {
    toast("This approval is not known here any more.", "warn");
    closed();
    return { paint: () => {}, close: () => {} };
  }
  const session = model.home.sessions[approval.session_id];
  const asked = questionsOf(approval);
  const form = asked.length
    ? questionForm(asked, { readOnly: !reaches(approval), changed: () => typed() })
    : null;
  const draft = `answer:${key}`;
  const typed = () => {
    keepDraft(model, draft, JSON.stringify(form?.typed()));
    answered();
  };
  const now = () => model.home.approvals[key] ?? approval;
  const link = go.link("session", approval.session_id);
  const when = h("span");
  const facts = {
    Session: h("a", link, titleOf(session, approval.session_id)),
    ...(approval.agent && { Asks: subagentOf(approval.agent) }),
    Directory: h("code", {}, visible(session?.working_directory || "not known")),
    Asked: when,
  };
  const { params, risk_level: risk } = approval;
  const changed = approval.changed ?? {};
  const answers = Object.entries(changed.answers ?? {});
  const content = [
    form?.node ?? [h(`p.risk.risk-${risk}`, {}, RISK[risk]), whole(approval, go)],
    form ? answers.map((one) => h("p", {}, visible(one.join(": ")))) : changes(params, changed),
    approval.rewritten && h("p.note", {}, "A hook changed this call: it will run as shown."),
    approval.reasoning && [h("h2", {}, "Why"), h("p", {}, visible(approval.reasoning))],
    h("dl.facts", {}, factsOf(facts)),
  ];

  const give = () => {
    const answers = new Map([["answers", JSON.stringify(form?.answers())]]);
    parts.decide("modified", withValues(jsonOfParams(approval), answers));
  };
  const answer = button("button.primary", give, "Answer");
  answer.disabled = true;
  const answered = () => (answer.disabled = !form?.answers());

  /** @param {Child} reject @param {Element_[]} approve @param {Element_[]} rules */
  const open = (reject, approve, rules) => {
    if (form && !reaches(now())) return [];
    if (form) return [reject, h("span.gap"), answer];
    sheet.body.querySelector(".edit")?.remove();
    watchEnd(sheet.body, parts.hint, (seen) => enable([...approve, ...rules], seen));
    const modify =
      editable(now()) && !isPlan(now()) && button("button.quiet", () => edit(), "Change…");
    if (approval.options?.length) return h("div.ways", {}, approve, reject);
    return [reject, modify, h("span.gap"), approve, rules];
  };
  const done = () => {
    if (form) keepDraft(model, draft, "");
    const fields = sheet.body.querySelectorAll("textarea, input");
    for (const one of /** @type {Iterable<Element_>} */ (fields)) one.disabled = true;
    return [button("button.primary", () => sheet.dialog.close(), "Done")];
  };
  const parts = decider(approval, model, { open, done });
  const edit = () => editParameters(approval, sheet, parts);
  const name = form ? "A question" : isPlan(approval) ? "The plan" : oneLine(approval.tool);
  const foot = [parts.status, parts.actions];
  const sheet = openSheet(name, content, foot, () => closed(), { hasAddress: true });
  // Words at lines of an edit are the reason of a rejection.
  let paintWords = plain;
  if (form)
    model.draft(draft).then((before) => {
      if (before && now().open) form.put(JSON.parse(before));
      answered();
    });
  const can = () => now().open && reaches(now()) && !now().options?.length && !itemOf(now(), model);
  const reject = (/** @type {string} */ reason) => parts.decide("rejected", null, { reason });
  if (hasEdits(params))
    import("./words.js").then(async ({ wordsOfApproval }) => {
      paintWords = await wordsOfApproval(sheet.body, key, model, { can, reject });
    }, plain);
  const paint = () => {
    paintWords();
    setText(when, `${new Date(approval.at).toLocaleString()} (${ago(approval.at)})`);
    parts.paint();
  };
  paint();
  const age = setInterval(paint, 5000);
  return {
    paint,
    close: () => {
      clearInterval(age);
      sheet.dialog.close();
    },
  };
}

// Make what decides an approval: how it stands, and the buttons for that. `open` arranges what
// rejects and approves, `done` gives the buttons of a decided one.
/**
 * @param {Approval} approval
 * @param {Model} model
 * @param {{ open(reject: Element_[], approve: Element_[], rules: Element_[]): Child;
 *   done(): Child[] }} _
 */
function decider(approval, model, { open, done }) {
  const { key } = approval;
  const status = h("p.status", { role: "status", tabindex: "-1" });
  const actions = h("div.actions");
  let shown = "";
  let also = "";
  /** @param {Decision} decision @param {string | null} [modifications] @param {Free} [more] */
  const decide = (decision, modifications, more) =>
    model.call("decide", key, decision, modifications, more);
  const withdraw = async () => {
    if (!(await model.call("withdraw", key))) toast("It has been sent already.", "warn");
  };
  const retry = () => model.call("retry", itemOf(approval, model)?.message.id ?? "");
  const told = () => reaches(model.home.approvals[key] ?? approval);
  const plans = isPlan(approval);
  const approve = () => (!told() ? "Record approval" : plans ? "Go on" : "Approve");
  const refuse = () =>
    questionsOf(approval).length
      ? "Decline"
      : !told()
        ? "Record rejection"
        : plans
          ? "Keep planning"
          : "Reject";
  /** @type {Record<string, () => Child>} */
  const buttons = {
    decided: done,
    sent: () => [],
    failed: () => [button("button.primary", retry, "Try again")],
    waiting: () => [button("button", withdraw, "Withdraw")],
    open: () => {
      // what is only recorded does not look like what decides
      const [reject, accept] = told() ? ["reject", "primary"] : ["quiet", "quiet"];
      const rejects = waysOf(approval, "reject_once", refuse()).map(([id, label]) =>
        button(`button.${reject}`, () => decide("rejected", null, optionOf(id)), label),
      );
      const approves = waysOf(approval, "allow_once", approve()).flatMap(([id, label]) =>
        approveButtons(approval, () => decide("approved", null, optionOf(id)), label, accept),
      );
      const keep = (/** @type {string} */ id) => decide("approved", null, { remember: id });
      const rules = ruleButtons(approval, keep, plans ? "Go on, allow this session" : undefined);
      const refused = (/** @type {string} */ why) =>
        decide("rejected", null, why ? { reason: why } : {});
      /** @type {[string?, string?]} */
      const words = plans ? ["Say what to change", "Send"] : [];
      const why = whyForm(refused, model, key, ...words);
      const tellsWhy = told() && !approval.options?.length; // there the agent's own words fit
      return [open(rejects, approves, rules), tellsWhy && why];
    },
  };
  const paint = () => {
    const now = model.home.approvals[key] ?? { ...approval, open: false };
    const state = now.open ? (itemOf(now, model)?.state ?? "open") : "decided";
    const sentence = standing(now, model) || hooksSentence(now) || offlineSentence(model);
    const hint = state === "open" ? also : "";
    const said = now.open ? `${sentence} ${hint}`.trim() : outcome(now);
    const buttonsOf = `${state} ${reaches(now)}`;
    if (buttonsOf === shown && said === status.textContent) return;
    setText(status, said);
    guard(actions); // the buttons may have moved
    if (buttonsOf === shown) return;
    shown = buttonsOf;
    const { activeElement: at } = document;
    const hadFocus = at === status || actions.contains(at);
    also = "";
    fill(actions, buttons[state]());
    if (hadFocus) (actions.querySelector("button") ?? status).focus();
  };
  const again = () => {
    drafts.delete(key);
    shown = "";
    paint();
  };
  /** @param {string} text */
  const hint = (text) => {
    also = text;
    paint();
  };
  return { status, actions, paint, again, decide, hint };
}

const drafts = new Map(); // key of an approval → what was typed, until it is cancelled

const CARD = { lines: 16, width: 36 }; // of a call that is seen whole in a conversation

// Each parameter has its name, its text in lines as wide as a phone, and a button to copy it.
/** @param {[string, unknown]} _ */
function linesOf([name, value]) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const wide = `${name}\n${text}`.replace(/[^\n -~]/gu, "8 columns"); // tabs, odd letters
  /** @param {string} line */
  const linesIn = (line) => Math.max(1, Math.ceil(line.length / CARD.width));
  return wide.split("\n").reduce((sum, line) => sum + linesIn(line), 3);
}

/**
 * Make the card on which a call is decided in its conversation; null for one that takes the sheet:
 * it is critical, long, a question, or is answered at the machine.
 *
 * @param {Approval | undefined} approval
 * @param {Pick<App, "model" | "go">} _
 */
export function decisionCard(approval, { model, go }) {
  if (approval?.source !== "agent_sdk" || approval.risk_level === "critical") return null;
  const lines = Object.entries(approval.params).reduce((sum, one) => sum + linesOf(one), 0);
  if (lines > CARD.lines || questionsOf(approval).length || approval.options?.length) return null;
  const more = () => h("a.button.quiet", go.link("approval", approval.key), "Details");
  /** @param {Child} reject @param {Element_[]} approve @param {Element_[]} rules */
  const open = (reject, approve, rules) => [reject, more(), h("span.gap"), approve, rules];
  const { status, actions, paint } = decider(approval, model, { open, done: () => [] });
  const risk = h(`p.risk.risk-${approval.risk_level}`, {}, RISK[approval.risk_level]);
  const node = h("div.deciding", {}, risk, whole(approval, go), status, actions);
  node.paint = paint;
  paint();
  return node;
}

/** @param {Approval} approval */
const hooksSentence = (approval) =>
  approval.answerable
    ? `${placeOf(approval)}: the first answer counts.`
    : approval.source === "hooks"
      ? questionsOf(approval).length
        ? "Waiting at the machine: it can be answered there only."
        : "No hook waits for the phone: answer at the machine. Your answer is only recorded."
      : "";

/** @param {Model} model */
const offlineSentence = (model) =>
  model.connection.phase === "ready" ? "" : "Offline: what you decide waits for the connection.";

// The agent's own ways to allow a call, or to refuse it, where it has several: their ids and names.
/**
 * @param {Approval} approval @param {Wire.ApprovalOption["kind"]} kind @param {string} label
 * @returns {[string | undefined, string][]}
 */
function waysOf({ options }, kind, label) {
  const ways = (options ?? []).filter((one) => one.kind === kind);
  if (ways.length < 2) return [[undefined, label]];
  return ways.map(({ id, name }) => [id, oneLine(name) || oneLine(id)]);
}

/** @param {string | undefined} id */
const optionOf = (id) => (id === undefined ? {} : { option_id: id });

// Low and medium take one tap, high two in place, critical a hold.
/** @param {Approval} approval @param {() => unknown} act @param {string} label */
function approveButtons(approval, act, label, kind = "primary") {
  if (approval.risk_level === "critical") {
    const { button, other, hint } = holdButton(label.toLowerCase(), act);
    return [h("div.holding", {}, hint, button, other)];
  }
  if (approval.risk_level === "high")
    return [twoSteps(`${label}…`, `Yes, ${label.toLowerCase()}`, act, kind).node];
  return [button(`button.${kind}`, act, label)];
}

/** @param {Element_[]} nodes @param {boolean} may */
function enable(nodes, may) {
  for (const node of nodes)
    for (const one of node.matches("button") ? [node] : node.querySelectorAll("button"))
      one.disabled = !may;
}

// What is long must have been seen to its end before it can be approved; `tell` is told whether.
/**
 * @param {Element_} body
 * @param {(text: string) => void} hint
 * @param {(seen: boolean) => void} tell
 */
function watchEnd(body, hint, tell) {
  // The one, or on a low screen the other.
  const scrolling = [body, /** @type {Element_} */ (body.parentElement)];
  const look = () => {
    const seen = scrolling.every(seenToEnd) && !body.querySelector(".more:not([hidden])");
    tell(seen);
    hint(seen ? "" : "Scroll to the end to approve.");
    if (!seen) return;
    for (const node of scrolling) node.removeEventListener("scroll", look);
    body.removeEventListener("click", look);
    resizes.disconnect();
  };
  const resizes = new ResizeObserver(look); // looks at once, too
  resizes.observe(body);
  body.addEventListener("click", look); // more of it is shown
  for (const node of scrolling) node.addEventListener("scroll", look, { passive: true });
}

// The agent has planned, and asks whether to begin (D69).
/** @param {Approval} _ */
const isPlan = ({ tool }) => tool === "ExitPlanMode";

// The parameters as JSON, with each number as it came.
/** @param {Approval} _ */
const jsonOfParams = ({ exact, params }) => exact ?? JSON.stringify(params);

// The whole command or parameters, never cut; edits as differences.
/** @param {Approval} approval @param {Go} go */
function whole(approval, go) {
  const { params } = approval;
  if (isPlan(approval) && typeof params.plan === "string") {
    const plan = h("div.markdown");
    const linkTo = (/** @type {string} */ path) => go.link("file", approval.session_id, path);
    showMarkdown(plan, params.plan, linkTo);
    return [plan];
  }
  const parts = callParts(params, jsonOfParams(approval));
  // what came with the request beside its parameters: the first line names the call, a last one
  // that was cut stands whole among them
  const known = JSON.stringify(params);
  const beside = approval.description
    .split("\n")
    .slice(1)
    .filter(
      (line) =>
        line.trim() &&
        !line.endsWith("…") &&
        !known.includes(JSON.stringify(line.trim()).slice(1, -1)),
    );
  if (beside.length && !questionsOf(approval).length)
    parts.push(h("h2", {}, "Sent with it"), codeBlock(beside.join("\n"), "Sent with it"));
  if (!parts.length)
    parts.push(h("p", {}, visible(approval.description) || "This call has no parameters."));
  return parts;
}

// What a person has changed, as the bridge tells it.
/** @param {Free} before @param {Free} after */
const changes = (before, after) =>
  Object.keys(after)
    .map((name) => [name, lineOf(before[name]), lineOf(after[name])])
    .filter(([name, was, is]) => is !== was && name !== "answers")
    .map(([name, was, is]) => [
      changed(name, was, is),
      isRounded(after[name]) && h("p.warn", {}, "Long numbers above may be rounded."),
    ]);

/** @param {unknown} value */
const lineOf = (value) =>
  typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");

// Not by its JSON: "size+1" in a text is no number.
/** @param {unknown} value */
const isRounded = (value) =>
  typeof value === "number"
    ? !Number.isSafeInteger(Math.trunc(value))
    : Boolean(value) && typeof value === "object" && Object.values(value ?? {}).some(isRounded);

/** @param {string} name @param {string} before @param {string} after */
const changed = (name, before, after) => [
  h("h2", {}, `What changes in ${oneLine(name)}`),
  diffLines(compareTexts(before, after)),
];

/** @param {Approval} approval */
const editable = (approval) => reaches(approval) && typedIn(approval).length > 0;

// The parameters that a person edits: name, JSON, and the text of it.
/** @param {Approval} approval */
function typedIn(approval) {
  const text = jsonOfParams(approval);
  const all = new Map(membersOf(text).map(({ name, from, to }) => [name, text.slice(from, to)]));
  return [...all].flatMap(([name, json]) => {
    const typed = typedOf(json);
    return typed === null ? [] : [{ name, json, typed }];
  });
}

/**
 * @param {Approval} approval
 * @param {{ body: Element_ }} sheet
 * @param {ReturnType<typeof decider>} _
 */
function editParameters(approval, sheet, { actions, again, decide, hint }) {
  const before = drafts.get(approval.key) ?? new Map();
  const fields = typedIn(approval).map(({ name, json, typed }) => {
    const rows = String(Math.min(12, linesOf([name, typed]) - 3)); // where CSS cannot size it
    const area = field("textarea", { id: `field-${name}`, rows });
    area.value = before.get(name) ?? typed;
    return { name, json, typed, area };
  });
  const edited = () => fields.filter(({ typed, area }) => area.value !== typed);
  const difference = h("div");
  const form = h(
    "div.edit",
    {},
    h("h2", {}, "Change the parameters"),
    fields.map(({ name, area }) => [h("label", { for: area.id }, oneLine(name)), area]),
    difference,
  );
  const sendAll = () => {
    const values = edited().map(({ name, json, area }) => [name, jsonOf(json, area.value)]);
    decide("modified", withValues(jsonOfParams(approval), new Map(/** @type {any} */ (values))));
  };
  const approve = approveButtons(approval, sendAll, "Approve with changes");
  let isSeen = false;
  let isWrong = false;
  const check = () => enable(approve, isSeen && !isWrong && difference.hasChildNodes());
  const compare = () => {
    const wrong = edited().filter(({ json, area }) => jsonOf(json, area.value) === null);
    isWrong = wrong.length > 0;
    fill(
      difference,
      edited().map(({ name, typed, area }) => changed(name, typed, area.value)),
      wrong.map(({ name }) => h("p.warn", {}, `${oneLine(name)} must be a number.`)),
    );
  };
  compare();
  form.addEventListener("input", () => {
    drafts.set(approval.key, new Map(fields.map(({ name, area }) => [name, area.value])));
    compare();
    check();
  });
  sheet.body.append(form);
  watchEnd(sheet.body, hint, (seen) => {
    isSeen = seen;
    check();
  });
  fill(actions, button("button", again, "Cancel"), h("span.gap"), approve);
  fields[0].area.focus();
  fields[0].area.scrollIntoView({ block: "center" }); // Safari shows the line of the caret only
}
