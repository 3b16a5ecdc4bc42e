// Make messages for the bridge's WebSocket, read received ones, and name what cannot be seen in
// their texts. Pure.

export const CLIENT_VERSION = "1.1.0";

// Rows of the log: kept, shown in order, acknowledged.
const ROWS = new Set(
  (
    "session_started session_end agent_event tool_call approval_required approval_state " +
    "presence_state tool_result tool_error notification message_state stream_start stream_chunk " +
    "stream_end"
  ).split(" "),
);

// Fields that the client needs of a message, and their kinds.
/** @type {Record<string, Record<string, string>>} */
const SHAPES = {
  connection_ack: { connection_mode: "string", active_sessions: "array" },
  connection_error: { code: "string", message: "string" },
  health_status: { ready: "boolean", warnings: "array", requires_acknowledgment: "boolean" },
  acknowledgment_accepted: { warning_code: "string", ready: "boolean" },
  session_ready: { session_id: "string" },
  session_options: { session_id: "string", options: "array", commands: "array" },
  session_started: { session_id: "string" },
  session_end: { session_id: "string" },
  session_update: { session: "object" },
  agent_event: { session_id: "string", event: "string", payload: "object" },
  tool_call: { session_id: "string", tool_call_id: "string", tool: "string", params: "object" },
  approval_required: {
    session_id: "string",
    tool_call_id: "string",
    tool: "string",
    params: "object",
    risk_level: "string",
    source: "string",
  },
  approval_recorded: {
    session_id: "string",
    tool_call_id: "string",
    decision: "string",
    forwarded: "boolean",
  },
  approval_state: { session_id: "string", tool_call_id: "string", answerable: "boolean" },
  presence_state: { away: "boolean" },
  tool_result: { session_id: "string", tool_call_id: "string", result: "object" },
  tool_error: { session_id: "string", tool_call_id: "string", message: "string" },
  notification: { notification_type: "string", title: "string", body: "string", data: "object" },
  message_state: { session_id: "string", message_id: "string", state: "string" },
  stream_start: { session_id: "string", message_id: "string" },
  stream_chunk: { session_id: "string", message_id: "string", content: "string" },
  stream_end: { session_id: "string", message_id: "string", finish_reason: "string" },
  replay_buffer: { session_id: "string", messages: "array", complete: "boolean" },
  git_status_response: { session_id: "string", branch: "string", changes: "array" },
  git_push_response: { session_id: "string", remote: "string", commits: "array" },
  git_diff_response: { session_id: "string", files: "array" },
  file_search_response: { session_id: "string", paths: "array", more: "boolean" },
  file_list_response: { session_id: "string", path: "string", entries: "array" },
  file_read_response: { session_id: "string", path: "string", content: "string" },
  history_list_response: { sessions: "array", more: "boolean" },
  session_search_response: { hits: "array", more: "boolean" },
  error: { code: "string", message: "string" },
  push_state: { subscribed: "boolean" },
  notify_state: { kinds: "array", muted: "array", reminder_minutes: "number", detail: "string" },
};

/** @param {unknown} value */
const kindOf = (value) => (Array.isArray(value) ? "array" : value === null ? "null" : typeof value);

/**
 * Make a message for the bridge; `id` is a fresh UUID unless one is given.
 *
 * @template {keyof Wire.Requests} T
 * @param {T} type @param {Wire.Requests[T]} [payload] @returns {Sent<T>}
 */
export function make(type, payload, id = crypto.randomUUID(), now = new Date()) {
  const message = { type, timestamp: now.toISOString() };
  return /** @type {any} */ (payload === undefined ? message : { ...message, id, payload });
}

/**
 * Read a text that came over the socket.
 *
 * @param {string} text
 * @returns {{message: Wire.Message} | Strange & {message?: undefined}} the message, or why it
 *   cannot be shown; that is kept for "What is wrong?".
 */
export function read(text) {
  let message;
  try {
    message = JSON.parse(text);
  } catch {
    return { problem: "not JSON", type: "", text: text.slice(0, 500) };
  }
  const problem = faultOf(message);
  if (problem) return aside(message, problem, text);
  if (text.includes('"approval_required"')) keepNumbers(text, message);
  return { message };
}

const NUMBERS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;

// Give each approval its parameters as JSON in `exact`, where JavaScript holds other numbers than
// came: a long one, 1.0, -0.
/** @param {string} text @param {any} message */
function keepNumbers(text, message) {
  const mark = crypto.randomUUID();
  const marked = text.replace(NUMBERS, (part) =>
    part.startsWith('"') || String(Number(part)) === part ? part : `"${mark}${part}"`,
  );
  if (marked === text) return;
  /** @param {any} one @returns {any[]} */
  const rows = (one) => (Array.isArray(one.payload.messages) ? one.payload.messages : [one]);
  const whole = rows(JSON.parse(marked));
  rows(message).forEach((row, at) => {
    if (row?.type !== "approval_required") return;
    const params = JSON.stringify(whole[at].payload?.params ?? {});
    if (params.includes(mark)) row.exact = params.replace(RegExp(`"${mark}(.*?)"`, "g"), "$1");
  });
}

