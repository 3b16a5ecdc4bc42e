// What the views see: the state of this device and the commands it takes. One tab leads (it holds
// the socket); the others follow it over a BroadcastChannel. Tokens never go over the channel.

import { emptyHome } from "../store/home.js";
import { openDatabase } from "./db.js";
import { Engine } from "./engine.js";
import { Unanswered } from "./requests.js";

const LOCK = "bridge-socket";
const CHANNEL = "bridge";
const SILENT_MS = 1500;
const PATIENT_MS = 100_000; // longer than any request of the engine takes

export class Model {
  constructor() {
    this.tab = crypto.randomUUID();
    this.home = emptyHome();
    this.outbox = [];
    this.problems = [];
    this.connection = { phase: "off" };
    this.identity = null;
    this.engine = null;
    this.leader = ""; // the tab that leads, as far as this one knows
    this.listeners = new Set();
    this.asked = new Map();
    /** @type {Promise<void>} some tab leads */
    this.led = new Promise((resolve) => (this.foundLeader = resolve));
  }

  /** Read what this device keeps. */
  async open() {
    this.db = await openDatabase();
    this.identity = await this.db.get("identity");
    this.home = { ...emptyHome(), ...(await this.db.get("home")) };
    this.outbox = (await this.db.get("outbox")) ?? [];
  }

  /** Become the device of a pairing link, before `connect`; other tabs start anew with it. */
  async pair({ token, url, pin }) {
    const deviceId = this.identity?.deviceId ?? crypto.randomUUID();
    this.identity = { url, pin, deviceId, tokens: [token], paired: new Date().toISOString() };
    await this.db.set("identity", this.identity);
    const others = new BroadcastChannel(CHANNEL);
    others.postMessage({ gone: true });
    others.close();
  }

  /** Forget the bridge and all that was kept of it. */
  async forget() {
    this.channel.postMessage({ gone: true });
    this.leave();
    await this.db.wipe();
  }

  /** Call `listener(news)` on each change; returns the function that ends it. */
  follow(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Take part in this device's connection, as the tab that leads or as one that follows. */
  connect() {
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
    const held = navigator.locks.request(LOCK, steal ? { steal: true } : {}, () => this.takeLead());
    held.catch((error) => {
      if (error.name !== "AbortError") throw error;
      this.engine?.stop();
      this.engine = null;
      this.lead();
    });
  }

  async takeLead() {
    const identity = await this.db.get("identity");
    if (!identity) return null; // forgotten meanwhile
    this.engine = new Engine(this.db, identity, (news) => this.tell(news));
    const lasting = /** @type {Promise<void>} */ (
      new Promise((resolve) => (this.release = resolve))
    );
    this.foundLeader();
    this.giveUp();
    await this.engine.started;
    await this.call("view", this.tab, this.viewed ?? null);
    this.tell({ news: "snapshot", ...(await this.call("snapshot")) });
    this.channel.postMessage({ led: this.tab });
    return lasting;
  }

  // A tab in front whose leader sleeps in the background takes the lead.
  async check() {
    if (this.engine) return;
    const before = this.leader;
    try {
      this.apply({ news: "snapshot", ...(await this.call("snapshot")) });
      await this.call("view", this.tab, this.viewed ?? null);
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      const isNew = this.engine || this.leader !== before; // one that took the lead meanwhile
      if (!isNew && document.visibilityState === "visible") this.lead(true);
    }
  }

  leave() {
    this.engine?.stop();
    this.engine = null;
    this.release?.();
    this.channel.close();
  }

  tell(news) {
    this.apply(news);
    this.channel.postMessage({ ...news, from: this.tab });
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
    } else if (data.led) {
      this.leader = data.led;
      this.foundLeader();
      this.giveUp(); // the tab that was asked is gone
      this.call("view", this.tab, this.viewed ?? null).catch(() => {});
    } else if (data.news) {
      // A tab that slept may not know yet that another one has taken the lead.
      const isLate = this.engine || (this.leader && this.leader !== data.from);
      if (!isLate) this.apply(data);
    } else if (data.call) {
      this.serve(data);
    } else if (data.answered) {
      this.settle(data);
    }
  }

  async serve({ call, args, ref }) {
    if (!this.engine) return;
    const answer = { answered: ref, from: this.tab };
    try {
      this.channel.postMessage({ ...answer, result: await this.call(call, ...args) });
    } catch (error) {
      const lost = error instanceof Unanswered;
      this.channel.postMessage({ ...answer, error: error.message, code: error.code, lost });
    }
  }

  giveUp() {
    const asked = [...this.asked.values()];
    this.asked.clear();
    for (const { reject, timer } of asked) {
      clearTimeout(timer);
      reject(new Unanswered("The tab that held the connection is gone. Try again."));
    }
  }

  settle({ answered, from, result, error, code, lost }) {
    const asked = this.asked.get(answered);
    if (!asked) return;
    clearTimeout(asked.timer);
    this.asked.delete(answered);
    this.leader = from;
    this.foundLeader();
    if (error === undefined) asked.resolve(result);
    else asked.reject(Object.assign(lost ? new Unanswered(error) : new Error(error), { code }));
  }

  /**
   * Run a command of the engine, in this tab or in the one that leads.
   *
   * @returns {Promise<any>} what it gives; rejects with `Unanswered` when nobody leads or answers
   */
  async call(name, ...args) {
    if (this.engine) {
      await this.engine.started;
      return this.engine?.commands[name](...args);
    }
    if (name !== "snapshot") {
      await this.led;
      if (this.engine) return this.call(name, ...args);
    }
    const ref = crypto.randomUUID();
    return new Promise((resolve, reject) => {
      const silent = () => {
        this.asked.delete(ref);
        reject(new Unanswered("No tab holds the connection. Try again."));
      };
      const timer = setTimeout(silent, name === "snapshot" ? SILENT_MS : PATIENT_MS);
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
