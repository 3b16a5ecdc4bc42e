// Store this device's data: identity, rows, outbox, drafts. In IndexedDB; where that is refused or
// full, in memory, which `Database.lasting` and `trouble` say.

import { isToldToAll } from "../protocol/messages.js";

const NAME = "bridge";
const ROWS_KEPT = 10_000; // of a session: as many as the bridge keeps
const TRIM_EVERY = 500; // rows written to a session between two looks at how many it has
const HOLE = 1_000_000; // places that are left where rows are missing: more than there can be
const AT_ONCE = 10; // rows that are looked up or written in one task: the screen goes on between

/** @template T @param {T[]} rows */
const inSlices = (rows) =>
  Array.from({ length: Math.ceil(rows.length / AT_ONCE) }, (_, at) =>
    rows.slice(at * AT_ONCE, (at + 1) * AT_ONCE),
  );

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

// What every device is told comes before rows of its session that stand in front of it.
/** @param {Row} row @param {Row[]} brought @param {Map<string, number>} known */
const isEarly = (row, brought, known) =>
  isToldToAll(row) &&
  !known.has(row.id) &&
  brought.some(({ id, timestamp }) => timestamp < row.timestamp && !known.has(id));

/**
 * @param {string} session
 * @param {{ id: string; place: number }[]} placed
 * @param {Map<string, Row>} byId
 * @param {number} last
 * @param {Row[]} moved
 * @returns {Fresh}
 */
const freshRows = (session, placed, byId, last, moved) => ({
  session,
  rows: placed
    .map(({ id }) => /** @type {Row} */ (byId.get(id)))
    .filter((row) => !moved.includes(row)),
  earlier: moved.length > 0 || placed.some(({ place }) => place < last),
});

// Nothing is missing before a row that came and whose predecessor is kept here; nothing is to be
// loaded before one that is kept.
/** @param {Row[]} rows @param {boolean} whole @param {Map<string, number>} known */
const withoutSigns = (rows, whole, known) => {
  const reached = known.has(rows.find(({ type }) => type !== "gap")?.id ?? "");
  return rows.filter(({ type, payload }) => type !== "gap" || !(payload.older ? reached : whole));
};

/**
 * @param {IDBTransaction} transaction
 * @returns {Promise<void>}
 */
const finished = (transaction) =>
  new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    // An error of a request ends in this too; only here does the transaction know its error.
    transaction.onabort = () => reject(transaction.error ?? new Error("the storage gave up"));
  });

/**
 * Open the storage; never fails: without IndexedDB it lasts until the page is closed.
 *
 * @returns {Promise<Store>}
 */
export async function openDatabase() {
  try {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("kept");
      request.result
        .createObjectStore("rows", { keyPath: ["session", "place"] })
        .createIndex("id", "row.id", { unique: true });
    };
    return new Database(await done(request));
  } catch (/** @type {any} */ error) {
    return new MemoryDatabase(error.message || String(error));
  }
}

export class Database {
  lasting = true;
  trouble = "";

  /** @param {IDBDatabase} db */
  constructor(db) {
    this.db = db;
    /** @type {Set<IDBTransaction>} */
    this.open = new Set(); // transactions on rows
    /** @type {Map<string, number>} */
    this.written = new Map();
    // Another tab forgets this bridge, or a newer version of this client wants another layout.
    db.onversionchange = () => db.close();
    db.onclose = () => performance.now() > 10_000 && location.reload(); // dropped; not in a circle
  }

  /**
   * Read a kept value, such as "identity", "home" or "draft:SESSION"; null when absent.
   *
   * @param {string} name
   */
  async get(name) {
    const transaction = this.db.transaction("kept");
    const request = transaction.objectStore("kept").get(name);
    transaction.commit(); // a page that falls asleep now holds up nobody
    return (await done(request)) ?? null;
  }

  /**
   * Store a value, or delete it with null; also when the page closes right after it. `beside`:
   * others, in the same transaction.
   *
   * @param {string} name
   * @param {unknown} value
   */
  async set(name, value, /** @type {any} */ { durability = "strict", beside = {} } = {}) {
    const transaction = this.db.transaction("kept", "readwrite", { durability });
    const store = transaction.objectStore("kept");
    for (const [key, one] of Object.entries({ ...beside, [name]: value }))
      if (one === null) store.delete(key);
      else store.put(one, key);
    transaction.commit();
    await finished(transaction);
  }

