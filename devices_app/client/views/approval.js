// Show the sheet of a decision: the whole call, and buttons that suit its risk.

import { compareTexts, diffLines } from "../parts/diff.js";
import { button, copyButton, field, fill, guard, h, setText, toast } from "../parts/dom.js";
import { holdButton, openSheet, seenToEnd, twoSteps } from "../parts/sheet.js";
import { ago, hasOdd, oneLine, visible } from "../parts/text.js";
import { itemOf, outcome, RISK, standing } from "./approvals.js";
import { questionForm, questionsOf } from "./questions.js";

/**
 * Open the sheet of one approval.
 *
 * @param {string} key
 * @param {any} app `model` and `go`
 * @returns {{paint: () => void, close: () => void}}
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
  const atMachine = approval.source === "hooks";
  const form = asked.length
    ? questionForm(asked, { readOnly: atMachine, changed: () => answered() })
    : null;
  const title = oneLine(session?.title) || approval.session_id;
  const content = [
    form
      ? form.node
      : [h(`p.risk.risk-${approval.risk_level}`, {}, RISK[approval.risk_level]), whole(approval)],
    approval.reasoning && [h("h2", {}, "Why"), h("p", {}, visible(approval.reasoning))],
    h(
      "dl.facts",
      {},
      h("dt", {}, "Session"),
      h("dd", {}, h("a", go.link("session", approval.session_id), title)),
      h("dt", {}, "Directory"),
      h("dd", {}, h("code", {}, visible(session?.working_directory ?? "not known"))),
      h("dt", {}, "Asked"),
      h("dd", {}, `${new Date(approval.at).toLocaleString()} (${ago(approval.at)})`),
    ),
  ];

  const give = () => parts.decide("modified", { ...approval.params, answers: form.answers() });
  const answer = button("button.primary", give, "Answer");
  answer.disabled = true;
  const answered = () => (answer.disabled = !form.answers());

  const open = (reject, approve) => {
    if (form && atMachine) return [];
    if (form) return [reject, h("span.gap"), answer];
    watchEnd(sheet.body, approve, parts.status);
    const modify = editable(approval) && button("button.quiet", () => edit(), "Change…");
    return [reject, modify, h("span.gap"), approve];
  };
  const done = () => [button("button.primary", () => sheet.dialog.close(), "Done")];
  const parts = decider(approval, model, { open, done });
  const edit = () => editParameters(approval, sheet, parts);
  const name = form ? "A question" : oneLine(approval.tool);
  const sheet = openSheet(name, content, [parts.status, parts.actions], () => closed());
  parts.paint();
  const age = setInterval(parts.paint, 5000);
  return {
    paint: parts.paint,
    close: () => {
      clearInterval(age);
      sheet.dialog.close();
    },
  };
}

/**
 * Make what decides an approval: how it stands, and the buttons for that.
 *
 * @param {any} approval
 * @param {any} model
 * @param {{open: (reject: any, approve: any[]) => any[], done: () => any[]}} buttons what stands
 *   there while it is open, and once it was decided
 */
function decider(approval, model, { open, done }) {
  const { key } = approval;
  const status = h("p.status", { role: "status", tabindex: "-1" });
  const actions = h("div.actions");
  let shown = "";
  const decide = (decision, modifications) => model.call("decide", key, decision, modifications);
  const withdraw = async () => {
    if (!(await model.call("withdraw", key))) toast("It has been sent already.", "warn");
  };
  const retry = () => model.call("retry", itemOf(approval, model).message.id);
  const reject = approval.source === "hooks" ? "Note as rejected" : "Reject";
  const refuse = questionsOf(approval).length ? "Decline" : reject;
  const buttons = {
    decided: done,
    sent: () => [],
    failed: () => [button("button.primary", retry, "Try again")],
    waiting: () => [button("button", withdraw, "Take it back")],
    open: () =>
      open(
        button("button.reject", () => decide("rejected"), refuse),
        approveButtons(approval, () => decide("approved")),
      ),
  };
  const paint = () => {
    const now = model.home.approvals[key] ?? { ...approval, open: false };
    const state = now.open ? (itemOf(now, model)?.state ?? "open") : "decided";
    const sentence = standing(now, model) || hooksSentence(now) || offlineSentence(model);
    setText(status, now.open ? sentence : outcome(now));
    if (state === shown) return;
    shown = state;
    const { activeElement: at } = document;
    const hadFocus = at === status || actions.contains(at);
    fill(actions, buttons[state]());
    guard(actions);
    if (hadFocus) (actions.querySelector("button") ?? status).focus();
  };
  const again = () => {
    shown = "";
    paint();
  };
  return { status, actions, paint, again, decide };
}

const CARD = { characters: 400, lines: 12 }; // of a call that is seen whole in a conversation

/**
 * Make the card on which a call is decided in its conversation; null for one that takes the sheet:
 * it is critical, long, a question, or is answered at the machine.
 */
