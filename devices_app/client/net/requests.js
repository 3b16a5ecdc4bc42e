// Send requests that the bridge answers at once, over the socket or over HTTP.

import { make, named } from "../protocol/messages.js";

const ANSWER_MS = 20_000;
const UNKNOWN = "The bridge does not know this session, or has forgotten it.";
const START_MS = 90_000; // an agent starts, or is woken

/** Report a request without a connection, or without an answer in time. */
export class Unanswered extends Error {}

export class Requests {
  /** @param {() => any} socket the socket at this moment */
  constructor(socket) {
    this.socket = socket;
    /** @type {Map<string, Waiting>} */
    this.waiting = new Map();
    /** @type {Set<string>} */
    this.joined = new Set(); // sessions, on this connection
    /** @type {Map<string, Promise<any>>} */
    this.joining = new Map();
    /** @type {Map<string, [string, string, More]>} */
    this.begun = new Map(); // session → agent, directory and more, until it is there
    /** @type {((is: boolean) => void)[]} */
    this.waiters = []; // for a connection
  }

  /** Wait for a connection; rejects with `Unanswered` when there is none soon. */
  online() {
    if (this.socket().ready) return Promise.resolve(true);
    return new Promise((resolve, reject) => {
      const late = () => reject(new Unanswered("There is no connection to the bridge."));
      setTimeout(late, 10_000);
      this.waiters.push(resolve);
    });
  }

  connected() {
    for (const go of this.waiters.splice(0)) go(true);
  }

  /**
   * Send a message and return its answer; rejects with `Unanswered` or what the bridge says.
   *
   * @param {keyof Wire.Requests} type @param {any} payload @returns {Promise<any>}
   * @param {Row} [anchor] the kept row before which older ones are asked for
   */
  send(type, payload, timeout = ANSWER_MS, anchor = undefined) {
    const socket = this.socket();
    if (!socket.ready)
      return Promise.reject(new Unanswered("There is no connection to the bridge."));
    const message = make(type, payload);
    return new Promise((resolve, reject) => {
      const late = () => reject(new Unanswered("The bridge did not answer in time."));
      setTimeout(late, timeout); // it stays in `waiting`: a late answer is known as one
      this.waiting.set(message.id, { resolve, reject, anchor });
      socket.send(message);
    });
  }

  /**
   * Join a session on this connection, once; `resume` wakes one that is paused or was closed, or
   * with `how` takes one over.
   *
   * @param {string} session
   * @param {Free} how
   */
  join(session, resume = false, how = {}) {
    if (this.joined.has(session) && !resume) return Promise.resolve(null);
    const under = this.joining.get(session);
    if (under && !resume) return under;
    const [agent, directory, more] = this.begun.get(session) ?? ["", "", {}];
    const payload = { agent, session_id: session, working_directory: directory, resume };
    const asked = { ...payload, ...more, ...how };
    const joining = this.send("session_start", asked, resume || agent ? START_MS : ANSWER_MS);
    // Only one that the bridge does not know would be begun, and for that a directory is missing.
    joining.catch((error) => {
      if (!resume && !agent && error.code === "FILE_INVALID_PATH") error.message = UNKNOWN;
    });
    this.joining.set(session, joining);
    const over = () => this.joining.delete(session);
    joining.then(over, over);
    return joining;
  }

  /** @param {string} id */
  has(id) {
    return this.waiting.has(id);
  }

  /**
   * Give a message to the request that waits for it.
   *
   * @param {Wire.Message} message
   */
  answer(message) {
    const { type, id, payload } = message;
    if (type === "session_ready") this.joined.add(payload.session_id);
    if (type === "session_ready") this.begun.delete(payload.session_id);
    const request = this.waiting.get(id);
    this.waiting.delete(id);
    if (!request) return;
    if (type !== "error") request.resolve(message);
    else {
      const { code, details } = payload;
      request.reject(Object.assign(new Error(named(payload.message)), { code, details }));
    }
  }

  /** End every waiting request: the connection is gone. */
  lose(reason = "The connection was lost before the answer came.") {
    this.joined.clear();
    this.joining.clear();
    const requests = [...this.waiting.values()];
    this.waiting.clear();
    for (const { reject } of requests) reject(new Unanswered(reason));
  }
}

// Ask the bridge over HTTP for a path below `/api/v1`; returns the decoded body, or throws an Error
// with `code` and a message for a person.
/** @param {string} path @param {string | undefined} token */
export async function fetchJson(path, token) {
  const response = await fetch(`/api/v1${path}`, {
    headers: { Authorization: `Bearer ${token}` },
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const body = await response.json();
  if (!response.ok)
    throw Object.assign(new Error(named(body.message ?? response.statusText)), {
      code: body.code ?? String(response.status),
    });
  return body;
}

export const isIOS = // an iPad calls itself a Macintosh
  /iPhone|iPad|Macintosh/.test(navigator.userAgent) && navigator.maxTouchPoints > 0;

/** Ask for the page's headers only; null when its own origin does not answer. */
export const askOrigin = () =>
  fetch("/app/", {
    method: "HEAD",
    cache: "no-store",
    credentials: "omit",
    redirect: "manual",
    signal: AbortSignal.timeout(5000),
  }).then(
    (response) => (response.status < 500 ? response : null),
    () => null,
  ); // else a proxy's