  /**
   * Store rows and the state that follows from them in one transaction.
   *
   * @param {Group[]} groups rows of a session, in the order of the log
   * @param {(fresh: Fresh[]) => Home} home from the new rows, the value "home" to store with them;
   *   called once, in the transaction
   * @returns {Promise<Fresh[]>} the rows that were
   *   new; `earlier` tells that some stand before rows that were there already
   */
  async addRows(groups, home) {
    const { transaction, end } = this.begin(["kept", "rows"], "readwrite");
    const store = transaction.objectStore("rows");
    const index = store.index("id");
    const fresh = [];
    for (const { session, rows: brought, before: anchor } of groups) {
      const known = new Map();
      const sign = anchor && (await done(index.getKey(`older ${anchor}`)));
      if (sign) store.delete(sign);
      for (const some of inSlices(brought)) {
        const keys = await Promise.all(some.map(({ id }) => done(index.getKey(id))));
        keys.forEach((key, at) => key && known.set(some[at].id, /** @type {any} */ (key)[1]));
      }
      const early = await this.takeEarly(store, session, brought, known);
      const rows = amongRows(brought, early, known);
      const last = (await this.placeBefore(store, session, Infinity)) ?? 0;
      const first = rows.find(({ id }) => known.has(id));
      const before = first ? await this.placeBefore(store, session, known.get(first.id)) : null;
      const met = brought.find(({ id }) => known.has(id));
      const whole = met && (await this.placeBefore(store, session, known.get(met.id))) !== null;
      const wanted = withoutSigns(rows, Boolean(whole), known);
      const byId = new Map(wanted.map((row) => [row.id, row]));
      const placed = placeRows([...byId.values()], known, last, before);
      for (const some of inSlices(placed)) {
        let put = /** @type {any} */ (null);
        for (const { id, place } of some) put = store.put({ session, place, row: byId.get(id) });
        await done(put);
      }
      fresh.push(freshRows(session, placed, byId, last, early));
      const written = (this.written.get(session) ?? 0) + placed.length;
      this.written.set(session, written > TRIM_EVERY && !anchor ? 0 : written);
      // What a person has paged back to stays until more comes at the end.
      if (written > TRIM_EVERY && !anchor) await this.trim(store, session);
    }
    transaction.objectStore("kept").put(home(fresh), "home");
    await end;
    return fresh;
  }

  // The greatest place before another one, or null; another tab may have written meanwhile.
  /** @param {IDBObjectStore} store @param {string} session @param {number} place */
  async placeBefore(store, session, place) {
    const range = IDBKeyRange.bound([session, -Infinity], [session, place], false, true);
    const cursor = await done(store.openKeyCursor(range, "prev"));
    return cursor ? /** @type {any} */ (cursor.key)[1] : null;
  }

  // Take out the rows at the end of a session that came too early, oldest first.
  /**
   * @param {IDBObjectStore} store
   * @param {string} session
   * @param {[Row[], Map<string, number>]} came
   */
  async takeEarly(store, session, ...came) {
    const request = store.openCursor(IDBKeyRange.bound([session], [session, []]), "prev");
    const found = [];
    for (
      let at = /** @type {any} */ (null);
      isEarly((at = await done(request))?.value.row, ...came);
      at.continue()
    ) {
      found.unshift(at.value.row);
      at.delete();
    }
    return found;
  }

  // A transaction on rows, and the promise of its end.
  /** @param {string | string[]} stores @param {IDBTransactionMode} mode */
  begin(stores, mode) {
    const transaction = this.db.transaction(stores, mode);
    this.open.add(transaction);
    const end = finished(transaction).finally(() => this.open.delete(transaction));
    end.catch(() => {}); // whoever waits for a request of it is told first
    return { transaction, end };
  }

  /** Give up writes and, as a page must before it sleeps, reads: others would wait for them. */
  abort({ reading = false } = {}) {
    for (const transaction of this.open)
      try {
        if (reading || transaction.mode === "readwrite") transaction.abort();
      } catch (/** @type {any} */ error) {
        if (error.name !== "InvalidStateError") throw error; // it is being committed already
      }
  }

  /**
   * Read up to `count` rows of a session that stand before `place`, oldest first, with places.
   *
   * @param {string} session @param {number} place @param {number} count
   * @returns {Promise<Placed[]>}
   */
  async rowsBefore(session, place, count) {
    try {
      return await this.read(session, place, count);
    } catch (/** @type {any} */ error) {
      if (error.name !== "AbortError") throw error;
      // The page slept: its timers go on when it wakes.
      await new Promise((go) => setTimeout(go, 100));
      return this.rowsBefore(session, place, count);
    }
  }

  /** @param {string} session @param {number} place @param {number} count */
  async read(session, place, count) {
    const store = this.begin("rows", "readonly").transaction.objectStore("rows");
    const all = IDBKeyRange.bound([session, -Infinity], [session, place], false, true);
    const request = store.openKeyCursor(all, "prev");
    const cursor = await done(request);
    if (!cursor) return [];
    const last = cursor.key;
    if (count > 1) cursor.advance(count - 1);
    const first = (await done(request))?.key ?? [session, -Infinity];
    return done(store.getAll(IDBKeyRange.bound(first, last)));
  }

  /** @param {IDBObjectStore} store @param {string} session */
  async trim(store, session) {
    const all = IDBKeyRange.bound([session, -Infinity], [session, Infinity]);
    const over = (await done(store.count(all))) - ROWS_KEPT;
    if (over <= 0) return;
    const keys = await done(store.getAllKeys(all, over));
    store.delete(IDBKeyRange.bound(keys[0], keys.at(-1)));
  }

