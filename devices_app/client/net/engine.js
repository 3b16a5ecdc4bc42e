// Run this device's one socket, in one tab. Store each arriving message, fold it into the state,
// tell the tabs, acknowledge it, in this order; queue outgoing messages in the outbox.

import {
  isRow,
  isToldToAll,
  make,
  named,
  rowsOf,
  sessionOf,
  signBefore,
} from "../protocol/messages.js";
import {
  approvalKey,
  closeApprovals,
  openApprovals,
  staleApprovals,
  tooLate,
} from "../store/approvals.js";
import { emptyHome, foldHome, reduceSessionList } from "../store/home.js";
import { commandsOf } from "./commands.js";
import { Outgoing } from "./outgoing.js";
import { fetchJson, Requests, Unanswered } from "./requests.js";
import { Socket } from "./socket.js";

const LOOKED_AT = 200; // kept rows, for whether any is of a conversation
const PROBLEMS_KEPT = 50;
const NO_SESSION = ""; // what its rows are stored under
const UNASKED_MS = 23 * 3_600_000; // older rows the bridge sends only when they are asked for (D73)
const LIST_EVERY_MS = 60_000;
const KEEP_HOME_MS = 500;
const FULL = "This device's storage is full or refused: what comes is shown, but not kept.";
const BATCH = 100; // rows at once: so that no task holds up the screen

const isInFront = () => document.visibilityState === "visible";

export class Engine {
  /**
   * @param {Store} db
   * @param {Identity} identity
   * @param {Tell} tell what every tab must know; see `Model` for the kinds
   */
  constructor(db, identity, tell) {
    this.db = db;
    this.identity = identity;
    /** @type {Socket} */
    this.socket; // once it has started
    /** @type {Tell} */
    this.tell = (news) => this.stopped || tell(news);
    this.stopped = false;
    /** @type {Set<string>} */
    this.told = new Set(); // what is said once
    this.keeping = 0;
    this.home = emptyHome();
    this.requests = new Requests(() => this.socket);
    this.outgoing = new Outgoing(this);
    /** @type {Problem[]} */
    this.problems = [];
    /** @type {Map<string, string | null>} */
    this.viewing = new Map(); // tab → session on its screen
    /** @type {Set<string>} */
    this.greeted = new Set(); // ids of the approvals that the bridge has shown on this connection
    /** @type {Map<string, number>} */
    this.expected = new Map(); // session → how many approvals the bridge holds open
    /** @type {string[]} */
    this.unseen = []; // ids of notifications that came while the page was hidden
    /** @type {Wire.Message[]} */
    this.incoming = [];
    /** @type {Promise<void> | null} */
    this.working = null;
    /** @type {Set<string>} */
    this.met = new Set(); // sessions of which something came on this connection
    this.listedAt = 0;
    /** @type {Commands} */
    this.commands = commandsOf(this);
    /** Done when what is kept was read; commands come after it. */
    this.started = this.start();
  }

  async start() {
    const kept = ["identity", "home"].map((name) => this.db.get(name));
    const told = this.db.rowsBefore(NO_SESSION, Infinity, PROBLEMS_KEPT);
    const [identity, home, rows] = await Promise.all([...kept, told, this.outgoing.load()]);
    this.identity = identity ?? this.identity; // with the newest tokens
    this.home = { ...emptyHome(), ...home };
    for (const { row } of rows) this.noteRow(row);
    if (this.stopped) return;
    this.socket = new Socket({
      ...this.identity,
      deliver: (message) => this.receive(message),
      changed: () => this.changed(),
      ready: () => this.ready(),
      keep: (tokens) => this.keepTokens(tokens),
      strange: this.strange,
    });
    this.socket.start();
    document.addEventListener("visibilitychange", this.look);
  }

  /** End at once and for good: after this nothing is sent, stored or told. */
  stop() {
    this.incoming = [];
    this.db.abort();
    clearTimeout(this.keeping);
    if (this.keeping) this.keepHome();
    this.stopped = true;
    this.socket?.close();
    document.removeEventListener("visibilitychange", this.look);
    this.requests.lose("This tab handed the connection to another one.");
  }

  /** Return what the tabs show of the connection, without tokens. */
  get connection() {
    const { phase, attempt, neverOpened, fault, acked, health } = this.socket.state;
    const shown = acked && { ...acked, device_token: undefined };
    return { phase, attempt, neverOpened, fault, acked: shown, health };
  }

