// Fold a session's rows into its conversation. Pure. Items stand in the order in which they began;
// the `version` of one grows when it changes, so that a view knows what to paint.

import { plainOutput } from "../parts/terminal.js";
import { named } from "../protocol/messages.js";
import { picturesIn } from "./pictures.js";
import {
  beginPlans,
  change,
  endSubagent,
  isSubagent,
  planOf,
  rowOf,
  takePlan,
  takeSubagent,
  takeTask,
} from "./tasks.js";

/** @returns {Chat} */
export const emptyChat = () => ({
  items: [],
  byKey: new Map(),
  seen: new Set(),
  queued: [],
  states: new Map(),
  plans: new Map(),
  tasks: new Map(),
  subagents: new Map(),
});

/**
 * Take rows, in the log's order, into a chat; it is changed in place: they may be thousands.
 *
 * @param {Chat} chat
 * @param {Row[]} rows
 */
export function foldChat(chat, rows) {
  for (const row of rows) {
    if (chat.seen.has(row.id)) continue;
    chat.seen.add(row.id);
    /** @type {Record<string, Function>} */ (FOLDS)[row.type]?.(chat, row);
  }
  return chat;
}

/**
 * @template {ChatItem} T
 * @param {Chat} chat @param {string} key @param {Omit<T, "key" | "version">} item @returns {T}
 */
function add(chat, key, item) {
  const made = /** @type {any} */ ({ key, version: 1, ...item });
  (made.row?.calls ?? chat.items).push(made);
  chat.byKey.set(key, made);
  if (made.row) change(made.row);
  return made;
}

/**
 * @param {Chat} chat
 * @param {Row} _
 * @param {string} text
 * @param {string} tone
 * @param {"note" | "gap"} kind
 * @returns {Note}
 */
const note = (chat, { id, timestamp }, text, tone = "soft", kind = "note") =>
  add(chat, id, { kind, at: timestamp, tone, text });

/** @type {Folds} */
const FOLDS = {
  agent_event: hookEvent,
  message_state: messageState,
  stream_start: (chat, row) => answer(chat, row),
  stream_chunk: (chat, row) => {
    const item = answer(chat, row);
    const attached = [...(item.attached ?? []), ...picturesIn(row.payload)];
    change(item, { text: item.text + row.payload.content, attached });
  },
  stream_end: (chat, row) => {
    const { finish_reason: reason, usage = null, interrupted = false } = row.payload;
    change(answer(chat, row), { done: true, reason: interrupted ? "stopped" : reason, usage });
    if (reason === "tool_call") return;
    const asked = /** @type {Prompt | undefined} */ (
      chat.items.findLast(({ kind }) => kind === "prompt")
    );
    if (asked?.state === "bridge") change(asked, { state: "given" }); // on a device that came later
    const next = chat.queued.shift();
    if (!next) return;
    change(next, { state: "bridge" });
    chat.items.push(...chat.items.splice(chat.items.indexOf(next), 1)); // its turn begins here
  },
  tool_call: (chat, row) => call(chat, row.payload, row.timestamp),
  approval_required: (chat, row) => {
    const { decision = "", modifications, params } = row.payload;
    const item = call(chat, row.payload, row.timestamp);
    if (modifications) change(item, { params: modifications, was: params });
    if (row.payload.changed) item.rewritten = true;
    change(item, {
      asked: true,
      decision: String(decision) === "pending" ? "" : decision,
      atMachine: row.payload.source === "hooks",
    });
  },
  tool_result: (chat, row) => {
    const { result, changed } = row.payload;
    const was = changed ? chat.byKey.get(`t:${row.payload.tool_call_id}`)?.params : undefined;
    const item = call(chat, row.payload, row.timestamp);
    if (changed) Object.assign(item, { rewritten: true, was: item.was ?? was ?? null });
    change(item, {
      done: true,
      ok: result.success !== false,
      output: textOf(result.content || result.error || ""),
      diff: result.diff ?? "",
      attached: picturesIn(result),
      ms: result.duration_ms ?? null,
    });
    takeTask(chat, item);
    takeSubagent(chat, item, result.metadata);
  },
  tool_error: (chat, row) => {
    const { message, details } = row.payload;
    const output = [details?.stdout, details?.stderr].filter(Boolean).join("\n");
    change(call(chat, row.payload, row.timestamp), {
      done: true,
      ok: false,
      output: textOf(output || message),
      problem: output ? named(plainOutput(message)) : "",
      ms: details?.execution_time_ms ?? null,
    });
  },
  notification: notification,
  error: (chat, row) => note(chat, row, row.payload.message, "error"),
  gap: (chat, row) => {
    const { older } = row.payload;
    note(chat, row, older ? "" : GAP, "soft", "gap").before =
      older && row.id.slice("older ".length);
  },
  session_end: (chat, row) => {
    for (const item of chat.byKey.values())
      if ("done" in item && !item.done)
        change(item, { done: item.kind !== "tool", reason: "stopped" });
    note(chat, row, END[row.payload.reason] ?? "The session ended.");
  },
};