  /** Forget everything: this device is no longer paired. */
  async wipe() {
    this.db.close();
    await done(indexedDB.deleteDatabase(NAME));
  }
}

/** @param {string} trouble @returns {Store} */
export const inMemory = (trouble) => new MemoryDatabase(trouble);

class MemoryDatabase {
  lasting = false;

  /** @param {string} trouble */
  constructor(trouble) {
    this.trouble = trouble;
    this.kept = new Map();
    /** @type {Map<string, Placed[]>} */
    this.rows = new Map();
  }

  /** @param {string} name */
  async get(name) {
    return this.kept.get(name) ?? null;
  }

  /** @param {string} name @param {unknown} value */
  async set(name, value, /** @type {any} */ { beside = {} } = {}) {
    for (const [key, one] of Object.entries({ ...beside, [name]: value }))
      if (one === null) this.kept.delete(key);
      else this.kept.set(key, structuredClone(one));
  }

  /** @param {Group[]} groups @param {(fresh: Fresh[]) => Home} home */
  async addRows(groups, home) {
    const fresh = groups.map(({ session, rows: brought, before: anchor }) => {
      const all = this.rows.get(session) ?? [];
      const old = all.filter(({ row }) => row.id !== `older ${anchor}`);
      const met = old.filter(({ row }) => brought.some(({ id }) => id === row.id));
      const known = new Map(met.map(({ place, row }) => [row.id, place]));
      const list = old.slice(0, old.findLastIndex(({ row }) => !isEarly(row, brought, known)) + 1);
      const early = old.slice(list.length).map(({ row }) => row);
      const rows = amongRows(brought, early, known);
      const last = list.at(-1)?.place ?? 0;
      const first = known.get(rows.find(({ id }) => known.has(id))?.id ?? "") ?? NaN;
      const before = list.findLast(({ place }) => place < first)?.place ?? null;
      const wanted = withoutSigns(rows, false, known);
      const byId = new Map(wanted.map((row) => [row.id, row]));
      const placed = placeRows([...byId.values()], known, last, before);
      /** @type {any[]} */
      const added = placed.map(({ id, place }) => ({ session, place, row: byId.get(id) }));
      const now = [...list, ...added].sort((a, b) => a.place - b.place);
      this.rows.set(session, anchor ? now : now.slice(-ROWS_KEPT));
      return freshRows(session, placed, byId, last, early);
    });
    this.kept.set("home", home(fresh));
    return fresh;
  }

  abort() {}

  /** @param {string} session @param {number} place @param {number} count */
  async rowsBefore(session, place, count) {
    return (this.rows.get(session) ?? []).filter((row) => row.place < place).slice(-count);
  }

  async wipe() {
    this.kept.clear();
    this.rows.clear();
  }
}

/**
 * Insert early rows among the others by time, after all known ones.
 *
 * @param {Row[]} rows
 * @param {Row[]} early
 */
export function amongRows(rows, early, known = new Map()) {
  const all = [...rows];
  for (const one of early) {
    const time =
      /** @type {Free} */ (one).payload?.data?.code === "MESSAGES_DISCARDED" ? "" : one.timestamp;
    /** @param {Row} _ */
    const isBefore = ({ id, timestamp }) => known.has(id) || timestamp <= time;
    all.splice(all.findLastIndex(isBefore) + 1, 0, one);
  }
  return all;
}

/**
 * Give places to rows that came in one replay: known ones keep theirs, unknown ones go between
 * their known neighbours, so that what is older than this device's pairing stands before the rest.
 *
 * @param {{id: string}[]} rows in the order of the log
 * @param {Map<string, number>} known place of each row that is kept already
 * @param {number} last the greatest place so far
 * @param {number | null} before place of the row that is kept before the first known one, if any
 */
export function placeRows(rows, known, last, before = null) {
  const placed = [];
  for (let start = 0; start < rows.length; ) {
    if (known.has(rows[start].id)) {
      start += 1;
      continue;
    }
    let end = start;
    while (end < rows.length && !known.has(rows[end].id)) end += 1;
    const left = start > 0 ? (known.get(rows[start - 1].id) ?? null) : before;
    const right = end < rows.length ? (known.get(rows[end].id) ?? null) : null;
    const count = end - start;
    const signed =
      right === null && rows.slice(start, end).find(({ id }) => id.startsWith("older "));
    if (signed && last) last += HOLE;
    for (let index = 0; index < count; index += 1) {
      const place = between(left, right, last, index, count);
      placed.push({ id: rows[start + index].id, place });
    }
    start = end;
  }
  return placed;
}

/**
 * @param {number | null} left
 * @param {number | null} right
 * @param {number} last
 * @param {number} index
 * @param {number} count
 */
function between(left, right, last, index, count) {
  if (right === null) return last + index + 1;
  // behind a hole that is left, of which more may come
  if (left === null || right - left > count) return right - count + index;
  return left + ((right - left) * (index + 1)) / (count + 1);
}
