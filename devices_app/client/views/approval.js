// The sheet on which somebody decides: the whole call, and buttons as its risk asks for.

import { compareTexts, diffLines } from "../parts/diff.js";
import { copy, fill, guard, h, icon, setText, toast } from "../parts/dom.js";
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
  const status = h("p.status", { role: "status" });
  const actions = h("div.actions");
  const asked = questionsOf(approval);
  const atMachine = approval.source === "hooks";
  const form = asked.length
    ? questionForm(asked, { readOnly: atMachine, changed: () => answered() })
    : null;
  const content = [
    form
      ? form.node
      : [h(`p.risk.risk-${approval.risk_level}`, {}, RISK[approval.risk_level]), whole(approval)],
    approval.reasoning && [h("h2", {}, "Why"), h("p", {}, visible(approval.reasoning))],
    h(
      "dl.facts",
      {},
      h("dt", {}, "Session"),
      h(
        "dd",
        {},
        h(
          "a",
          { href: go.to("session", approval.session_id), on: { click: go.follow } },
          oneLine(session?.title) || approval.session_id,
        ),
      ),
      h("dt", {}, "Directory"),
      h("dd", {}, h("code", {}, visible(session?.working_directory ?? "not known"))),
      h("dt", {}, "Asked"),
      h("dd", {}, `${new Date(approval.at).toLocaleString()} (${ago(approval.at)})`),
    ),
  ];
  const sheet = openSheet(
    form ? "A question" : oneLine(approval.tool),
    content,
    [status, actions],
    () => closed(),
  );
  let shownState = "";
  const decide = (decision, modifications) => model.call("decide", key, decision, modifications);

  const paint = () => {
    const now = model.home.approvals[key];
    const item = now && itemOf(now, model);
    const state = !now?.open ? "decided" : item ? item.state : "open";
    const sentence =
      state === "decided"
        ? outcome(now ?? approval)
        : standing(now, model) || hooksSentence(now) || offlineSentence(model);
    setText(status, sentence);
    if (state === shownState) return;
    shownState = state;
    fill(actions, buttons(state));
    guard(actions);
  };

  const buttons = (state) => {
    if (state === "decided")
      return [
        h("button.primary", { type: "button", on: { click: () => sheet.dialog.close() } }, "Done"),
      ];
    if (state === "sent") return [];
    if (state === "failed")
      return [
        h(
          "button.primary",
          {
            type: "button",
            on: { click: () => model.call("retry", itemOf(approval, model).message.id) },
          },
          "Try again",
        ),
      ];
    if (state === "waiting")
      return [h("button", { type: "button", on: { click: withdraw } }, "Take it back")];
    return open();
  };

  const withdraw = async () => {
    if (!(await model.call("withdraw", key))) toast("It has been sent already.", "warn");
  };

  const answer = h("button.primary", { type: "button", disabled: true }, "Answer");
  answer.onclick = () => decide("modified", { ...approval.params, answers: form.answers() });
  const answered = () => (answer.disabled = !form.answers());

  const open = () => {
    if (form && atMachine) return [];
    const reject = h(
      "button.reject",
      { type: "button", on: { click: () => decide("rejected") } },
      form ? "Decline" : "Reject",
    );
    if (form) return [reject, h("span.gap"), answer];
    const modify =
      editable(approval) &&
      h("button.quiet", { type: "button", on: { click: () => edit() } }, "Change…");
    const approve = approveButtons(approval, () => decide("approved"));
    watchEnd(sheet.body, approve, status);
    return [reject, modify, h("span.gap"), approve];
  };

  const edit = () =>
    editParameters(
      approval,
      sheet,
      actions,
      () => {
        shownState = "";
        paint();
      },
      (parameters) => decide("modified", parameters),
    );

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
  return [h("button.primary", { type: "button", on: { click: act } }, label)];
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
    if (value === null || value === undefined || value === "") continue;
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
    h(
      "button.quiet.copy",
      { type: "button", on: { click: () => copy(text) } },
      icon("copy"),
      "Copy",
    ),
    hasOdd(text) &&
      h("p.warn", {}, "There are characters in it that cannot be seen; they are named above."),
  );
}

const editable = (approval) =>
  approval.source === "agent_sdk" &&
  Object.values(approval.params).some((value) => typeof value === "string");

function editParameters(approval, sheet, actions, cancel, send) {
  const fields = Object.entries(approval.params)
    .filter(([, value]) => typeof value === "string")
    .map(([name, value]) => {
      const area = h("textarea", {
        id: `field-${name}`,
        rows: String(Math.min(12, value.split("\n").length + 1)),
        spellcheck: "false",
        autocapitalize: "off",
        autocomplete: "off",
      });
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
  const sendButton = h(
    "button.primary",
    {
      type: "button",
      disabled: true,
      on: { click: () => send({ ...approval.params, ...changed() }) },
    },
    "Approve with changes",
  );
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
  fill(
    actions,
    h(
      "button",
      {
        type: "button",
        on: {
          click: () => {
            form.remove();
            cancel();
          },
        },
      },
      "Cancel",
    ),
    h("span.gap"),
    sendButton,
  );
  fields[0].area.focus();
}
