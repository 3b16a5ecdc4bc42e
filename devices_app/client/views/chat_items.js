// Make a conversation's items: prompts, answers, tool cards, notes.

import { callParts, hasEdits } from "../parts/call.js";
import { colouring, diffLines, parseUnified } from "../parts/diff.js";
import { button, copyButton, fill, h, pager, setPart, setText, toast } from "../parts/dom.js";
import { showMarkdown } from "../parts/markdown.js";
import { readOutput } from "../parts/terminal.js";
import {
  callLine,
  clock,
  counted,
  dotted,
  duration,
  inputOf,
  oneLine,
  subagentOf,
  subject,
  visible,
  visibleCode,
} from "../parts/text.js";
import { approvalKey, reaches } from "../store/approvals.js";
import { decisionCard } from "./approval.js";
import { lateWords } from "./approvals.js";
import { jobOf, nowOf, showCalls } from "./subagent.js";

const NOTICE = 160; // characters of what an agent's program wrote, at first
const LONG = 20_000; // characters of what a tool took or gave, at first

/**
 * Make an item's node; `updateItem` shows the item in it again.
 *
 * @param {ChatItem} item
 * @param {ItemApp} app
 */
export function makeItem(item, app) {
  const node = h(`li.item.${item.kind}`);
  node.app = app;
  updateItem(node, item);
  return node;
}

/** @param {Element_} node @param {ChatItem} item */
export const updateItem = (node, item) => /** @type {Function} */ (UPDATES[item.kind])(node, item);

const UPDATES = {
  prompt: updatePrompt,
  answer: updateAnswer,
  tool: updateTool,
  note: updateNote,
  made: updateMade,
  gap: updateNote,
};

// Made once: their bytes are fetched. What makes them is loaded with the first one.
/** @param {Element_} node @param {ChatItem} item */
function attachedOf(node, { attached = [] }) {
  const names = attached.map(({ attachment_id: id }) => id).join();
  if (!names || node.attachedNames === names) return node.attached;
  const place = h("div");
  Object.assign(node, { attached: place, attachedNames: names });
  import("./attachments.js").then(
    ({ attachmentsOf }) => fill(place, attachmentsOf(attached, node.app)),
    (error) => fill(place, h("p.warn", {}, error.message)),
  );
  return place;
}

/** @type {Record<string, string>} */
const SOURCES = {
  agent: "from the agent's history",
  http: "over HTTP",
};

/** @param {Element_} node @param {Prompt} item */
function updatePrompt(node, item) {
  const own = item.device === node.app.model.home.device;
  const device = !own && `from ${oneLine(item.device)}`;
  const from = item.device ? device : (SOURCES[item.source] ?? "at the machine");
  const isLater = item.state === "queued" && item.until;
  const stands = isLater ? `Waits until ${clock(item.until)}` : STANDS[item.state];
  const about = h("p.meta", {}, dotted(stands, from, clock(item.at)));
  const isRefused = item.state === "refused";
  const bubble = `div.bubble.mine${isRefused ? ".failed" : ""}`;
  const again = isRefused && h("div.actions", {}, sayAgain(item, node.app));
  const back = item.state === "queued" && h("div.actions", {}, takeBack(item, node.app));
  node.replaceChildren(
    h(bubble, {}, h("p", {}, visible(item.text)), attachedOf(node, item), about, again || back),
  );
}

// What waits is taken back, to write it again or not (D71).
/** @param {Prompt} item @param {ItemApp} _ */
function takeBack({ key, text, attached }, { model, id, edit }) {
  const withdraw = async () => {
    const asked = { session_id: id, message_id: key.slice("p:".length) };
    try {
      const { state } = await model.call("ask", "message_withdraw", asked);
      if (state === "withdrawn") return true;
      toast("It cannot be taken back any more: the agent has it.", "warn");
    } catch (/** @type {any} */ error) {
      toast(error.message, "warn");
    }
    return false;
  };
  const again = async () => (await withdraw()) && edit(text, attached);
  return [button("button", again, "Edit"), button("button.quiet", withdraw, "Withdraw")];
}

/** @param {Prompt} item @param {ItemApp} _ */
function sayAgain({ text, attached = [] }, { model, id }) {
  const again = button("button", () => say(), "Try again");
  const say = async () => {
    again.disabled = true;
    try {
      const { attachedBefore } = await import("./attaching.js");
      await model.call("say", id, text, {}, attachedBefore(attached));
    } catch (/** @type {any} */ error) {
      again.disabled = false;
      toast(error.message, "warn");
    }
  };
  return again;
}

/** @type {Record<string, string>} */
const STANDS = {
  bridge: "At the bridge",
  queued: "Queued",
  given: "Delivered to agent",
  withdrawn: "Withdrawn",
  refused: "Not taken: the agent was busy",
};

