// List the engine's commands by name, for screens in its own tab or in another one.

import { make } from "../protocol/messages.js";
import { markSeen } from "../store/home.js";
import { fetchJson, Unanswered } from "./requests.js";

// of a commit's hooks, a remote's, of an answer of megabytes, and an agent that starts for its list
/** @type {Record<string, number>} */
const PATIENCE_MS = {
  git_commit: 130_000,
  git_push: 310_000,
  replay_request: 60_000,
  history_list: 60_000,
};

const PAGE = 200; // rows in one answer
const UNJOINED = new Set(["session_edit"]); // may be about a session that is over

/** @param {Engine} engine @param {keyof Wire.Replies} type @param {any} payload */
async function ask(engine, type, payload) {
  await engine.requests.online();
  if (payload.session_id && !UNJOINED.has(type)) await engine.requests.join(payload.session_id);
  return (await engine.requests.send(type, payload, PATIENCE_MS[type])).payload;
}

/** @param {Engine} engine @returns {Commands} */
export const commandsOf = (engine) => ({
  snapshot: () => ({
    home: engine.home,
    outbox: engine.outgoing.items,
    connection: engine.connection,
    problems: engine.problems,
    isInFront: document.visibilityState === "visible",
  }),

  view: (tab, session) => {
    engine.viewing.set(tab, session);
    if (!session) return;
    engine.setHome(markSeen(engine.home, session));
    engine.follow(session);
  },

  say: (session, content, more = {}, files = []) =>
    engine.outgoing.put("message", { session_id: session, content, role: "user", ...more }, files),

  decide: async (key, decision, modifications = null, more = {}) => {
    const approval = engine.home.approvals[key];
    if (!approval?.open) return;
    engine.outgoing.withdraw(key); // an earlier one that has not been sent
    await engine.outgoing.put("approval_response", {
      session_id: approval.session_id,
      tool_call_id: approval.tool_call_id,
      decision,
      modifications: /** @type {any} */ (modifications), // JSON, as `write` sends it
      ...more,
    });
  },

  withdraw: (key) => engine.outgoing.withdraw(key),
  retry: (id) => engine.outgoing.retry(id),
  discard: (id) => engine.outgoing.settle(id),

  /** Ask something, if it is about a session after joining that. */
  ask: (type, payload) => ask(engine, type, payload),

  send: (type, payload) => {
    if (!engine.socket.ready) throw new Unanswered("There is no connection to the bridge.");
    engine.socket.send(make(type, payload));
  },

  resume: (session, how = {}) =>
    engine.requests.join(session, true, how).then(({ payload }) => payload.session_id),

  // What it is told first waits for it like any message, and outlives this page.
  startSession: async (session, agent, directory, content, more = {}, files = []) => {
    const { outgoing, requests } = engine;
    await requests.online();
    requests.begun.set(session, [agent, directory, more]);
    const id = content && (await engine.commands.say(session, content, {}, files)); // which joins
    await requests.join(session).catch((error) => {
      if (error instanceof Unanswered) return; // the next connection begins it, or finds it
      requests.begun.delete(session);
      if (!/^(AGENT_ERROR|SESS_(?!LIMIT))/.test(error.code)) outgoing.settle(id); // the form has it still
      throw error;
    });
  },

  /** Get the rows before a kept one, or the newest; tells whether there are still older ones. */
  older: async (session, anchor) => {
    await engine.requests.online();
    await engine.requests.join(session);
    const asked = { session_id: session, before_id: anchor?.id, limit: PAGE };
    const patience = PATIENCE_MS.replay_request;
    const { payload } = await engine.requests.send("replay_request", asked, patience, anchor);
    return payload.older === true;
  },

  attachment: async (session, id) => {
    const { fetchAttachment } = await import("./attachments.js");
    return fetchAttachment(engine.identity.tokens.at(-1), session, id);
  },
  http: (path) => fetchJson(path, engine.identity.tokens.at(-1)),
  accept: () => engine.socket.accept(),
  connect: () => engine.socket.start(),
});