/**
 * Write a message for the socket; `modifications` are JSON already, which stays as it is.
 *
 * @param {{ payload: Free }} message
 */
export function write(message) {
  const { modifications } = message.payload ?? {};
  const text = JSON.stringify(message);
  if (typeof modifications !== "string") return text;
  const name = '"modifications":';
  return text.replace(name + JSON.stringify(modifications), () => name + modifications);
}

/** @param {any} message @param {string} problem @param {string} text */
const aside = (message, problem, text) => ({
  problem,
  type: String(message?.type ?? ""),
  text: text.slice(0, 500),
});

/**
 * Say what is wrong with a decoded message, or return "".
 *
 * @param {any} message
 */
export function faultOf(message) {
  if (kindOf(message) !== "object" || typeof message.type !== "string") return "no message";
  if (message.type === "heartbeat_pong") return "";
  if (!Object.hasOwn(SHAPES, message.type)) return "unknown type";
  const shape = SHAPES[message.type];
  if (kindOf(message.payload) !== "object" || typeof message.id !== "string")
    return "no payload or no id";
  const wrong = Object.keys(shape).filter(
    (field) => kindOf(message.payload[field]) !== shape[field],
  );
  return wrong.length ? `wrong or missing: ${wrong.join(", ")}` : "";
}

/**
 * Tell whether a message is a row of the log (kept and acknowledged). An `error` is one unless it
 * answers a message of this client, which its id tells.
 *
 * @param {Free} message
 */
export const isRow = (message) =>
  ROWS.has(message.type) || (message.type === "error" && Boolean(message.payload.session_id));

/**
 * Tell whether every device gets such a row, also one that has not joined its session.
 *
 * @param {{ type: string } | undefined} row
 */
export const isToldToAll = (row) =>
  /^(approval_required|notification|session_started|session_end)$/.test(row?.type ?? "");

/**
 * Return the session that a message is about, or null if it is for all devices.
 *
 * @param {any} message
 */
export const sessionOf = (message) => message.payload?.session_id ?? null;

/**
 * The rows of a `replay_buffer`; where the bridge has older ones that are missing here, or has
 * discarded them, first a row that says so.
 *
 * @param {Wire.Envelope<"replay_buffer">} message
 * @param {(strange: Strange) => void} strange takes what is no row, as `read` gives it
 * @param {boolean} isPage whether this device has asked for it, and may ask for more
 * @returns {Row[]}
 */
export function rowsOf({ id, timestamp, payload }, strange = () => {}, isPage = false) {
  const rows = /** @type {Row[]} */ (payload.messages).filter((row) => {
    const problem = faultOf(row) || (isRow(row) ? "" : "no row of a session");
    if (problem) strange(aside(row, problem, JSON.stringify(row)));
    return !problem;
  });
  const older = payload.older && (isPage || !payload.complete);
  if (payload.complete && !older) return rows;
  return [signBefore(rows[0] ?? { id, timestamp }, payload.session_id, older), ...rows];
}

/**
 * Make the row that says what is missing before another one: not kept any more, or to be loaded.
 *
 * @param {{ id: string; timestamp: string }} next
 * @param {string} session_id
 * @param {boolean} [older] the bridge may have it
 * @returns {Gap}
 */
export const signBefore = ({ id, timestamp }, session_id, older) => ({
  type: "gap",
  id: `${older ? "older" : "gap"} ${id}`,
  timestamp,
  payload: older ? { session_id, older } : { session_id },
});

const PICTURE = "\\p{Extended_Pictographic}";
// Within one emoji, and what makes it one.
const JOINER = `(?<=[${PICTURE}\\ufe0f\\u{1f3fb}-\\u{1f3ff}])\\u200d(?=${PICTURE})`;
const JOINED = `${JOINER}|(?<=${PICTURE})\\ufe0f`;
// Controls, bidi marks, zero width, tags, variation selectors that change what is read.
const HIDDEN =
  String.raw`\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5` +
  String.raw`\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffc` +
  String.raw`\u{e0000}-\u{e0fff}`;
// Blanks that are no space, and more that has no width: prose may have them, a command should not.
const BLANK =
  String.raw`\u00a0\u034f\u1680\u2000-\u200a\u202f\u205f\u2800\u3000\ufe00-\ufe0f` +
  String.raw`\u{13430}-\u{13438}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}`;
/** Each such character, and what else a command should not have. */
export const ODD_ALL = new RegExp(`(?!${JOINED})[${HIDDEN}]`, "gu");
export const ODD_CODE = new RegExp(`(?!${JOINED})[${HIDDEN}${BLANK}]`, "gu");

/**
 * Write a hidden character as people name it: "U+202E".
 *
 * @param {string} character
 */
export const codePoint = (character) =>
  `U+${Number(character.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}`;

/**
 * Return a text with every hidden character written as its name.
 *
 * @param {unknown} text
 */
export const named = (text) => String(text).replace(ODD_ALL, codePoint);
