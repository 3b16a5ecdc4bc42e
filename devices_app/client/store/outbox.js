// Keep messages in order until the bridge has answered them. Pure. The caller stores them beside
// the sending, so they outlive a reload, and marks with `kept` those that are stored. Nothing is
// sent twice that the bridge might do twice.

export const OUTBOX_MAX = 1000;
// The bridge remembers a message's id for ten minutes; a later repetition would be done again.
export const REPEATABLE_MS = 9 * 60 * 1000;

/**
 * Add a message; returns the new list and what was dropped because the list was full.
 *
 * @param {Item[]} items
 * @param {Said} message
 * @param {number} now
 * @param {number} connection
 * @param {Carried[]} files that go with it
 */
export function put(items, message, now, connection, files = []) {
  const stands = { state: "waiting", kept: false, first: 0, problem: "" };
  const item = { message, made: now, connection, ...stands };
  const all = [...items, files.length ? carrying(item, files) : item];
  return { items: all.slice(-OUTBOX_MAX), dropped: all.slice(0, -OUTBOX_MAX) };
}

// Once the bridge has all of its files, the message names them.
/** @param {Item} item @param {Carried[]} files @returns {Item} */
function carrying(item, files) {
  const attachments = files.map(({ attachment_id: id }) => id);
  if (!attachments.every(Boolean)) return { ...item, files };
  const payload = { ...item.message.payload, attachments };
  return { ...item, files, message: /** @type {Said} */ ({ ...item.message, payload }) };
}

/**
 * Note which attachment a message's file has become.
 *
 * @param {Item[]} items @param {string} id @param {string} file @param {string} attachment
 */
export const uploaded = (items, id, file, attachment) =>
  items.map((item) => {
    if (item.message.id !== id || !item.files) return item;
    const found = { attachment_id: attachment };
    const files = item.files.map((one) => (one.id === file ? { ...one, ...found } : one));
    return carrying(item, files);
  });

/** @param {Item} _ */
export const filesLeft = ({ files = [] }) => files.filter(({ attachment_id: id }) => !id);

/**
 * Choose the messages that may be sent now, in order.
 *
 * @param {Item[]} items
 * @param {{now: number, connection: number, joined: Set<string>, open: Set<string>}} on `joined`:
 *   sessions that this connection has joined; `open`: keys of approvals that the bridge has shown
 *   on it (a decision that was made earlier and never sent goes only if its call is still open)
 * @returns {{items: Item[], send: Said[], join: string[], upload: Item[]}} `items`: the same list
 *   when nothing changed; `join`: sessions to join first; `upload`: messages whose files go first
 */
export function due(items, { now, connection, joined, open }) {
  /** @type {Said[]} */
  const send = [];
  const join = new Set();
  /** @type {Map<string, Item>} */
  const held = new Map(); // session → the message whose files its later ones wait for
  const next = items.map((item) => {
    const { type, payload } = item.message;
    if (item.state === "failed" || (item.state === "sent" && item.connection === connection))
      return item;
    if (item.first && Math.abs(now - item.first) > REPEATABLE_MS)
      return { ...item, state: "failed", problem: "Not confirmed: it may have arrived." };
    if (type === "approval_response") {
      const isNew = item.connection === connection;
      if (!isNew && !item.first && !open.has(`${payload.session_id}\n${payload.tool_call_id}`))
        return item;
    } else if (!joined.has(payload.session_id)) {
      join.add(payload.session_id);
      return item;
    } else if (held.has(payload.session_id)) {
      return item;
    } else if (filesLeft(item).length) {
      held.set(payload.session_id, item);
      return item;
    }
    send.push(item.message);
    return { ...item, state: "sent", first: item.first || now, connection };
  });
  const same = next.every((item, index) => item === items[index]);
  return { items: same ? items : next, send, join: [...join], upload: [...held.values()] };
}

/**
 * Remove the item that a message of the bridge answers or shows as taken.
 *
 * @param {Item[]} items
 * @param {string} id
 */
export const settle = (items, id) => items.filter(({ message }) => message.id !== id);

/**
 * Mark items as stored on this device.
 *
 * @param {Item[]} items
 * @param {Item[]} stored
 */
export function keep(items, stored) {
  const ids = new Set(stored.map(({ message }) => message.id));
  return items.map((item) => (ids.has(item.message.id) ? { ...item, kept: true } : item));
}

/**
 * Mark an item as failed, with the reason in words.
 *
 * @param {Item[]} items
 * @param {string} id
 * @param {string} problem
 */
export const fail = (items, id, problem) =>
  items.map((item) => (item.message.id === id ? { ...item, state: "failed", problem } : item));

/**
 * Let an item be sent again on this connection: its session was resumed, or a limit is over.
 *
 * @param {Item[]} items
 * @param {string} id
 */
export const again = (items, id) =>
  items.map((item) => (item.message.id === id ? { ...item, state: "waiting" } : item));

/**
 * Drop the decisions about one call, except one that was sent: the bridge will answer it.
 *
 * @param {Item[]} items
 * @param {string} key
 */
export const withoutDecisions = (items, key) =>
  items.filter(
    ({ message: { type, payload }, state }) =>
      type !== "approval_response" ||
      `${payload.session_id}\n${payload.tool_call_id}` !== key ||
      state === "sent",
  );
