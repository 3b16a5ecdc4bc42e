// What this device keeps: who it is to the bridge, rows, outbox, drafts. IndexedDB; where that is
// refused or full, memory, which `Database.lasting` and `trouble` say.

import { placeRows } from "../store/order.js";

const NAME = "bridge";
const VERSION = 1;
const ROWS_KEPT = 10_000; // of a session: as many as the bridge keeps
const TRIM_EVERY = 500; // rows written to a session between two looks at how many it has

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** @returns {Promise<void>} */
const finished = (transaction) =>
  new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    // An error of a request ends in this too; only here does the transaction know its error.
    transaction.onabort = () => reject(transaction.error ?? new Error("the storage gave up"));
  });

/** Open the storage; never fails: without IndexedDB what is kept lasts until the page is closed. */
export async function openDatabase() {
  try {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("kept");
      request.result
        .createObjectStore("rows", { keyPath: ["session", "place"] })
        .createIndex("id", "row.id", { unique: true });
    };
    return new Database(await done(request));
  } catch (error) {
    return new MemoryDatabase(error.message || String(error));
  }
}

export class Database {
  lasting = true;
  trouble = "";

  constructor(db) {
    this.db = db;
    this.adding = null;
    this.written = new Map();
    // Another tab forgets this bridge, or a newer version of this client wants another layout.
    db.onversionchange = () => db.close();
  }

  /** Read a kept value, such as "identity", "home", "outbox" or "draft:SESSION"; null when absent. */
  async get(name) {
    return (await done(this.db.transaction("kept").objectStore("kept").get(name))) ?? null;
  }

  /** Keep a value, or with null nothing; also when the page goes away right after it. */
  async set(name, value, /** @type {any} */ { durability = "strict" } = {}) {
    const transaction = this.db.transaction("kept", "readwrite", { durability });
    const store = transaction.objectStore("kept");
    if (value === null) store.delete(name);
    else store.put(value, name);
    transaction.commit();
    await finished(transaction);
  }

  /**
   * Store rows and what follows from them in one transaction.
   *
   * @param {{session: string, rows: any[]}[]} groups rows of a session, in the order of the log
   * @param {(fresh: any[]) => Record<string, any>} keep from the new rows, the values to store
   *   with them; called once, inside the transaction
   * @returns {Promise<{session: string, rows: any[], earlier: boolean}[]>} the rows that were
   *   new; `earlier` tells that some stand before rows that were there already
   */
  async addRows(groups, keep) {
    const transaction = this.db.transaction(["kept", "rows"], "readwrite");
    this.adding = transaction;
    const end = finished(transaction).finally(() => (this.adding = null));
    end.catch(() => {}); // whoever waits for a request of it is told first
    const store = transaction.objectStore("rows");
    const index = store.index("id");
    const fresh = [];
    for (const { session, rows } of groups) {
      const known = new Map();
      const keys = await Promise.all(rows.map(({ id }) => done(index.getKey(id))));
      keys.forEach((key, at) => key && known.set(rows[at].id, key[1]));
      const last = (await this.placeBefore(store, session, Infinity)) ?? 0;
      const first = rows.find(({ id }) => known.has(id));
      const before = first ? await this.placeBefore(store, session, known.get(first.id)) : null;
      // Nothing is missing before a row whose predecessor is kept here.
      const wanted = before === null ? rows : rows.filter(({ type }) => type !== "gap");
      const byId = new Map(wanted.map((row) => [row.id, row]));
      const placed = placeRows([...byId.values()], known, last, before);
      for (const { id, place } of placed) {
        store.put({ session, place, row: byId.get(id) });
      }
      fresh.push({
        session,
        rows: placed.map(({ id }) => byId.get(id)),
        earlier: placed.some(({ place }) => place < last),
      });
      this.written.set(session, (this.written.get(session) ?? 0) + placed.length);
    }
    for (const [name, value] of Object.entries(keep(fresh)))
      transaction.objectStore("kept").put(value, name);
    await end;
    for (const { session } of groups)
      if (this.written.get(session) > TRIM_EVERY) await this.trim(session);
    return fresh;
  }

