// Write texts for a person: hidden characters made visible, times, paths, tool calls in one line.

import { codePoint, ODD_ALL, ODD_CODE } from "../protocol/messages.js";
import { h } from "./dom.js";

const IN_NAMES = new RegExp(`[\\n\\t]|${ODD_ALL.source}`, "gu");

/**
 * Turn a file's name into nodes with hidden characters named, line breaks too.
 *
 * @param {string} name
 */
export const visibleName = (name) => visible(name, IN_NAMES);

/**
 * Turn a text into nodes in which every invisible character is named.
 *
 * @param {string} text
 */
export function visible(text, odd = ODD_ALL) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(odd)) {
    if (found.index > from) nodes.push(text.slice(from, found.index));
    nodes.push(h("span.odd", { title: "a character that cannot be seen" }, codePoint(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/**
 * Like `visible`, for code: a text that is run or compared.
 *
 * @param {string} text
 */
export const visibleCode = (text) => visible(text, ODD_CODE);

/** @param {string} code */
export const hasOdd = (code) => code.search(ODD_CODE) >= 0;

/**
 * Write a text in one line, for titles and rows, without invisible characters.
 *
 * @param {unknown} text
 */
export const oneLine = (text) =>
  String(text ?? "")
    .replace(ODD_ALL, "")
    .replace(/\s+/g, " ")
    .trim();

/**
 * Return an agent's name in one line; nothing of one that has not said its name.
 *
 * @param {unknown} agent
 */
export const agentName = (agent) => (agent === "primary-agent" ? "" : oneLine(agent));

/**
 * Join those parts that say something, with dots between them.
 *
 * @param {...(string | false | null | undefined)} parts
 */
export const dotted = (...parts) => parts.filter(Boolean).join(" · ");

/**
 * Return the last two parts of a path, in one line.
 *
 * @param {string | undefined} path
 */
export const shortPath = (path) =>
  oneLine(path).split("/").filter(Boolean).slice(-2).join("/") || oneLine(path);

/**
 * Name a session of which at least the id is known.
 *
 * @param {Session | undefined} session
 * @param {string} id
 */
export const titleOf = (session, id) =>
  oneLine(session?.title) || shortPath(session?.working_directory) || oneLine(id);

/**
 * Write how long ago a moment was, in few characters.
 *
 * @param {string} at
 */
export function ago(at, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(at)) / 1000));
  if (!Number.isFinite(seconds)) return "";
  return seconds < 10 ? "now" : span(seconds);
}

/**
 * Write a number of seconds in its greatest unit.
 *
 * @param {number} seconds
 */
export function span(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/**
 * Write a length of time in few characters.
 *
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`;
}

const DAY_MS = 86_400_000;
/** @type {Map<string, Intl.DateTimeFormat>} */
const clocks = new Map(); // to make one takes as long as a hundred uses of it

/**
 * Write a time in hours and minutes, and of another day than today its day: "14:02", "Mon 14:02",
 * "3 Nov, 14:02".
 *
 * @param {string} at
 */
export function clock(at, now = Date.now()) {
  const [then, today] = [new Date(at), new Date(now)];
  if (Number.isNaN(then.getTime())) return "";
  /** @type {Intl.DateTimeFormatOptions} */
  let day = {};
  if (then.getFullYear() !== today.getFullYear())
    day = { day: "numeric", month: "short", year: "numeric" };
  else if (then.toDateString() !== today.toDateString()) day = { day: "numeric", month: "short" };
  // the name of a weekday is of one day only as far as that
  if (day.day && Math.abs(then.getTime() - now) < 6 * DAY_MS) day = { weekday: "short" };
  const kind = Object.keys(day).join();
  const format =
    clocks.get(kind) ?? new Intl.DateTimeFormat([], { ...day, hour: "numeric", minute: "2-digit" });
  clocks.set(kind, format);
  return format.format(then);
}

/**
 * Write how many there are of something: "1 line".
 *
 * @param {number} count
 * @param {string} unit
 */
export const counted = (count, unit) => `${count} ${unit}${count === 1 ? "" : "s"}`;

/** @param {number} size */
export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const kilobytes = size / 1024;
  return kilobytes < 1024 ? `${Math.round(kilobytes)} KB` : `${(kilobytes / 1024).toFixed(1)} MB`;
}

const MAIN = ["command", "file_path", "pattern", "query", "path", "url", "prompt", "description"];
const ASIDE = ["description", "timeout", "run_in_background"]; // beside what a call does

/**
 * Return a tool call's command, file or query; "" when it has none.
 *
 * @param {Free | undefined} params
 */
export function subject(params) {
  const name = MAIN.find((key) => typeof params?.[key] === "string" && params[key]);
  return name ? params?.[name] : "";
}

/**
 * Return what a tool call does in full; only its file if there is a diff.
 *
 * @param {Free} params
 */
export function inputOf(params, diff = "") {
  const names = diff ? [] : Object.keys(params).filter((name) => !ASIDE.includes(name));
  if (!names.length) return subject(params);
  const isAlone = names.length === 1 && typeof params[names[0]] === "string";
  return isAlone ? params[names[0]] : JSON.stringify(params, null, 2);
}

/**
 * Write a tool call in one line: "Bash: npm test".
 *
 * @param {string} tool
 * @param {Free} params
 */
export function callLine(tool, params, description = "") {
  if (tool === "AskUserQuestion") return oneLine(params?.questions?.[0]?.question) || "A question";
  const main = subject(params);
  const isPath = main && (main === params.file_path || main === params.path);
  const about =
    (isPath ? shortPath(main) : oneLine(main)) ||
    oneLine(description).replace(new RegExp(`^${literally(tool)}:?\\s*`), "");
  return about ? `${oneLine(tool)}: ${about}` : oneLine(tool);
}

/** @param {string} text */
const literally = (text) => String(text).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/**
 * Name a subagent, so that several of a type are told apart.
 *
 * @param {Wire.SubAgent | null | undefined} agent
 */
export const subagentOf = (agent) =>
  agent
    ? oneLine(`subagent ${agent.type ?? ""} ${agent.id.replace(/^toolu_/, "").slice(0, 6)}`)
    : "";

export const QUIET = "No sign";
/** @type {Record<string, string>} */
const STATES = {
  approval: "Waits for you",
  error: "Error",
  finished: "Finished",
  working: "Working",
  machine: "Waits at the machine",
  paused: "Paused",
  idle: "Idle",
  ended: "Ended",
};

/**
 * Say what a session does; `state`: its word of `attention`. One that waits is silent by nature.
 *
 * @param {Session} session
 * @param {string} state
 * @param {boolean} here whether it asks here too
 */
export function stateWords(session, state, here) {
  const isObserved = session.kind === "observed";
  if (session.quiet_since && state === "working")
    return `${QUIET} since ${clock(session.quiet_since)}`;
  if (session.resumable && state === "ended") return "Resumable";
  if (session.failed && state === "ended") return "Ended after an error";
  return STATES[isObserved && state === "approval" && !here ? "machine" : state];
}

/**
 * Say which call a session runs or waits with, and for how long; empty when there is none.
 *
 * @param {Session} session
 * @param {string} state
 */
export const doingWords = ({ doing }, state) =>
  doing && ["approval", "working", "machine"].includes(state)
    ? `${oneLine(doing.summary || doing.tool)} · ${ago(doing.since)}`
    : "";