export function decisionCard(approval, { model, go }) {
  if (approval?.source !== "agent_sdk" || approval.risk_level === "critical") return null;
  const text = JSON.stringify(approval.params);
  const isLong = text.length > CARD.characters || text.split("\\n").length > CARD.lines;
  if (isLong || questionsOf(approval).length) return null;
  const more = () => h("a.button.quiet", go.link("approval", approval.key), "Details");
  const open = (reject, approve) => [reject, more(), h("span.gap"), approve];
  const { status, actions, paint } = decider(approval, model, { open, done: () => [] });
  const risk = h(`p.risk.risk-${approval.risk_level}`, {}, RISK[approval.risk_level]);
  const node = h("div.deciding", {}, risk, whole(approval), status, actions);
  node.paint = paint;
  paint();
  return node;
}

const hooksSentence = (approval) =>
  approval.source === "hooks"
    ? questionsOf(approval).length
      ? "Waiting at the machine: it can be answered there only."
      : "Waiting at the machine. Your answer is only recorded: the agent asks there."
    : "";

const offlineSentence = (model) =>
  model.connection.phase === "ready" ? "" : "Offline: what you decide waits for the connection.";

// Low and medium take one tap, high two in place, critical a hold.
function approveButtons(approval, act) {
  const label = approval.source === "hooks" ? "Note as approved" : "Approve";
  if (approval.risk_level === "critical") {
    const { button, other, hint } = holdButton(label.toLowerCase(), act);
    return [h("div.holding", {}, hint, button, other)];
  }
  if (approval.risk_level === "high")
    return [twoSteps(`${label}…`, `Yes, ${label.toLowerCase()}`, act).node];
  return [button("button.primary", act, label)];
}

// What is long must have been seen to its end before it can be approved.
function watchEnd(body, buttons, status) {
  const all = buttons.flatMap((node) =>
    node.matches("button") ? [node] : [...node.querySelectorAll("button")],
  );
  const look = () => {
    if (!seenToEnd(body)) return;
    body.removeEventListener("scroll", look);
    all.forEach((button) => (button.disabled = false));
    if (status.textContent === UNSEEN) setText(status, "");
  };
  requestAnimationFrame(() => {
    if (seenToEnd(body)) return;
    all.forEach((button) => (button.disabled = true));
    if (!status.textContent) setText(status, UNSEEN);
    body.addEventListener("scroll", look, { passive: true });
  });
}

const UNSEEN = "Scroll to the end to approve.";

// The whole command or parameters, never cut; an edit as a difference.
function whole(approval) {
  const { params } = approval;
  const parts = [];
  const text = typeof params.command === "string" ? params.command : "";
  const rest = { ...params };
  if (text) {
    delete rest.command;
    parts.push(codeBlock(text, "Command"));
  }
  const pairs = Array.isArray(params.edits) ? params.edits : [params];
  for (const { old_string: before, new_string: after } of pairs) {
    if (typeof before !== "string" || typeof after !== "string") continue;
    for (const name of ["old_string", "new_string", "edits"]) delete rest[name];
    parts.push(diffLines(compareTexts(before, after)));
  }
  for (const [name, value] of Object.entries(rest)) {
    if ((value ?? "") === "") continue;
    const content = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    parts.push(h("h2", {}, oneLine(name)), codeBlock(content, name));
  }
  if (!parts.length)
    parts.push(h("p", {}, visible(approval.description) || "This call has no parameters."));
  return parts;
}

function codeBlock(text, name) {
  return h(
    "div.whole",
    {},
    h("pre.wrapped", { "aria-label": name }, visible(text)),
    copyButton(text),
    hasOdd(text) &&
      h("p.warn", {}, "There are characters in it that cannot be seen; they are named above."),
  );
}

const editable = (approval) =>
  approval.source === "agent_sdk" &&
  Object.values(approval.params).some((value) => typeof value === "string");

function editParameters(approval, sheet, { actions, again, decide }) {
  const fields = Object.entries(approval.params)
    .filter(([, value]) => typeof value === "string")
    .map(([name, value]) => {
      const rows = String(Math.min(12, value.split("\n").length + 1));
      const area = field("textarea", { id: `field-${name}`, rows });
      area.value = value;
      return { name, value, area };
    });
  const difference = h("div");
  const form = h(
    "div.edit",
    {},
    h("h2", {}, "Change the parameters"),
    fields.map(({ name, area }) => [h("label", { for: area.id }, oneLine(name)), area]),
    difference,
  );
  const changed = () => Object.fromEntries(fields.map(({ name, area }) => [name, area.value]));
  const different = () => fields.some(({ value, area }) => area.value !== value);
  const sendAll = () => decide("modified", { ...approval.params, ...changed() });
  const sendButton = button("button.primary", sendAll, "Approve with changes");
  sendButton.disabled = true;
  form.addEventListener("input", () => {
    sendButton.disabled = !different();
    fill(
      difference,
      fields
        .filter(({ value, area }) => area.value !== value)
        .map(({ name, value, area }) => [
          h("h2", {}, `What changes in ${oneLine(name)}`),
          diffLines(compareTexts(value, area.value)),
        ]),
    );
  });
  sheet.body.append(form);
  const leave = () => {
    form.remove();
    again();
  };
  fill(actions, button("button", leave, "Cancel"), h("span.gap"), sendButton);
  fields[0].area.focus();
}