  // The greatest place before another one, or null; another tab may have written since the last time.
  async placeBefore(store, session, place) {
    const range = IDBKeyRange.bound([session, -Infinity], [session, place], false, true);
    const cursor = await done(store.openKeyCursor(range, "prev"));
    return cursor ? cursor.key[1] : null;
  }

  /** Give up storing rows, as a page must before it sleeps: others would wait for it. */
  abort() {
    try {
      this.adding?.abort();
    } catch (error) {
      if (error.name !== "InvalidStateError") throw error; // they are being committed already
    }
  }

  /** Read up to `count` rows of a session that stand before `place`, oldest first, with places. */
  async rowsBefore(session, place, count) {
    const store = this.db.transaction("rows").objectStore("rows");
    const range = IDBKeyRange.bound([session, -Infinity], [session, place], false, true);
    const found = [];
    await /** @type {Promise<void>} */ (
      new Promise((resolve, reject) => {
        const request = store.openCursor(range, "prev");
        request.onerror = () => reject(request.error);
        request.onsuccess = () => {
          const cursor = request.result;
          if (!cursor || found.length === count) return resolve();
          found.push(cursor.value);
          cursor.continue();
        };
      })
    );
    return found.reverse();
  }

  async trim(session) {
    this.written.set(session, 0);
    const transaction = this.db.transaction("rows", "readwrite");
    const store = transaction.objectStore("rows");
    const all = IDBKeyRange.bound([session, -Infinity], [session, Infinity]);
    const over = (await done(store.count(all))) - ROWS_KEPT;
    if (over > 0) {
      const keys = await done(store.getAllKeys(all, over));
      store.delete(IDBKeyRange.bound(keys[0], keys.at(-1)));
    }
    await finished(transaction);
  }

  /** Forget a session's rows. */
  async forget(session) {
    const transaction = this.db.transaction("rows", "readwrite");
    transaction
      .objectStore("rows")
      .delete(IDBKeyRange.bound([session, -Infinity], [session, Infinity]));
    await finished(transaction);
  }

  /** Forget everything: this device is no longer paired. */
  async wipe() {
    this.db.close();
    await done(indexedDB.deleteDatabase(NAME));
  }
}

class MemoryDatabase {
  lasting = false;

  constructor(trouble) {
    this.trouble = trouble;
    this.kept = new Map();
    this.rows = new Map();
  }

  async get(name) {
    return this.kept.get(name) ?? null;
  }

  async set(name, value) {
    if (value === null) this.kept.delete(name);
    else this.kept.set(name, structuredClone(value));
  }

  async addRows(groups, keep) {
    const fresh = groups.map(({ session, rows }) => {
      const list = this.rows.get(session) ?? [];
      const known = new Map(list.map(({ place, row }) => [row.id, place]));
      const last = list.at(-1)?.place ?? 0;
      const byId = new Map(rows.map((row) => [row.id, row]));
      const placed = placeRows([...byId.values()], known, last);
      const all = [
        ...list,
        ...placed.map(({ id, place }) => ({ session, place, row: byId.get(id) })),
      ];
      this.rows.set(session, all.sort((a, b) => a.place - b.place).slice(-ROWS_KEPT));
      return {
        session,
        rows: placed.map(({ id }) => byId.get(id)),
        earlier: placed.some(({ place }) => place < last),
      };
    });
    for (const [name, value] of Object.entries(keep(fresh))) this.kept.set(name, value);
    return fresh;
  }

  abort() {}

  async rowsBefore(session, place, count) {
    return (this.rows.get(session) ?? []).filter((row) => row.place < place).slice(-count);
  }

  async forget(session) {
    this.rows.delete(session);
  }

  async wipe() {
    this.kept.clear();
    this.rows.clear();
  }
}