  changed() {
    const { phase } = this.socket.state;
    if (phase !== "ready") this.requests.lose();
    // What the old connection brought and is not stored comes again.
    if (phase === "connecting") {
      [this.incoming, this.outgoing.shown] = [[], new Set()];
      this.met.clear();
    }
    this.tell({ news: "connection", connection: this.connection });
  }

  /** @param {string[]} tokens */
  async keepTokens(tokens) {
    const identity = { ...this.identity, tokens };
    const safe = await this.keep("identity", identity, "This device's token could not be stored");
    if (safe) this.identity = identity;
    return safe;
  }

  ready() {
    this.requests.connected();
    this.viewing.forEach((id, tab) => this.commands.view(tab, id));
    for (const { session_id: id } of openApprovals(this.home)) this.follow(id);
    this.outgoing.flush();
    const folded = this.socket.state.acked?.idle_sessions;
    if (folded || Date.now() - this.listedAt > LIST_EVERY_MS) this.list();
  }

  /**
   * Join a session as soon as there is a connection.
   *
   * @param {string} session
   */
  follow(session) {
    this.requests.join(session).catch((error) => {
      if (!(error instanceof Unanswered)) this.note("A session could not be joined", error.message);
    });
  }

  async list() {
    this.listedAt = Date.now();
    try {
      const { sessions } = await fetchJson("/sessions", this.identity.tokens.at(-1));
      this.setHome(reduceSessionList(this.home, sessions));
    } catch (/** @type {any} */ error) {
      this.note("The list of closed sessions could not be read", error.message);
    }
  }

  /** @param {Wire.Message} message */
  receive(message) {
    const { notification_type: kind, session_id: session } = /** @type {any} */ (message.payload);
    // Only who has joined is sent what is asked: what came before is stored meanwhile.
    if (kind === "approval_required" && session) this.follow(session);
    this.incoming.push(message);
    this.working ??= this.work().finally(() => (this.working = null));
  }

  async work() {
    while (this.incoming.length) await this.take(this.incoming.splice(0, BATCH));
  }

  // Rows are stored before the answers that came behind them: nobody sees one without the other.
  /** @param {Wire.Message[]} batch */
  async take(batch) {
    const { number } = this.socket;
    /** @type {string[]} */
    const acks = [];
    /** @type {string[]} */
    const seen = []; // notifications: acknowledged when somebody looks at the page
    /** @type {(Group & { old: boolean })[]} */
    let groups = [];
    /** @param {string} session @param {Row[]} rows @param {boolean} old @param {string} [before] */
    const add = (session, rows, old, before) => {
      rows.forEach(({ type, id }) => type === "approval_required" && !old && this.greeted.add(id));
      const last = groups.at(-1);
      if (last?.session === session && last.old === old && !before) last.rows.push(...rows);
      else groups.push({ session, rows: [...rows], old, before });
    };
    const flush = async () => {
      // What was not kept is not acknowledged: the next connection brings it again.
      if (groups.length && !(await this.store(groups))) acks.length = seen.length = 0;
      groups = [];
    };
    for (const message of batch) {
      const { type, id, payload } = message;
      const isAnswer = this.requests.has(id) || Boolean(this.outgoing.find(id));
      if (type === "replay_buffer") {
        // The agent's own history is shown only where nothing of the session is kept.
        if (payload.source === "agent" && (await this.hasSaid(payload.session_id))) continue;
        const { anchor } = this.requests.waiting.get(id) ?? {};
        if (anchor) payload.messages.push(anchor);
        const rows = rowsOf(message, this.strange, isAnswer);
        if (!isAnswer) acks.push(id);
        if (!isAnswer && !payload.source) rows.unshift(...(await this.signOf(rows)));
        add(payload.session_id, rows, isAnswer, anchor?.id);
      } else if (isRow(message) && !isAnswer) {
        const row = /** @type {Row} */ (message);
        add(sessionOf(message) ?? NO_SESSION, [...(await this.signOf([row])), row], false);
        (type === "notification" ? seen : acks).push(id);
        continue;
      }
      await flush();
      if (this.socket.number === number) this.answer(message);
    }
    await flush();
    if (this.socket.number !== number) return;
    this.unseen.push(...seen);
    if (isInFront()) acks.push(...this.unseen.splice(0));
    if (acks.length) this.socket.send(make("notification_ack", { notification_ids: acks }));
  }

