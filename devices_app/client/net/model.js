// Give the views this device's state and commands. One tab leads (it holds the socket); the others
// follow it over a BroadcastChannel. Tokens never go over the channel.

import { emptyHome } from "../store/home.js";
import { inMemory, openDatabase } from "./db.js";
import { Engine } from "./engine.js";
import { Unanswered } from "./requests.js";

const CHANNEL = "bridge";
const SILENT_MS = 1500; // a tab that leads and is awake says sooner that it takes a command
const PATIENT_MS = 140_000; // longer than any request of the engine takes
const UNASKED = new Set(["snapshot", "view"]); // commands that no person gives
const SILENCE = Symbol("silence");

const isInFront = () => document.visibilityState === "visible";

export class Model {
  constructor() {
    /** @type {Store} */
    this.db; // once it is open
    /** @type {BroadcastChannel} */
    this.channel; // once it takes part
    this.tab = crypto.randomUUID();
    this.home = emptyHome();
    /** @type {Item[]} */
    this.outbox = [];
    /** @type {Problem[]} */
    this.problems = [];
    /** @type {Connection} */
    this.connection = { phase: "off" };
    /** @type {Identity | null} */
    this.identity = null;
    /** @type {Set<string>} */
    this.folded = new Set(); // directories whose sessions are folded in the list
    /** @type {Engine | null} */
    this.engine = null;
    this.leader = ""; // the tab that leads, as far as this one knows
    /** @type {Set<Tell>} */
    this.listeners = new Set();
    /** @type {Map<string, Asked>} */
    this.asked = new Map();
  }

  /** Read this device's stored data. */
  async open() {
    this.db = await openDatabase();
    const names = ["identity", "home", "outbox", "folded"];
    const [identity, home, outbox, folded] = await Promise.all(
      names.map((name) => this.db.get(name)),
    );
    this.identity = identity;
    this.home = { ...emptyHome(), ...home };
    this.outbox = outbox ?? [];
    this.folded = new Set(folded);
  }

  /**
   * Fold or unfold a directory's sessions in the list, on this phone.
   *
   * @param {string} directory
   */
  fold(directory) {
    if (!this.folded.delete(directory)) this.folded.add(directory);
    return this.db.set("folded", [...this.folded], { durability: "relaxed" });
  }

  /**
   * Become the device of a pairing link, before `connect`; other tabs start anew with it.
   *
   * @param {{ token: string; url: string; pin: string }} _
   */
  async pair({ token, url, pin }) {
    const deviceId = this.identity?.deviceId ?? crypto.randomUUID();
    // a code that was used before must not cost the pairing that there is
    const tokens = [...(this.identity?.tokens.slice(-1) ?? []), token];
    this.identity = { url, pin, deviceId, tokens, paired: new Date().toISOString() };
    await this.db.set("identity", this.identity).catch((/** @type {any} */ error) => {
      if (error.name !== "QuotaExceededError") throw error;
      this.db = inMemory("it has no room for this page"); // everything else works
      return this.db.set("identity", this.identity);
    });
    const others = new BroadcastChannel(CHANNEL);
    others.postMessage({ gone: true });
    others.close();
  }

  /** Forget the bridge, and delete all data from it. */
  async forget() {
    this.channel.postMessage({ gone: true });
    this.leave();
    this.identity = null;
    await this.db.wipe();
  }