/** @param {Element_} node @param {Answer} item */
function updateAnswer(node, item) {
  node.body ??= h("div.bubble.markdown");
  node.foot ??= h("p.meta");
  if (!node.body.isConnected) node.replaceChildren(node.body, node.foot);
  if (item.attached?.length) node.foot.before(attachedOf(node, item));
  const { go, id } = node.app;
  showMarkdown(node.body, item.text, (/** @type {string} */ path) => go.link("file", id, path));
  if (item.done) colouring(({ colourBlocks }) => colourBlocks(node.body));
  node.hidden =
    item.done &&
    !item.text &&
    !item.attached?.length &&
    !["error", "stopped"].includes(item.reason);
  node.classList.toggle("streaming", !item.done);
  /** @type {Record<string, string>} */
  const ends = {
    error: "The turn ended with an error.",
    length: "Cut off: it reached the maximum length.",
    stopped: "Stopped before it was done.",
  };
  const cost = item.usage ? usage(item.usage) : "";
  setText(node.foot, dotted(ends[item.reason], cost));
  node.foot.hidden = !node.foot.textContent;
}

/** @param {Free} of */
function usage(of) {
  const { amount, currency } = of.cost ?? { amount: of.total_cost_usd, currency: "USD" };
  const price = Number(amount).toFixed(3);
  return dotted(
    of.input_tokens > 0 && `${of.input_tokens} tokens in`,
    of.output_tokens > 0 && `${of.output_tokens} out`,
    of.duration_ms > 0 && `took ${duration(of.duration_ms)}`,
    amount > 0 && `${currency === "USD" ? `$${price}` : `${price} ${currency}`} so far`,
  );
}

/** @param {Element_} node @param {Tool} item */
function updateTool(node, item) {
  if (item.steps && (item.done || !item.asked)) return updatePlan(node, item);
  const refused = item.noResult ? "no result" : item.decision === "rejected" && "rejected";
  const decided = item.noted ? "noted" : refused || "running";
  const open = item.asked && !item.decision ? "pending" : decided;
  const undone = item.reason ? refused || "stopped" : open;
  const state = !item.done ? undone : item.ok ? "completed" : refused || "error";
  node.dataset.state = state;
  const details =
    node.querySelector("details") ??
    h(
      "details.tool",
      {},
      h(
        "summary",
        {},
        h("span.mark", { "aria-hidden": "true" }),
        h("span.call"),
        h("span.meta"),
        h("span.whose"),
      ),
      h("div.tool-body"),
    );
  if (!details.isConnected) node.replaceChildren(details);
  const line = item.calls ? jobOf(item) : callLine(item.tool, item.params, item.description);
  setPart(details, ".call", line);
  const word = state === "pending" && item.atMachine ? "noted" : state;
  const how = dotted(WORDS[word], about(item), made(item), duration(item.ms));
  setPart(details, ".meta", item.calls ? "" : how);
  const whose = item.row || item.calls ? "" : subagentOf(item.agent); // the row says it
  const rewritten = item.rewritten && "changed by a hook";
  setPart(
    details,
    ".whose",
    dotted(item.calls && how, nowOf(item), whose, rewritten, ruleOf(item)),
  );
  const body = /** @type {Element_} */ (details.children[1]);
  const make = (/** @type {Tool} */ one) => makeItem(one, node.app);
  const toggled = () => {
    if (details.open) fillTool(body, item, node.app);
    if (item.calls) showCalls(node, item, { make, update: updateItem });
  };
  details.ontoggle = toggled;
  toggled();
  if (item.attached?.length) details.after(attachedOf(node, /** @type {any} */ (item)));
  showDecision(node, item, state);
}

/** @param {Tool} _ */
const made = ({ calls }) => calls && counted(calls.length, "call");

/** @param {Tool} _ */
const ruleOf = ({ rule }) => rule && `by your rule: ${oneLine(rule)}`;

/** @param {Element_} node @param {Tool} item */
function updatePlan(node, { tool, steps = [], agent, row }) {
  const done = steps.filter(({ status }) => status === "completed").length;
  // as a person has left it; what is no card yet is closed
  const open = node.querySelector(".steps") ? node.querySelector("details")?.open : true;
  const [name, unit] = tool === "TodoWrite" ? ["Plan", "step"] : ["Tasks", "task"];
  node.replaceChildren(
    h(
      "details.tool",
      { open },
      h(
        "summary",
        {},
        h("span.call", {}, name),
        h("span.meta", {}, `${done} of ${counted(steps.length, unit)} done`),
        h("span.whose", {}, row ? "" : subagentOf(agent)),
      ),
      h(
        "ul.tool-body.steps",
        {},
        steps.map(({ text, status }) => {
          const mark = { completed: "✓", in_progress: "▸" }[status] ?? "○";
          return h("li", { "data-status": status }, `${mark} `, visible(text));
        }),
      ),
    ),
  );
}

