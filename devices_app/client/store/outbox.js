// What this device wants to send and the bridge has not answered. Pure. It outlives a reload (the
// caller stores it), keeps order within a session, and sends nothing twice that might be done twice.

export const OUTBOX_MAX = 1000;
// The bridge remembers a message's id for ten minutes; a repetition later would be done again.
export const REPEATABLE_MS = 9 * 60 * 1000;
export const UNCONFIRMED_MS = 10 * 1000;

/**
 * @typedef {object} Item
 * @property {import("../protocol/messages.js").Message} message
 * @property {string} state waiting, sent or failed
 * @property {number} made when the person did it, ms since 1970
 * @property {number} first when it was first sent, or 0
 * @property {number} connection number of the connection that it was made or sent on
 * @property {string} problem why it failed, in words
 */

/** Add a message; returns the new list and what was dropped because the list was full. */
export function put(items, message, now, connection) {
  const all = [
    ...items,
    { message, state: "waiting", made: now, first: 0, connection, problem: "" },
  ];
  return { items: all.slice(-OUTBOX_MAX), dropped: all.slice(0, -OUTBOX_MAX) };
}

/**
 * Choose what may be sent now, in order.
 *
 * @param {Item[]} items
 * @param {{now: number, connection: number, joined: Set<string>, open: Set<string>}} on `joined`:
 *   sessions that this connection has joined; `open`: keys of approvals that the bridge has shown on
 *   this connection (a decision made earlier goes only if its call is still open)
 * @returns {{items: Item[], send: object[], join: string[]}} `join`: sessions to join first
 */
export function due(items, { now, connection, joined, open }) {
  const send = [];
  const join = new Set();
  const blocked = new Set();
  const next = items.map((item) => {
    const { type, payload } = item.message;
    const session = payload?.session_id;
    if (item.state === "failed" || (item.state === "sent" && item.connection === connection))
      return item;
    if (item.first && now - item.first > REPEATABLE_MS) {
      return {
        ...item,
        state: "failed",
        problem: "Not confirmed: it may have arrived before the connection was lost.",
      };
    }
    if (type === "approval_response") {
      const made = item.connection === connection && !item.first;
      if (!made && !open.has(`${session}\n${payload.tool_call_id}`)) return item;
    } else if (session && type !== "session_start") {
      if (!joined.has(session)) {
        join.add(session);
        return item;
      }
      if (blocked.has(session)) return item;
    }
    send.push(item.message);
    return { ...item, state: "sent", first: item.first || now, connection };
  });
  return { items: next, send, join: [...join] };
}

/** Remove the item that a message of the bridge answers or shows as taken. */
export const settle = (items, id) => items.filter(({ message }) => message.id !== id);

/** Mark an item as failed, with the reason in words. */
export const fail = (items, id, problem) =>
  items.map((item) => (item.message.id === id ? { ...item, state: "failed", problem } : item));

/** Let an item be sent again on this connection, after its session was resumed or a limit is over. */
export const again = (items, id) =>
  items.map((item) => (item.message.id === id ? { ...item, state: "waiting" } : item));

/** Drop the decisions about a call that is no longer open. */
export const dropDecisions = (items, key) =>
  items.filter(
    ({ message }) =>
      message.type !== "approval_response" ||
      `${message.payload.session_id}\n${message.payload.tool_call_id}` !== key,
  );