const GAP = "What came before this is not kept by the bridge any more.";

/** @type {Record<string, string>} */
const END = {
  user_request: "The session was ended.",
  timeout: "The session was closed: nobody was in it for some minutes.",
  error: "The session ended with an error.",
};

/** @param {Chat} chat @param {Row} row @param {string} [id] @returns {Answer} */
function answer(chat, row, id = /** @type {Of<"stream_end">} */ (row).payload.message_id) {
  const begun = { at: row.timestamp, text: "", done: false, reason: "", usage: null };
  return chat.byKey.get(`m:${id}`) ?? add(chat, `m:${id}`, { kind: "answer", ...begun });
}

/**
 * Return the key of the item that shows a row, of those that a search finds.
 *
 * @param {Chat} chat
 * @param {Free} row
 */
export function keyOf({ byKey }, { id, payload }) {
  const { message_id: answered, payload: { message_id: said } = {} } = payload;
  return [`m:${answered}`, `p:${said}`, `m:${id}`, id].find((key) => byKey.has(key));
}

/** @param {Chat} chat @param {ToolNews} payload @param {string} at @returns {Tool} */
function call(chat, payload, at) {
  const key = `t:${payload.tool_call_id}`;
  const { tool, agent = null } = payload;
  const plan = !chat.byKey.has(key) && planOf(chat, payload);
  if (plan) {
    chat.byKey.set(key, plan);
    change(plan);
  }
  /** @param {string} key @param {Partial<Tool>} known @returns {Tool} */
  const make = (key, known) => add(chat, key, { ...UNKNOWN, agent, at, tool, ...known });
  let item = chat.byKey.get(key);
  if (!item) {
    const row = agent
      ? rowOf(chat, agent, () => make(`a:${agent.id}`, { tool: "Agent", calls: [] }))
      : undefined;
    item = make(key, { callId: payload.tool_call_id, row });
  }
  takePlan(chat, item, payload);
  item.tool = tool; // a call turns out to be a question
  if (payload.params) item.params = payload.params;
  if (payload.description) item.description = payload.description;
  if (agent) item.agent = agent;
  if (payload.rule) item.rule = payload.rule.label;
  if (isSubagent(item)) item.calls ??= [];
  return item;
}

/** @type {Omit<Tool, "key" | "version" | "at" | "tool">} */
const UNKNOWN = {
  kind: "tool",
  callId: "",
  params: {},
  description: "",
  asked: false,
  atMachine: false, // it is decided there
  noted: "", // by which device
  reason: "", // why it goes on no more
  decision: "",
  was: null, // the parameters that it had asked with, where others ran
  agent: null, // the subagent whose call it is
  rewritten: false, // a hook of the agent changed it
  rule: "", // which approved it
  done: false,
  ok: true,
  output: "",
  diff: "",
  problem: "",
  ms: null,
};

/** @param {unknown} content */
const textOf = (content) =>
  typeof content === "string" ? content : JSON.stringify(content, null, 2);