/** @type {Record<string, string>} */
const WORDS = {
  pending: "waits for a decision",
  running: "running",
  noted: "waits at the machine",
  completed: "",
  rejected: "rejected",
  "no result": "no result",
  stopped: "stopped",
  error: "failed",
};

// What a person decided, where the state does not say it.
/** @param {Tool} _ */
function about({ tool, decision, done, ok }) {
  if (decision === "rejected") return done && ok && "ran though it was rejected";
  const word = tool === "AskUserQuestion" ? "answered" : "changed by a person";
  return decision === "modified" && word;
}

/** @param {Element_} node @param {Tool} item @param {string} state */
function showDecision(node, item, state) {
  const { model, go, id } = node.app;
  const key = approvalKey(id, item.callId);
  const approval = model.home.approvals[key];
  const open = state === "pending" && approval?.open !== false;
  if (open === Boolean(node.deciding) && approval?.key === node.known) return;
  node.deciding?.remove();
  node.known = approval?.key;
  const label = approval && !reaches(approval) ? "Look at it" : "Decide"; // there, not here
  const link = () => h("a.button.primary.decide", go.link("approval", key), label);
  node.deciding = open ? (decisionCard(approval, node.app) ?? link()) : null;
  if (!open) return;
  node.append(node.deciding);
  // The row can be read from the storage before the list of approvals has it.
  if (!approval) node.deciding.paint = () => showDecision(node, item, state);
}

/** @param {Element_} place @param {Tool} item @param {ItemApp} _ */
function fillTool(place, item, { go, id, model }) {
  const late = lateWords(model.home.approvals[approvalKey(id, item.callId)]);
  const version = `${item.version} ${late}`;
  if (place.dataset.version === version) return;
  place.dataset.version = version;
  const { prompt } = item.params; // of a subagent
  const input = item.calls && prompt ? String(prompt) : inputOf(item.params, item.diff);
  const path = item.params.file_path ?? item.params.notebook_path ?? item.params.path;
  fill(
    place,
    !item.diff && hasEdits(item.params)
      ? callParts(item.params)
      : input && long("Input", input, (to) => visibleCode(input.slice(0, to))),
    typeof path === "string" && h("a.button.quiet", go.link("file", id, path), "Open file"),
    !(item.noted && item.done) && item.decidedBy && h("p.meta", {}, item.decidedBy),
    late && h("p.warn", {}, late),
    item.was &&
      subject(item.was) &&
      h("p.meta", {}, "It had asked for: ", visibleCode(inputOf(item.was))),
    item.diff && diffLines(parseUnified(item.diff)),
    item.problem && h("p.warn", {}, item.problem),
    item.output && outputOf(item.output),
  );
}

/** @param {string} label @param {string} text @param {(to: number) => Child} shown */
function long(label, text, shown) {
  const pre = h("pre.wrapped", { tabindex: "0", "aria-label": label });
  const { more, show } = pager(LONG, "characters", (to) => {
    fill(pre, shown(to));
    return text.length;
  });
  show();
  return [pre, h("div.actions", {}, more, copyButton(text))];
}

/** @param {string} written */
function outputOf(written) {
  const runs = readOutput(written);
  const whole = runs.map(({ text }) => text).join("");
  return long("Output", whole, (to) => {
    let left = to;
    return runs.map(({ text, style }) => {
      const part = visible(text.slice(0, left));
      left = Math.max(0, left - text.length);
      return style && part.length > 0 ? h(`span.${style}`, {}, part) : part;
    });
  });
}

/** @param {Element_} node @param {Made} item */
function updateMade(node, item) {
  const line = oneLine(item.text);
  const first = line.slice(0, NOTICE);
  if (line === item.text.trim() && first === line)
    node.replaceChildren(h("p.note", {}, "From the agent itself: ", line));
  else
    node.replaceChildren(
      h(
        "details.note",
        {},
        h("summary", {}, `From the agent itself: ${first === line ? line : `${first}…`}`),
        h("p.wrapped", {}, visible(item.text)),
      ),
    );
}

// What is missing between is loaded when somebody comes there.
/** @param {Element_} node @param {string} row the first behind it */
function showBetween(node, row) {
  node.classList.add("between");
  const load = async () => {
    more.disabled = true;
    await node.app.between(row);
    more.disabled = false;
  };
  const more = button("button.quiet", load, "Load the messages between");
  node.replaceChildren(more);
  const watch = new IntersectionObserver(([{ isIntersecting }]) => {
    if (!isIntersecting) return;
    watch.disconnect();
    load();
  });
  watch.observe(node);
}

/** @param {Element_} node @param {Note} item */
function updateNote(node, item) {
  if (item.before) return showBetween(node, item.before);
  node.dataset.tone = item.tone ?? "soft";
  node.replaceChildren(h("p.note", {}, oneLine(item.text)));
}