  /**
   * Call `listener(news)` on each change; returns the function that ends it.
   *
   * @param {Tell} listener
   */
  follow(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Take part in this device's connection, as the tab that leads or as one that follows. */
  connect() {
    this.channel = new BroadcastChannel(CHANNEL);
    this.channel.onmessage = ({ data }) => this.hear(data);
    // A page that is put to sleep lets go of the connection, so that another tab can have it.
    addEventListener("pagehide", () => this.rest());
    document.addEventListener("freeze", () => this.rest());
    addEventListener("pageshow", ({ persisted }) => persisted && this.wake());
    document.addEventListener("resume", () => this.wake());
    document.addEventListener("visibilitychange", () => isInFront() && this.wake());
    this.wake();
  }

  wake() {
    this.asleep = false;
    if (!this.engine) this.lead();
    this.check();
  }

  rest() {
    this.asleep = true;
    this.channel.postMessage({ call: "view", args: [this.tab, null] });
    this.waiting?.abort();
    if (this.engine) this.apply({ news: "connection", connection: { phase: "off" } });
    this.stop();
    this.db.abort({ reading: true });
  }

  /**
   * Wait for the lock, then hold it until this tab rests or a tab in front takes it.
   *
   * @returns {Promise<void>} resolves when this tab has begun to lead
   */
  lead(steal = false) {
    this.waiting?.abort();
    const waiting = (this.waiting = new AbortController());
    return new Promise((resolve) => {
      const options = steal ? { steal } : { signal: waiting.signal };
      /** @type {Engine | null} */
      let engine = null; // the one of this request, once it was granted
      const led = () => {
        const lasting = this.led();
        ({ engine } = this);
        resolve();
        return lasting;
      };
      navigator.locks.request("bridge-socket", options, led).catch((error) => {
        if (error.name !== "AbortError") throw error;
        if (!engine || engine !== this.engine) return; // not wanted any more
        this.stop(); // taken by another tab
        this.lead();
      });
    });
  }

  async led() {
    if (this.asleep) return null; // it fell asleep before this was granted
    this.stop(); // of two requests that were granted in one moment the first
    const lasting = /** @type {Promise<void>} */ (
      new Promise((resolve) => (this.release = resolve))
    );
    const engine = new Engine(this.db, /** @type {Identity} */ (this.identity), (news) =>
      this.tell(news),
    );
    this.engine = engine;
    this.loseLeader();
    // Of a page that sleeps the storage does not answer.
    await Promise.race([engine.started, lasting]);
    if (engine.stopped) return null;
    engine.commands.view(this.tab, this.viewed ?? null);
    this.tell({ news: "snapshot", ...engine.commands.snapshot() });
    this.channel.postMessage({ led: this.tab });
    return lasting;
  }

  // Take over what the leading tab shows; or the lead, when only this tab is in front: a browser
  // slows the others down, until the bridge takes them for gone.
  async check() {
    if (this.engine) return;
    try {
      const { isInFront: isLeaderInFront, ...snapshot } = await this.call("snapshot");
      if (this.engine) return;
      this.apply({ news: "snapshot", ...snapshot });
      if (isInFront() && !isLeaderInFront) this.lead(true);
      else await this.call("view", this.tab, this.viewed ?? null);
    } catch (/** @type {any} */ error) {
      if (!(error instanceof Unanswered)) throw error;
    }
  }

  stop() {
    this.engine?.stop();
    this.engine = null;
    this.release?.();
  }

  leave() {
    this.waiting?.abort();
    this.stop();
    this.channel.close();
  }

  /** @param {News} news */
  tell(news) {
    this.apply(news);
    this.channel.postMessage({ ...news, from: this.tab });
  }

  /** @param {News} news */
  apply(news) {
    if (news.home) this.home = news.home;
    if (news.outbox) this.outbox = news.outbox;
    if (news.connection) this.connection = news.connection;
    if (news.problems) this.problems = news.problems;
    for (const listener of this.listeners) listener(news);
  }

  /** @param {any} data */
  hear(data) {
    if (data.gone) {
      this.leave();
      this.apply({ news: "gone" });
    } else if (data.led) {
      this.leader = data.led;
      this.loseLeader();
      this.call("view", this.tab, this.viewed ?? null).catch(() => {});
    } else if (data.news) {
      // A tab that slept may not know yet that another one has taken the lead.
      const isLate = this.engine || (this.leader && this.leader !== data.from);
      if (!isLate) this.apply(data);
    } else if (data.call) {
      this.serve(data);
    } else if (data.taken) {
      this.asked.get(data.taken)?.taken();
    } else if (data.answered) {
      this.settle(data);
    }
  }

  // An old command was sent to a tab that slept: another tab has carried it out by now.
  /** @param {any} _ */
  async serve({ call, args, ref, until = Infinity }) {
    if (!this.engine || Date.now() > until) return;
    const answer = { answered: ref, from: this.tab };
    this.channel.postMessage({ taken: ref });
    try {
      this.channel.postMessage({ ...answer, result: await this.run(call, args) });
    } catch (/** @type {any} */ error) {
      const { code, details } = error;
      const rest = { code, details, lost: error instanceof Unanswered };
      this.channel.postMessage({ ...answer, error: error.message, ...rest });
    }
  }

  // Another tab leads from here on, perhaps this one: commands to the last one are sent again,
  // unless that one has begun to carry them out.
  loseLeader() {
    for (const { lost } of [...this.asked.values()]) lost();
  }

  /** @param {any} _ */
  settle({ answered, from, result, error, code, details, lost }) {
    const asked = this.asked.get(answered);
    if (!asked) return;
    this.leader = from;
    if (error === undefined) asked.resolve(result);
    else
      asked.reject(
        Object.assign(lost ? new Unanswered(error) : new Error(error), { code, details }),
      );
  }

  /** @param {keyof Commands} name @param {any[]} args */
  async run(name, args) {
    const engine = /** @type {Engine} */ (this.engine);
    await engine.started;
    if (engine.stopped) throw new Unanswered("Another tab took the connection over. Try again.");
    if (!UNASKED.has(name)) engine.socket.feed({ kind: "wake" }); // a tap, perhaps in another tab
    return /** @type {Function} */ (engine.commands[name])(...args);
  }

  /**
   * Run a command of the engine, in this tab or in the one that leads; a tab in front takes the
   * lead when nobody answers. Rejects with `Unanswered` when nobody leads or answers.
   *
   * @template {keyof Commands} T
   * @param {T} name @param {Parameters<Commands[T]>} args
   * @returns {Promise<Awaited<ReturnType<Commands[T]>>>}
   */
  async call(name, ...args) {
    while (!this.engine) {
      const { leader } = this;
      const found = await this.callLeader(name, args);
      if (found !== SILENCE) return found;
      if (this.engine || this.leader !== leader) continue;
      if (!isInFront()) throw new Unanswered("No tab holds the connection. Try again.");
      await this.lead(true);
    }
    return this.run(name, args);
  }

  /** @param {string} name @param {any[]} args */
  callLeader(name, args) {
    const ref = crypto.randomUUID();
    return new Promise((resolve, reject) => {
      /** @param {(value: any) => void} give */
      const end = (give) => (/** @type {unknown} */ value) => {
        clearTimeout(asked.timer);
        this.asked.delete(ref);
        give(value);
      };
      const silent = () => end(resolve)(SILENCE);
      const gone = () =>
        end(reject)(new Unanswered("The tab that held the connection is gone. Try again."));
      const asked = {
        resolve: end(resolve),
        reject: end(reject),
        lost: silent,
        timer: setTimeout(silent, SILENT_MS),
        taken: () => {
          clearTimeout(asked.timer);
          Object.assign(asked, { lost: gone, timer: setTimeout(gone, PATIENT_MS) });
        },
      };
      this.asked.set(ref, asked);
      this.channel.postMessage({ call: name, args, ref, until: Date.now() + SILENT_MS / 2 });
    });
  }

  /**
   * Say which session is on this tab's screen, or null.
   *
   * @param {string | null} session
   */
  view(session) {
    this.viewed = session;
    return this.identity ? this.call("view", this.tab, session).catch(() => {}) : Promise.resolve();
  }

  /** @param {string} session @param {number} place @param {number} count */
  rowsBefore(session, place, count) {
    return this.db.rowsBefore(session, place, count);
  }

  /** @param {string} session */
  draft(session) {
    return this.db.get(`draft:${session}`);
  }

  /** Read what another app has shared: sw.js keeps it.
   *  @returns {Promise<Shared | null>} */
  shared() {
    return this.db.get("shared");
  }

  dropShared() {
    return this.db.set("shared", null);
  }

  /** @param {string} session @param {string} text */
  keepDraft(session, text) {
    return this.db.set(`draft:${session}`, text || null, { durability: "relaxed" });
  }
}