// One that a busy agent refused waits again, before all others: its turn begins later (D71).
/** @param {Chat} chat @param {Of<"message_state">} row */
function messageState(chat, { payload: { message_id: id, state } }) {
  chat.states.set(id, state);
  const item = chat.byKey.get(`p:${id}`);
  if (!item) return;
  if (state === "given" && item.until && item.state !== "given") {
    // its turn begins there, and so has the answer, perhaps
    chat.items.splice(chat.items.indexOf(item), 1);
    const last = chat.items.at(-1);
    const begun = last?.kind === "answer" && !last.done && !last.text;
    chat.items.splice(chat.items.length - (begun ? 1 : 0), 0, item);
  }
  if (state !== "queued") chat.queued = chat.queued.filter((one) => one !== item);
  else if (!item.until && !chat.queued.includes(item)) chat.queued.unshift(item);
  change(item, { state });
}

/** @param {Chat} chat @param {Of<"agent_event">} row */
function hookEvent(chat, row) {
  const { event, payload } = row.payload;
  if (event === "UserPromptSubmit" && payload.context?.synthetic === true) {
    /** @type {Omit<Made, "key" | "version">} */
    const made = {
      kind: "made",
      at: row.timestamp,
      text: plainOutput(String(payload.prompt ?? "")),
    };
    add(chat, row.id, /** @type {any} */ (made));
  } else if (event === "UserPromptSubmit") {
    const isQueued = payload.queued === true;
    const state = isQueued ? "queued" : payload.message_id ? "bridge" : "";
    beginPlans(chat);
    /** @type {Prompt} */
    const item = add(chat, payload.message_id ? `p:${payload.message_id}` : row.id, {
      kind: "prompt",
      at: row.timestamp,
      text: String(payload.prompt ?? ""),
      attached: [...(payload.attachments ?? []), ...picturesIn(payload.prompt)],
      device: payload.device ?? "",
      source: payload.source ?? "",
      state: chat.states.get(payload.message_id) ?? state,
      until: payload.not_before ?? "",
    });
    if (item.until) return;
    if (item.state === "queued") chat.queued.push(item);
    else if (!isQueued) for (const one of chat.queued.splice(0)) change(one, { state: "bridge" });
  } else if (event === "Stop") {
    const { reason = "task_completed", message, error } = payload;
    const text = plainOutput(String(message || error || ""));
    const why = `The agent stopped: ${String(reason).replaceAll("_", " ")}.`;
    if (reason === "error") note(chat, row, named(text) || why, "error");
    else if (text) {
      const attached = picturesIn(payload);
      Object.assign(answer(chat, row, row.id), { text, attached, done: true });
    }
    if (!["error", "task_completed"].includes(reason)) note(chat, row, why);
  } else if (event === "SubagentStop" && endSubagent(chat, payload.context?.agent_id)) {
    // its row says so
  } else if (HAPPENED[event] && payload.context?.agent_type !== "") {
    const source = payload.environment?.source; // of a SessionStart
    note(chat, row, source === "resume" ? "The session goes on." : HAPPENED[event]);
  }
}

/** @type {Record<string, string>} */
const HAPPENED = {
  SessionStart: "The session began.",
  SubagentStop: "A subagent finished.",
  PreCompact: "The agent is shortening its memory of this conversation.",
};

// An approval and what became of it are shown by the tool's own card.
/** @param {Chat} chat @param {Of<"notification">} row */
function notification(chat, row) {
  const { notification_type: kind, title, body, data } = row.payload;
  if (kind === "approval_required" && data.tool_call_id) return;
  const item = chat.byKey.get(`t:${data.tool_call_id}`);
  if (kind === "approval_decided") {
    if (!item) return;
    const { decision, modifications } = data;
    const noResult = data.result === "none";
    const noted = item.atMachine && data.forwarded === false && data.device;
    change(item, { decision, noResult, decidedBy: named(body), noted });
    if (modifications) change(item, { params: modifications, was: item.was ?? item.params });
    return;
  }
  if (item && data.result === "none") change(item, { noResult: true, noted: "" });
  if (kind === "task_complete" || kind === "agent_idle") return;
  if (kind === "error" && data.reason !== undefined && body) return; // its Stop says it
  if (data.error_id) {
    // a failure is told in its session and to every device, and shown once
    if (chat.seen.has(data.error_id)) return;
    chat.seen.add(data.error_id);
  }
  const tone = kind === "error" ? "error" : "info";
  note(chat, row, body || title, tone, data.code === "MESSAGES_DISCARDED" ? "gap" : "note");
}