  // The bridge pushes a notification that is not acknowledged (D56): one that came while nobody
  // looked at the page waits until somebody does.
  look = () => isInFront() && this.take([]);

  /** @param {string} session */
  async hasSaid(session) {
    const kept = await this.db.rowsBefore(session, Infinity, LOOKED_AT);
    return kept.some(({ row }) => /^(agent_event|stream_.*)$/.test(row.type));
  }

  // The sign that rows may be missing: after a day away what is older is sent only when asked for.
  /** @param {Row[]} rows */
  async signOf(rows) {
    const next = rows.find((row) => !isToldToAll(row));
    const session = next && sessionOf(next);
    if (!session || this.met.has(session)) return [];
    this.met.add(session);
    const kept = (await this.db.rowsBefore(session, Infinity, LOOKED_AT)).map(({ row }) => row);
    const last = kept.findLast((row) => !isToldToAll(row));
    const away = last && Date.now() - Date.parse(last.timestamp) > UNASKED_MS;
    if (!away || next.type === "gap" || kept.some(({ id }) => id === next.id)) return [];
    return [signBefore(next, session, true)];
  }

  // Tell whether the rows are stored on this device; otherwise they are shown all the same.
  /** @param {(Group & { old: boolean })[]} groups */
  async store(groups) {
    const { home: before } = this;
    let folded = false;
    /** @param {Group[]} found */
    const home = (found) => {
      folded = true;
      const isNew = new Set(found.flatMap(({ rows }) => rows.map(({ id }) => id)));
      for (const { rows, old } of groups) {
        const news = rows.filter((row) => isNew.has(row.id) || this.isMissing(row));
        if (!old) this.home = this.fold(this.home, news);
      }
      return this.home;
    };
    let fresh = groups.map(({ session, rows, old }) => ({ session, rows, earlier: old }));
    let kept = true;
    try {
      fresh = await this.db.addRows(groups, home);
    } catch (/** @type {any} */ error) {
      if (this.stopped) return false;
      kept = false;
      if (!folded) home(fresh);
      this.keepSoon();
      this.note("What came could not be stored", error.message || String(error), FULL);
    }
    if (this.home !== before) this.tell({ news: "home", home: this.home });
    for (const { session, rows, earlier } of fresh) {
      if (rows.length) this.tell({ news: "rows", session, rows, earlier });
      if (session === NO_SESSION) rows.forEach(this.noteRow);
    }
    for (const { rows, old } of groups) for (const row of rows) this.notice(row, !old);
    return kept;
  }

  // What the bridge shows again is open, unless a decision is known here.
  /** @param {Free} _ */
  isMissing({ type, payload }) {
    const { session_id: session, tool_call_id: call, notification_type: kind } = payload;
    if (type !== "approval_required") return kind === "approval_decided";
    return !this.home.approvals[approvalKey(session, call)]?.decision;
  }

  /** @param {Home} home @param {(Wire.Message | Gap)[]} rows */
  fold = (home, rows) => foldHome(home, rows, new Set(this.viewing.values()));

  // Apply a row to the outbox and to the sessions to join, also one that was here before.
  /** @param {Free} _ @param {boolean} live */
  notice({ type, payload }, live) {
    if (type === "agent_event" && payload.payload.message_id)
      this.outgoing.settle(payload.payload.message_id);
    if (type === "message_state") this.outgoing.settle(payload.message_id);
    if (!live) return;
    const session = payload.session_id;
    if (type === "approval_required" && !payload.decision) {
      this.outgoing.shown.add(approvalKey(session, payload.tool_call_id));
      this.closeStale(session);
      this.outgoing.flush();
    }
    if (type !== "notification") return;
    const { notification_type: kind, data } = payload;
    if (kind === "approval_decided") {
      const key = approvalKey(session, data.tool_call_id);
      const dropped = this.outgoing.dropDecisions(key);
      if (dropped && data.device !== this.home.device) this.lost(key, dropped, payload.body);
    }
  }

