// The one socket of this device and all that goes with it: what comes is stored, folded, told to the
// tabs and acknowledged, in this order; what is to be sent waits in the outbox. One tab runs it.

import { isRow, make, sessionOf } from "../protocol/messages.js";
import {
  approvalKey,
  dropStale,
  emptyHome,
  markDeciding,
  markSeen,
  openApprovals,
  reduceHome,
  reduceSessionList,
} from "../store/home.js";
import { again, dropDecisions, due, fail, put, settle } from "../store/outbox.js";
import { ask, originAnswers } from "./http.js";
import { Socket } from "./socket.js";

const ANSWER_MS = 20_000;
const LOOKED_AT = 200; // kept rows, for whether any is of a conversation
const ACKS_AT_ONCE = 500;
const PROBLEMS_KEPT = 50;
const LIST_EVERY_MS = 60_000;
const TRIES = 3;
const BACK_OFF_MS = 5000;
const BATCH = 200; // rows at once: so that no task holds up the screen

/** What a request ends with when there is no connection, or no answer in time. */
export class Unanswered extends Error {}

export class Engine {
  /**
   * @param {any} db the storage, see db.js
   * @param {{url: string, tokens: string[], deviceId: string}} identity
   * @param {(news: object) => void} tell what every tab must know; see `Model` for the kinds
   */
  constructor(db, identity, tell) {
    this.db = db;
    this.identity = identity;
    this.tell = tell;
    this.home = emptyHome();
    this.outbox = [];
    this.problems = [];
    this.viewing = new Map(); // tab → session on its screen
    this.joined = new Set();
    this.joining = new Map();
    this.shown = new Set(); // keys of the approvals that the bridge has shown on this connection
    this.greeted = new Set(); // ids of their messages
    this.pending = new Map(); // id of a request → {resolve, reject, timer}
    this.tries = new Map();
    this.incoming = [];
    this.working = null;
    this.listedAt = 0;
    this.reached = null;
  }

  async start() {
    this.home = (await this.db.get("home")) ?? emptyHome();
    this.outbox = (await this.db.get("outbox")) ?? [];
    this.socket = new Socket({
      ...this.identity,
      deliver: (message) => this.receive(message),
      changed: () => this.changed(),
      ready: () => this.ready(),
      keep: (tokens) => this.keepTokens(tokens),
      strange: (problem) =>
        this.note(
          `A message could not be read (${problem.problem})`,
          `${problem.type} ${problem.text}`,
        ),
    });
    this.socket.start();
  }

  stop() {
    this.socket?.close();
    for (const { reject, timer } of this.pending.values()) {
      clearTimeout(timer);
      reject(new Unanswered("This tab handed the connection to another one."));
    }
    this.pending.clear();
  }

  // -- the connection -----------------------------------------------------------------------------

  /** What the tabs show of the connection; no token in it. */
  get connection() {
    const { phase, attempt, neverOpened, fault, acked, health } = this.socket?.state ?? {
      phase: "off",
    };
    return { phase, attempt, neverOpened, fault, acked, health, reached: this.reached };
  }

  changed() {
    const { phase, neverOpened } = this.socket.state;
    if (phase !== "ready") this.loseConnection();
    // Twice closed without opening: is it the network, or a certificate that only the page accepts?
    if (neverOpened === 2) {
      originAnswers().then((reached) => {
        this.reached = reached;
        this.tell({ news: "connection", connection: this.connection });
      });
    }
    this.tell({ news: "connection", connection: this.connection });
  }

  loseConnection() {
    this.joined.clear();
    this.joining.clear();
    for (const [id, { reject, timer }] of this.pending) {
      clearTimeout(timer);
      this.pending.delete(id);
      reject(new Unanswered("The connection was lost before the answer came."));
    }
  }

  async keepTokens(tokens) {
    this.identity = { ...this.identity, tokens };
    await this.db.set("identity", this.identity);
  }

  ready() {
    this.reached = null;
    const wanted = new Set([...this.viewing.values()].filter(Boolean));
    for (const { session_id: id } of openApprovals(this.home)) wanted.add(id);
    for (const id of wanted) this.join(id).catch(() => {});
    this.flush();
    if (Date.now() - this.listedAt > LIST_EVERY_MS) this.list();
  }

  async list() {
    this.listedAt = Date.now();
    try {
      const { sessions } = await ask("/sessions", this.identity.tokens.at(-1));
      this.setHome(reduceSessionList(this.home, sessions));
    } catch (error) {
      this.note("The list of closed sessions could not be read", error.message);
    }
  }

  // -- what comes ---------------------------------------------------------------------------------

