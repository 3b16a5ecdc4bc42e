// What the views see: the state of this device and the commands it takes. One tab leads (it holds
// the socket); the others follow it over a BroadcastChannel. Tokens never go over the channel.

import { Engine, Unanswered } from "./engine.js";
import { openDatabase } from "./db.js";
import { emptyHome } from "../store/home.js";

const LOCK = "bridge-socket";
const CHANNEL = "bridge";
const SILENT_MS = 1500;

export class Model {
  constructor() {
    this.tab = crypto.randomUUID();
    this.home = emptyHome();
    this.outbox = [];
    this.problems = [];
    this.connection = { phase: "off" };
    this.identity = null;
    this.engine = null;
    this.listeners = new Set();
    this.asked = new Map();
  }

  /** Open the storage and, when this device is paired, take part in the connection. */
  async open() {
    this.db = await openDatabase();
    this.identity = await this.db.get("identity");
    this.home = (await this.db.get("home")) ?? emptyHome();
    this.outbox = (await this.db.get("outbox")) ?? [];
    if (this.identity) this.take();
  }

  /**
   * Become the device of a pairing link, which is stored before anything is sent.
   *
   * Another tab that is paired already starts anew with it.
   */
  async pair({ token, url, pin }) {
    const deviceId = this.identity?.deviceId ?? crypto.randomUUID();
    this.leave(true);
    this.identity = { url, pin, deviceId, tokens: [token], paired: new Date().toISOString() };
    await this.db.set("identity", this.identity);
    this.take();
  }

  /** Forget the bridge and all that was kept of it. */
  async forget() {
    this.leave(true);
    await this.db.wipe();
  }

  /** Call `listener(news)` on each change; returns the function that ends it. */
  follow(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  take() {
    this.channel = new BroadcastChannel(CHANNEL);
    this.channel.onmessage = ({ data }) => this.hear(data);
    addEventListener("pagehide", () => this.call("view", this.tab, null).catch(() => {}));
    document.addEventListener(
      "visibilitychange",
      () => document.visibilityState === "visible" && this.check(),
    );
    this.lead();
    this.check();
  }

  // Wait for the lock, then hold it as long as this tab lives or until a tab in front takes it.
  lead(steal = false) {
    const held = navigator.locks.request(LOCK, steal ? { steal: true } : {}, () => this.led());
    held.catch((error) => {
      if (error.name !== "AbortError") throw error;
      this.engine?.stop();
      this.engine = null;
      this.lead();
    });
  }

  async led() {
    this.engine = new Engine(this.db, await this.db.get("identity"), (news) => this.tell(news));
    await this.engine.start();
    await this.call("view", this.tab, this.viewed ?? null);
    this.apply({ news: "snapshot", ...this.engine.commands.snapshot() });
    this.channel.postMessage({ news: "snapshot", ...this.engine.commands.snapshot() });
    this.channel.postMessage({ led: true });
    return /** @type {Promise<void>} */ (new Promise((resolve) => (this.release = resolve)));
  }

  // A tab in front whose leader sleeps in the background takes the lead.
  async check() {
    if (this.engine) return;
    try {
      this.apply({ news: "snapshot", ...(await this.call("snapshot", { timeout: SILENT_MS })) });
      await this.call("view", this.tab, this.viewed ?? null);
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      if (!this.engine && document.visibilityState === "visible") this.lead(true);
    }
  }

  leave(everywhere = false) {
    if (everywhere) this.channel?.postMessage({ gone: true });
    this.engine?.stop();
    this.engine = null;
    this.release?.();
    this.channel?.close();
  }

  tell(news) {
    this.apply(news);
    this.channel.postMessage(news);
  }

  apply(news) {
    if (news.home) this.home = news.home;
    if (news.outbox) this.outbox = news.outbox;
    if (news.connection) this.connection = news.connection;
    if (news.problems) this.problems = news.problems;
    for (const listener of this.listeners) listener(news);
  }

  hear(data) {
    if (data.gone) {
      this.leave();
      this.apply({ news: "gone" });
    } else if (data.news) {
      this.apply(data);
    } else if (data.led) {
      this.call("view", this.tab, this.viewed ?? null).catch(() => {});
    } else if (data.call) {
      this.serve(data);
    } else if (data.answered) {
      const asked = this.asked.get(data.answered);
      if (!asked) return;
      clearTimeout(asked.timer);
      this.asked.delete(data.answered);
      if (data.error)
        asked.reject(
          Object.assign(data.lost ? new Unanswered(data.error) : new Error(data.error), {
            code: data.code,
          }),
        );
      else asked.resolve(data.result);
    }
  }

  async serve({ call, args, ref }) {
    if (!this.engine) return;
    try {
      this.channel.postMessage({
        answered: ref,
        result: await this.engine.commands[call](...args),
      });
    } catch (error) {
      this.channel.postMessage({
        answered: ref,
        error: error.message,
        code: error.code,
        lost: error instanceof Unanswered,
      });
    }
  }

  /**
   * Run a command of the engine, in this tab or in the one that leads.
   *
   * @returns {Promise<any>} what it gives; rejects with `Unanswered` when nobody leads or answers
   */
  async call(name, ...args) {
    if (this.engine) return this.engine.commands[name](...args);
    const timeout = name === "snapshot" ? args.pop().timeout : 100_000;
    const ref = crypto.randomUUID();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.asked.delete(ref);
        reject(new Unanswered("No tab holds the connection."));
      }, timeout);
      this.asked.set(ref, { resolve, reject, timer });
      this.channel?.postMessage({ call: name, args, ref });
    });
  }

  /** Say which session is on this tab's screen, or null. */
  view(session) {
    this.viewed = session;
    return this.identity ? this.call("view", this.tab, session).catch(() => {}) : Promise.resolve();
  }

  rowsBefore(session, place, count) {
    return this.db.rowsBefore(session, place, count);
  }

  draft(session) {
    return this.db.get(`draft:${session}`);
  }

  keepDraft(session, text) {
    return text ? this.db.set(`draft:${session}`, text) : this.db.remove(`draft:${session}`);
  }
}