  // Take a message that is no row: an answer, or an update.
  /** @param {Wire.Message} message */
  answer(message) {
    const { type, id, payload } = message;
    const isAsked = this.requests.has(id);
    this.requests.answer(message);
    if (type === "connection_ack") this.greet(payload);
    if (type === "approval_recorded") this.outgoing.settle(id);
    if (type === "error" && !this.outgoing.refused(id, payload) && !isAsked)
      this.note(payload.message, payload.code);
    if (type === "session_update") this.moved(payload.session);
    this.setHome(this.fold(this.home, [message]));
    if (type === "connection_ack") this.expected.forEach((_, session) => this.closeStale(session));
    if (type === "session_ready") this.outgoing.flush();
    if (type === "session_update") {
      const { session_id: session, pending_approvals: pending } = payload.session;
      this.expected.set(session, pending);
      this.closeStale(session);
      if (pending > 0) this.follow(session);
    }
  }

  // An agent works elsewhere: joined again, its session says on which branch.
  /** @param {Wire.SessionInfo} _ */
  moved({ session_id: session, working_directory: directory }) {
    const before = this.home.sessions[session]?.working_directory;
    if (!this.requests.joined.has(session) || before === directory) return;
    this.requests.joined.delete(session);
    this.follow(session);
  }

  // The bridge shows each connection every approval that waits; what it does not show is over.
  /** @param {Wire.Payloads["connection_ack"]} _ */
  greet({ active_sessions: sessions }) {
    this.outgoing.shown.clear();
    this.greeted.clear();
    /** @type {[string, number][]} */
    const waiting = openApprovals(this.home).map(({ session_id: id }) => [id, 0]);
    /** @type {[string, number][]} */
    const told = sessions.map((view) => [view.session_id, view.pending_approvals ?? 0]);
    this.expected = new Map([...waiting, ...told]);
  }

  /** @param {string} session */
  closeStale(session) {
    const expected = this.expected.get(session) ?? 0;
    const keys = staleApprovals(this.home, session, this.greeted, expected);
    if (!keys.length) return;
    this.setHome(closeApprovals(this.home, keys));
    for (const key of keys) {
      const dropped = this.outgoing.dropDecisions(key);
      if (dropped) this.lost(key, dropped, "The call is not open any more.");
    }
  }

  /**
   * Say that this device has decided too late, and keep it with the approval.
   *
   * @param {string} key
   * @param {Decision} decision which had no effect
   * @param {string} why
   */
  lost(key, decision, why) {
    this.setHome(tooLate(this.home, key, decision));
    this.tell({ news: "trouble", text: why, late: this.home.approvals[key] });
  }

  /** @param {Home} home */
  setHome(home) {
    if (home === this.home || this.stopped) return;
    this.home = home;
    this.tell({ news: "home", home });
    this.keepSoon();
  }

  // Not beside rows that are being stored: an older home would be stored behind theirs.
  keepSoon() {
    clearTimeout(this.keeping);
    const keep = () => (this.working ? this.keepSoon() : this.keepHome());
    this.keeping = setTimeout(keep, KEEP_HOME_MS);
  }

  keepHome = () => this.keep("home", this.home, "The list of sessions could not be stored");

  /**
   * Store a value; tells whether that worked, and notes it where it did not.
   *
   * @param {string} name
   * @param {unknown} value
   * @param {string} trouble
   * @param {Free} beside other values, stored with it or not at all
   */
  async keep(name, value, trouble, beside = {}) {
    try {
      await this.db.set(name, value, { beside });
      return true;
    } catch (/** @type {any} */ error) {
      this.note(trouble, error.message || String(error), FULL);
      return false;
    }
  }

  /** @param {Strange} _ */
  strange = ({ problem, type, text }) =>
    this.note(`A message could not be read (${problem})`, `${type} ${text}`);

  // What is told about no session has no conversation to stand in.
  /** @param {Free} _ */
  noteRow = ({ type, timestamp, payload: { title, body } }) =>
    type === "notification" && this.note(named(title), named(body), "", timestamp);

  /** @param {string} what @param {unknown} detail */
  note(what, detail, said = "", at = new Date().toISOString()) {
    const problem = { at, what, detail: String(detail).slice(0, 500) };
    this.problems = [problem, ...this.problems].slice(0, PROBLEMS_KEPT);
    this.tell({ news: "problems", problems: this.problems });
    if (said && !this.told.has(said)) this.tell({ news: "trouble", text: said });
    this.told.add(said);
  }
}