  receive(message) {
    this.incoming.push(message);
    this.working ??= this.work().finally(() => (this.working = null));
  }

  async work() {
    while (this.incoming.length) {
      const batch = this.incoming.splice(0, BATCH);
      try {
        await this.take(batch);
      } catch (error) {
        // Not acknowledged: the bridge sends it again on the next connection.
        this.note("What came could not be stored", error.message || String(error));
        this.tell({
          news: "trouble",
          text: "This device's storage is full or refused. What comes is not kept.",
        });
      }
    }
  }

  async take(batch) {
    const connection = this.socket.number;
    const groups = [];
    const acks = [];
    const group = (rows, session, old) => {
      const last = groups.at(-1);
      if (last && last.session === session && last.old === old) last.rows.push(...rows);
      else groups.push({ session, rows: [...rows], old });
    };
    for (const message of batch) {
      const asked = this.pending.has(message.id);
      if (asked && message.type === "error") message.answers = true;
      if (message.type === "replay_buffer") {
        // What the agent tells of the past is for who has kept nothing of the session.
        if (message.payload.source === "agent" && (await this.hasSaid(message))) continue;
        const rows = message.payload.messages.filter(isRow);
        rows.forEach((row) => this.notice(row, !asked));
        group(rows, message.payload.session_id, asked);
        if (!asked) acks.push(message.id);
      } else if (isRow(message)) {
        this.notice(message, true);
        group([message], sessionOf(message) ?? "", false);
        acks.push(message.id);
      } else {
        // Answers wait for the rows before them, so that nobody sees the one without the other.
        await this.store(groups.splice(0));
        this.answer(message);
        continue;
      }
    }
    await this.store(groups);
    for (const message of batch) if (message.type === "replay_buffer") this.answer(message);
    if (this.socket.number !== connection) return;
    for (let at = 0; at < acks.length; at += ACKS_AT_ONCE) {
      this.socket.send(
        make("notification_ack", { notification_ids: acks.slice(at, at + ACKS_AT_ONCE) }),
      );
    }
  }

  async hasSaid({ payload }) {
    const kept = await this.db.rowsBefore(payload.session_id, Infinity, LOOKED_AT);
    return kept.some(({ row }) => /^(agent_event|stream_.*)$/.test(row.type));
  }

  async store(groups) {
    if (!groups.length) return;
    let home = this.home;
    const fresh = await this.db.addRows(groups, (found) => {
      home = found.reduce(
        (state, { rows }, index) => (groups[index].old ? state : this.fold(state, rows)),
        this.home,
      );
      return { home };
    });
    this.setHome(home, { kept: true });
    for (const { session, rows, earlier } of fresh)
      if (rows.length) this.tell({ news: "rows", session, rows, earlier });
  }

  fold(home, rows) {
    return rows.reduce(
      (state, row) => reduceHome(state, row, this.isViewed(sessionOf(row)) ? sessionOf(row) : null),
      home,
    );
  }

  isViewed(session) {
    return [...this.viewing.values()].includes(session);
  }

  // What a row means for the outbox and for what to join, whether this device had it before or not.
  notice(row, live) {
    const { type, payload } = row;
    if (type === "agent_event" && payload.payload?.message_id)
      this.settle(payload.payload.message_id);
    if (!live) return;
    if (type === "approval_required" && !payload.decision) {
      this.shown.add(approvalKey(payload.session_id, payload.tool_call_id));
      this.greeted.add(row.id);
      queueMicrotask(() => this.checkGreeting(payload.session_id));
    }
    if (
      type === "notification" &&
      payload.notification_type === "approval_required" &&
      payload.session_id
    ) {
      this.join(payload.session_id).catch(() => {});
    }
    if (type === "notification" && payload.notification_type === "approval_decided") {
      this.setOutbox(
        dropDecisions(this.outbox, approvalKey(payload.session_id, payload.data.tool_call_id)),
      );
    }
  }

  answer(message) {
    const { type, id, payload } = message;
    const request = this.pending.get(id);
    if (request) {
      clearTimeout(request.timer);
      this.pending.delete(id);
      if (type === "error")
        request.reject(Object.assign(new Error(payload.message), { code: payload.code, payload }));
      else request.resolve(message);
    }
    if (type === "connection_ack") this.greet(payload);
    if (type === "session_ready") this.joined.add(payload.session_id);
    if (type === "session_update" && payload.session.pending_approvals > 0)
      this.join(payload.session.session_id).catch(() => {});
    if (type === "approval_recorded") this.settle(id);
    if (type === "error") this.refused(id, payload);
    this.setHome(this.fold(this.home, [message]));
    if (type === "session_ready" || type === "approval_recorded") this.flush();
  }

