// Send this device's messages by the rules of store/outbox.js, and apply their answers.

import { make } from "../protocol/messages.js";
import { approvalKey } from "../store/approvals.js";
import { reduceHome } from "../store/home.js";
import { again, due, fail, keep, put, settle, withoutDecisions } from "../store/outbox.js";
import { Unanswered } from "./requests.js";

const TRIES = 3;
const TAKEN_OVER = "Another tab took the connection over.";
const NOT_KEPT = "What waits to be sent could not be stored";
const AGAIN_MS = 5000;
const WAKES = new Set(["SESS_NOT_ACTIVE", "SESS_CLOSED"]);

/** @param {string} id */
const bytesOf = (id) => `files:${id}`; // what the bytes of a message's files are kept under

/** @param {{ message: { payload: Free } }} _ */
const keyOf = ({ message: { payload } }) => approvalKey(payload.session_id, payload.tool_call_id);

export class Outgoing {
  /** @param {Engine} engine */
  constructor(engine) {
    this.engine = engine;
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<string, number>} */
    this.tries = new Map();
    /** @type {Map<string, Promise<(Blob | null)[]>>} */
    this.bytes = new Map(); // message → its files
    /** @type {Set<string>} */
    this.uploading = new Set(); // messages
    /** @type {Set<string>} */
    this.unkept = new Set(); // messages whose files this device has no room for
    /** @type {Set<string>} */
    this.shown = new Set(); // keys of the approvals that the bridge has shown on this connection
  }

  async load() {
    /** @type {Item[]} */
    const kept = (await this.engine.db.get("outbox")) ?? [];
    // The numbers of connections were another page's.
    this.items = kept.map((item) => ({ ...item, connection: 0, kept: true }));
  }

  /** @param {string} id */
  find(id) {
    return this.items.find(({ message }) => message.id === id);
  }

  /**
   * Send a message as soon as the rules allow, and store it beside that; returns its id once it is
   * stored. A page that dies before the bridge has answered sends it again.
   *
   * @template {Said["type"]} T
   * @param {T} type @param {Wire.Requests[T]} payload @param {Attaching[]} files
   */
  async put(type, payload, files = []) {
    const { engine } = this;
    if (engine.stopped) throw new Unanswered(TAKEN_OVER);
    const { socket } = engine;
    const connection = socket.ready ? socket.number : 0;
    const made = make(type, payload);
    const said = /** @type {Said} */ (made);
    const carried = files.map(({ blob, ...file }) => file);
    const { items, dropped } = put(this.items, said, Date.now(), connection, carried);
    const blobs = files.map(({ blob }) => blob);
    if (files.length) this.bytes.set(made.id, Promise.resolve(blobs));
    for (const { message } of dropped)
      engine.note("Too much waited to be sent; the oldest was dropped", message.type);
    await this.flush(items, files.length ? { [bytesOf(made.id)]: blobs } : {});
    const item = this.find(made.id);
    if (engine.stopped && item?.state === "waiting" && !item.kept) throw new Unanswered(TAKEN_OVER);
    return made.id;
  }

  /** Send what may be sent now, then store what became of it; done when that is over. */
  flush(all = this.items, beside = {}) {
    const { socket, requests, stopped } = this.engine;
    if (stopped || !socket.ready) return this.set(all, beside);
    const { items, send, join, upload } = due(all, {
      now: Date.now(),
      connection: socket.number,
      joined: requests.joined,
      open: this.shown,
    });
    for (const message of send) socket.send(message);
    const stored = this.set(items, beside);
    for (const item of upload) this.upload(item);
    for (const session of join)
      requests
        .join(session)
        .catch((error) => this.wake(session, error))
        .catch((error) => this.failSession(session, error));
    return stored;
  }

  // A file is sent under the same id until the bridge says that it has it; then the message goes.
  /** @param {Item} item */
  async upload(item) {
    const { id, payload } = item.message;
    if (this.uploading.has(id)) return;
    this.uploading.add(id);
    try {
      await (await import("./attachments.js")).uploadFiles(this, item);
    } catch (/** @type {any} */ error) {
      this.notUploaded(id, payload.session_id, error);
      return;
    } finally {
      this.uploading.delete(id);
    }
    this.flush();
  }

  /** @param {string} id */
  bytesOf(id) {
    const bytes =
      this.bytes.get(id) ?? this.engine.db.get(bytesOf(id)).then((found) => found ?? []);
    this.bytes.set(id, bytes);
    return bytes;
  }

  // The network may have failed, or the bridge: what it refuses for good fails in its words.
  /** @param {string} id @param {string} session @param {Failure} error */
  notUploaded(id, session, error) {
    const { requests } = this.engine;
    const isAnswer = typeof error.code === "string";
    const tries = (this.tries.get(id) ?? 0) + (isAnswer ? 1 : 0);
    this.tries.set(id, tries);
    if (error.code === "SESSION_CLOSED" && tries < TRIES)
      this.after(id, requests.join(session, true));
    else if (!isAnswer || error.code === "RATE_LIMIT_EXCEEDED" || /^5/.test(error.code ?? ""))
      setTimeout(() => this.flush(), AGAIN_MS);
    else this.fail(id, error);
  }

  // One that was closed because nobody was in it goes on with what waits for it (D60).
  /** @param {string} session @param {Failure} error */
  wake(session, error) {
    if (error.code !== "SESS_CLOSED") throw error;
    const { requests } = this.engine;
    return requests.joining.get(session) ?? requests.join(session, true);
  }

  /** @param {string} session @param {Failure} error */
  failSession(session, error) {
    if (error instanceof Unanswered) return; // the next connection tries again
    for (const { message } of this.items)
      if (message.payload.session_id === session) this.fail(message.id, error);
  }

  /** @param {string} id @param {{ message: string }} _ */
  fail(id, { message }) {
    this.set(fail(this.items, id, message));
  }

  /** @param {string} id */
  again(id) {
    this.set(again(this.items, id));
    this.flush();
  }

  /**
   * Note that the bridge has taken a message, or shows it as taken.
   *
   * @param {string} id
   */
  settle(id) {
    this.tries.delete(id);
    if (this.find(id)) this.set(settle(this.items, id));
  }

  /**
   * Send a failed message once more, as a new one.
   *
   * @param {string} id
   */
  async retry(id) {
    const item = this.find(id);
    if (!item) return;
    const { type, payload } = item.message;
    const blobs = item.files ? await this.bytesOf(id) : [];
    const files = item.files?.map((file, at) => {
      const blob = blobs[at] ?? null; // sent again: the bridge may not have it any more
      return { ...file, blob, attachment_id: blob ? "" : file.attachment_id };
    });
    this.settle(id);
    await this.put(type, payload, files);
  }

  /**
   * Take back a decision that has not been sent; tells whether there was one.
   *
   * @param {string} key
   */
  withdraw(key) {
    const item = this.items.find(
      (one) =>
        one.message.type === "approval_response" && one.state !== "sent" && keyOf(one) === key,
    );
    if (item) this.settle(item.message.id);
    return Boolean(item);
  }

  /**
   * Drop a decision about a call that is not open any more; return it, if there was one.
   *
   * @param {string} key
   * @returns {Decision | undefined}
   */
  dropDecisions(key) {
    const items = withoutDecisions(this.items, key);
    const dropped = this.items.find((item) => !items.includes(item));
    if (dropped) this.set(items);
    return /** @type {Free | undefined} */ (dropped?.message.payload)?.decision;
  }

  /**
   * Take an `error` that answers a message of the outbox; tells whether it did.
   *
   * @param {string} id
   * @param {Wire.Payloads["error"]} payload
   */
  refused(id, payload) {
    const item = this.find(id);
    if (!item) return false;
    const { type, payload: said } = item.message;
    const tries = (this.tries.get(id) ?? 0) + 1;
    this.tries.set(id, tries);
    const { requests } = this.engine;
    if (payload.code === "TOOL_ALREADY_DECIDED") {
      this.overtaken(item, payload);
    } else if (tries < TRIES && payload.code === "RATE_LIMITED") {
      setTimeout(() => this.again(id), 5000);
    } else if (tries < TRIES && type === "message" && WAKES.has(payload.code)) {
      this.after(id, requests.join(said.session_id, true));
    } else if (tries < TRIES && payload.code === "PROTO_SEQUENCE_ERROR") {
      requests.joined.delete(said.session_id);
      this.after(id, requests.join(said.session_id));
    } else {
      this.fail(id, payload);
    }
    return true;
  }

  /** @param {string} id @param {Promise<unknown>} joining */
  after(id, joining) {
    const again = () => this.again(id); // on the next connection, where this one is lost
    joining.then(again, (error) => (error instanceof Unanswered ? again() : this.fail(id, error)));
  }

  // Somebody else has decided otherwise: show and say the decision that stands.
  /** @param {Item} item @param {Wire.Payloads["error"]} _ */
  overtaken(item, { message, details }) {
    const { session_id: session, decision } = /** @type {Free} */ (item.message.payload);
    this.settle(item.message.id);
    const stands = { ...details, session_id: session };
    this.engine.setHome(
      reduceHome(this.engine.home, { type: "approval_recorded", payload: stands }),
    );
    this.engine.lost(keyOf(item), decision, message);
  }

  // The bytes of files go with their message.
  /** @param {Item[]} items @param {Free} beside */
  async set(items, beside = {}) {
    if (items === this.items || this.engine.stopped) return;
    const all = { ...beside };
    const ids = new Set(items.map(({ message }) => message.id));
    for (const { files, message } of this.items)
      if (files && !ids.has(message.id)) {
        this.bytes.delete(message.id);
        this.unkept.delete(message.id);
        all[bytesOf(message.id)] = null;
      }
    this.show(items);
    const isKept = await this.engine.keep("outbox", items, NOT_KEPT, all);
    if (!isKept)
      for (const { message } of items)
        if (bytesOf(message.id) in beside) this.unkept.add(message.id);
    const safe = isKept ? items.filter(({ message }) => !this.unkept.has(message.id)) : [];
    if (safe.some(({ kept }) => !kept)) this.show(keep(this.items, safe));
  }

  /** @param {Item[]} items */
  show(items) {
    this.items = items;
    this.engine.tell({ news: "outbox", outbox: items });
  }
}