  // The bridge shows each connection every approval that waits; what it does not show is over.
  greet({ active_sessions: sessions }) {
    this.shown.clear();
    this.greeted.clear();
    this.expected = new Map(sessions.map((view) => [view.session_id, view.pending_approvals]));
    for (const { session_id: id } of openApprovals(this.home))
      queueMicrotask(() => this.checkGreeting(id));
  }

  checkGreeting(session) {
    const expected = this.expected?.get(session) ?? (this.expected?.has(session) ? null : 0);
    const open = openApprovals(this.home).filter(({ session_id: id }) => id === session);
    const here = open.filter(({ row_id: id }) => this.greeted.has(id));
    if (expected === null || here.length < expected) return;
    const keep = new Set(
      openApprovals(this.home)
        .filter(({ session_id: id }) => id !== session)
        .map(({ row_id: id }) => id),
    );
    const stale = open.filter(({ row_id: id }) => !this.greeted.has(id));
    if (!stale.length) return;
    this.setHome(dropStale(this.home, new Set([...keep, ...this.greeted])));
    for (const { key } of stale) this.setOutbox(dropDecisions(this.outbox, key));
  }

  refused(id, payload) {
    const item = this.outbox.find(({ message }) => message.id === id);
    if (!item) {
      if (!this.pending.has(id) && !payload.session_id) this.note(payload.message, payload.code);
      return;
    }
    const tries = (this.tries.get(id) ?? 0) + 1;
    this.tries.set(id, tries);
    const session = item.message.payload.session_id;
    if (payload.code === "TOOL_ALREADY_DECIDED") {
      const decision = payload.details?.decision ?? "";
      this.settle(id);
      this.setHome(
        reduceHome(this.home, {
          type: "notification",
          timestamp: new Date().toISOString(),
          payload: {
            notification_type: "approval_decided",
            session_id: session,
            title: "",
            body: payload.message,
            data: { ...payload.details, decision, tool_call_id: item.message.payload.tool_call_id },
          },
        }),
      );
      this.tell({ news: "trouble", text: payload.message });
    } else if (tries < TRIES && payload.code === "RATE_LIMITED") {
      setTimeout(() => this.again(id), BACK_OFF_MS);
    } else if (
      tries < TRIES &&
      ["SESS_NOT_ACTIVE", "SESS_CLOSED"].includes(payload.code) &&
      item.message.type === "message"
    ) {
      this.join(session, { resume: true }).then(
        () => this.again(id),
        (error) => this.setOutbox(fail(this.outbox, id, error.message)),
      );
    } else if (tries < TRIES && payload.code === "PROTO_SEQUENCE_ERROR") {
      this.joined.delete(session);
      this.join(session).then(
        () => this.again(id),
        (error) => this.setOutbox(fail(this.outbox, id, error.message)),
      );
    } else {
      this.setOutbox(fail(this.outbox, id, payload.message));
      if (item.message.type === "approval_response") {
        this.setHome(
          markDeciding(this.home, approvalKey(session, item.message.payload.tool_call_id), ""),
        );
      }
    }
  }

  // -- what goes ----------------------------------------------------------------------------------

  flush() {
    if (!this.socket.ready) return;
    const { items, send, join } = due(this.outbox, {
      now: Date.now(),
      connection: this.socket.number,
      joined: this.joined,
      open: this.shown,
    });
    this.setOutbox(items);
    for (const message of send) this.socket.send(message);
    for (const id of join) {
      this.join(id).catch((error) => {
        if (error instanceof Unanswered) return;
        for (const { message } of this.outbox) {
          if (message.payload.session_id === id)
            this.setOutbox(fail(this.outbox, message.id, error.message));
        }
      });
    }
  }

  again(id) {
    this.setOutbox(again(this.outbox, id));
    this.flush();
  }

  settle(id) {
    if (this.outbox.some(({ message }) => message.id === id))
      this.setOutbox(settle(this.outbox, id));
  }

  put(message) {
    const { items, dropped } = put(
      this.outbox,
      message,
      Date.now(),
      this.socket.ready ? this.socket.number : 0,
    );
    this.setOutbox(items);
    if (dropped.length)
      this.note(
        "The list of what waits to be sent was full; the oldest was dropped",
        JSON.stringify(dropped[0].message.payload).slice(0, 200),
      );
    this.flush();
  }

  /** Send a message that is answered at once; rejects with `Unanswered` without a connection. */
  request(type, payload, /** @type {any} */ { id, timeout = ANSWER_MS } = {}) {
    if (!this.socket.ready)
      return Promise.reject(new Unanswered("There is no connection to the bridge."));
    const message = make(type, payload, id);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.pending.delete(message.id);
        reject(new Unanswered("The bridge did not answer in time."));
      }, timeout);
      this.pending.set(message.id, { resolve, reject, timer });
      this.socket.send(message);
    });
  }

  /** Join a session on this connection, once; `resume` wakes one that is paused or was closed. */
  join(session, { resume = false } = {}) {
    if (this.joined.has(session) && !resume) return Promise.resolve(null);
    if (this.joining.has(session) && !resume) return this.joining.get(session);
    const payload = { agent: "", session_id: session, working_directory: "", resume };
    const joining = this.request("session_start", payload, {
      timeout: resume ? 90_000 : ANSWER_MS,
    }).finally(() => this.joining.delete(session));
    this.joining.set(session, joining);
    return joining;
  }

  // -- commands of the tabs -----------------------------------------------------------------------

  /** @type {Record<string, (...args: any[]) => any>} by name, as tabs call them */
  commands = {
    snapshot: () => ({
      home: this.home,
      outbox: this.outbox,
      connection: this.connection,
      problems: this.problems,
    }),
    view: (tab, session) => {
      this.viewing.set(tab, session);
      if (!session) return;
      this.setHome(markSeen(this.home, session));
      if (this.socket.ready)
        this.join(session).catch((error) =>
          this.noteUnlessLost("The session could not be joined", error),
        );
    },
    say: (session, content) =>
      this.put(make("message", { session_id: session, content, role: "user" })),
    decide: (key, decision, modifications = null) => {
      const approval = this.home.approvals[key];
      if (!approval || approval.state === "decided") return;
      this.setHome(markDeciding(this.home, key, decision));
      this.put(
        make("approval_response", {
          session_id: approval.session_id,
          tool_call_id: approval.tool_call_id,
          decision,
          modifications,
        }),
      );
    },
    withdraw: (key) => {
      const item = this.outbox.find(
        ({ message, state }) =>
          message.type === "approval_response" &&
          state === "waiting" &&
          approvalKey(message.payload.session_id, message.payload.tool_call_id) === key,
      );
      if (!item) return false;
      this.settle(item.message.id);
      this.setHome(markDeciding(this.home, key, ""));
      return true;
    },
    retry: (id) => {
      const item = this.outbox.find(({ message }) => message.id === id);
      if (!item) return;
      this.tries.delete(id);
      this.settle(id);
      this.put(make(item.message.type, item.message.payload));
    },
    discard: (id) => this.settle(id),
    ask: async (type, payload) => {
      await this.join(payload.session_id);
      const timeout = type === "git_commit" ? 60_000 : ANSWER_MS;
      return (await this.request(type, payload, { timeout })).payload;
    },
    send: (type, payload) => {
      if (!this.socket.ready) throw new Unanswered("There is no connection to the bridge.");
      this.socket.send(make(type, payload));
    },
    resume: async (session) => (await this.join(session, { resume: true }))?.payload ?? null,
    startSession: async (agent, directory) => {
      const payload = { agent, session_id: null, working_directory: directory, resume: false };
      return (await this.request("session_start", payload, { timeout: 90_000 })).payload;
    },
    replay: async (session, since) => {
      await this.join(session);
      return (
        await this.request("replay_request", { session_id: session, since }, { timeout: 60_000 })
      ).payload.complete;
    },
    http: (path) => ask(path, this.identity.tokens.at(-1)),
    accept: () => this.socket.accept(),
    connect: () => this.socket.feed({ kind: "start" }),
    wake: () => this.socket.feed({ kind: "wake" }),
  };

  // -- state that all tabs follow -----------------------------------------------------------------

  setHome(home, { kept = false } = {}) {
    if (home === this.home) return;
    this.home = home;
    this.tell({ news: "home", home });
    if (kept) return;
    clearTimeout(this.keeping);
    this.keeping = setTimeout(
      () =>
        this.db
          .set("home", this.home)
          .catch((error) => this.note("The list of sessions could not be stored", error.message)),
      500,
    );
  }

  setOutbox(items) {
    if (items === this.outbox || JSON.stringify(items) === JSON.stringify(this.outbox)) return;
    this.outbox = items;
    this.tell({ news: "outbox", outbox: items });
    this.db
      .set("outbox", items)
      .catch((error) => this.note("What waits to be sent could not be stored", error.message));
  }

  note(what, detail) {
    this.problems = [
      { at: new Date().toISOString(), what, detail: String(detail).slice(0, 500) },
      ...this.problems,
    ].slice(0, PROBLEMS_KEPT);
    this.tell({ news: "problems", problems: this.problems });
  }

  noteUnlessLost(what, error) {
    if (!(error instanceof Unanswered)) this.note(what, error.message);
  }
}
