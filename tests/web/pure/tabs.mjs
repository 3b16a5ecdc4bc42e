// Which of several tabs leads: it alone holds a socket, and what goes over it goes once.

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

const settled = async () => {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

/** The bridge's end of a socket: it lets everybody in, and takes prompts unless it is `deaf`. */
class BridgeSocket {
  static OPEN = 1;
  static made = [];
  static deaf = false;
  static answers = {
    auth: () => ["connection_ack", { connection_mode: "local_only", active_sessions: [] }],
    health_check: () => [
      "health_status",
      { ready: true, warnings: [], requires_acknowledgment: false },
    ],
    heartbeat_ping: () => ["heartbeat_pong"],
    session_start: ({ id, payload }) => ["session_ready", { session_id: payload.session_id }, id],
    message: ({ id, payload }) =>
      !BridgeSocket.deaf && [
        "agent_event",
        {
          session_id: payload.session_id,
          event: "UserPromptSubmit",
          payload: { prompt: payload.content, message_id: id },
        },
      ],
  };
  constructor() {
    this.readyState = 0;
    this.got = [];
    BridgeSocket.made.push(this);
    setImmediate(() => {
      if (this.readyState) return;
      this.readyState = 1;
      this.onopen({});
    });
  }
  send(text) {
    const message = JSON.parse(text);
    this.got.push(message);
    const answer = BridgeSocket.answers[message.type]?.(message);
    if (answer) setImmediate(() => this.say(...answer));
  }
  say(type, payload, id = crypto.randomUUID()) {
    const timestamp = new Date().toISOString();
    const data = JSON.stringify({ type, id, timestamp, payload });
    if (this.readyState === 1) this.onmessage({ data });
  }
  close() {
    this.readyState = 3;
  }
}

/** A channel as browsers have it; a tab that hangs hears later what was said meanwhile. */
class Channel {
  static all = new Set();
  constructor() {
    this.missed = null;
    Channel.all.add(this);
  }
  postMessage(message) {
    for (const other of Channel.all)
      if (other !== this) setImmediate(() => other.hear(structuredClone(message)));
  }
  hear(data) {
    if (this.missed) this.missed.push(data);
    else if (Channel.all.has(this)) this.onmessage({ data });
  }
  close() {
    Channel.all.delete(this);
  }
}

/** Locks as browsers have them; all that is asked for here is one lock. */
class Locks {
  held = null;
  queue = [];
  request(_, { steal = false, signal }, work) {
    return new Promise((resolve, reject) => {
      const wish = { work, resolve, reject };
      const stop = (one) => one.reject(new DOMException("aborted", "AbortError"));
      signal?.addEventListener("abort", () => {
        if (!this.queue.includes(wish)) return; // it was granted
        this.queue.splice(this.queue.indexOf(wish), 1);
        stop(wish);
      });
      if (steal && this.held) stop(this.held);
      if (steal) this.grant(wish);
      else this.queue.push(wish);
      this.next();
    });
  }
  next() {
    if (!this.held && this.queue.length) this.grant(this.queue.shift());
  }
  grant(wish) {
    this.held = wish;
    setImmediate(async () => {
      const result = await wish.work();
      wish.resolve(result);
      if (this.held === wish) this.lose();
    });
  }
  /** Take the lock from its holder, whom nobody tells: its page is gone. */
  lose() {
    this.held = null;
    this.next();
  }
}

const globals = {
  WebSocket: BridgeSocket,
  BroadcastChannel: Channel,
  navigator: { userAgent: "", maxTouchPoints: 0 },
  addEventListener: () => {},
  fetch: async () => ({ ok: true, status: 200, json: async () => ({ sessions: [] }) }),
};
for (const [name, value] of Object.entries(globals))
  Object.defineProperty(globalThis, name, { value, configurable: true });

const { Model } = await import("./net/model.js");

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  navigator.locks = new Locks();
  globalThis.document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  globalThis.window = new EventTarget();
  Channel.all.clear();
  Object.assign(BridgeSocket, { made: [], deaf: false });
});

/** Tabs of one browser, which share its storage; the first was opened first. */
async function tabs(count) {
  const all = Array.from({ length: count }, () => new Model());
  for (const tab of all) await tab.open();
  for (const tab of all) {
    tab.db = all[0].db;
    tab.identity = { url: "", tokens: ["t"], deviceId: "d" };
    tab.connect();
    await settled();
  }
  return all;
}

const leaders = (all) => all.filter(({ engine }) => engine);
const open = () => BridgeSocket.made.filter(({ readyState }) => readyState === 1);
const prompts = (sockets = BridgeSocket.made) =>
  sockets.flatMap(({ got }) => got.filter(({ type }) => type === "message"));
const contents = (sockets) => prompts(sockets).map(({ payload }) => payload.content);

/** The browser kills the page of the tab that leads: it says nothing any more, and hears nothing. */
function crash({ channel }) {
  channel.close();
  open()[0].close();
  navigator.locks.lose();
}

test("of three tabs one leads, and what the others say goes over its socket", async () => {
  const all = await tabs(3);
  assert.deepEqual(leaders(all), [all[0]]);
  for (const [index, tab] of all.entries()) await tab.call("say", "s", `from ${index}`);
  await settled();
  assert.equal(BridgeSocket.made.length, 1);
  assert.deepEqual(contents(), ["from 0", "from 1", "from 2"]);
  for (const tab of all) assert.deepEqual([tab.connection.phase, tab.outbox], ["ready", []]);
});

for (const [how, end] of [
  ["closes", (tab) => tab.rest()],
  ["crashes", crash],
])
  test(`when the tab that leads ${how}, one other takes over, and sends what was not taken`, async () => {
    const [first, second, third] = await tabs(3);
    await second.call("say", "s", "taken");
    await settled();
    BridgeSocket.deaf = true;
    await second.call("say", "s", "not taken");
    await settled();
    BridgeSocket.deaf = false;
    end(first);
    await settled();
    assert.deepEqual(leaders([second, third]), [second]);
    assert.equal(open().length, 1);
    const [, again] = BridgeSocket.made;
    assert.deepEqual(contents([again]), ["not taken"]);
    const ids = prompts().map(({ id, payload }) => `${payload.content} ${id}`);
    assert.equal(new Set(ids).size, 2, "it is the same message: the bridge does it once");
    await third.call("say", "s", "later");
    await settled();
    assert.deepEqual(contents(open()), ["not taken", "later"]);
    assert.deepEqual([BridgeSocket.made.length, third.outbox], [2, []]);
  });

test("what a tab that hangs was asked is done by the next one, and not by both", async () => {
  const [first, second] = await tabs(2);
  first.channel.missed = [];
  const said = second.call("say", "s", "once");
  await settled();
  assert.deepEqual(contents(), []);
  mock.timers.tick(1500);
  await said;
  await settled();
  assert.deepEqual(leaders([first, second]), [second]);
  // It stands in line again; what it hears at last is old.
  second.rest();
  await settled();
  assert.deepEqual(leaders([first, second]), [first]);
  const { missed } = first.channel;
  first.channel.missed = null;
  for (const data of missed) first.channel.hear(data);
  await settled();
  assert.deepEqual(contents(), ["once"]);
  assert.equal(open().length, 1);
});

test("a tab that has taken a command keeps the lead while the answer is awaited", async () => {
  const [first, second] = await tabs(2);
  const asked = second.call("ask", "file_list", { session_id: "s", path: "." });
  for (let seconds = 0; seconds < 5; seconds += 1) {
    await settled();
    mock.timers.tick(1000);
  }
  await settled();
  assert.deepEqual(leaders([first, second]), [first]);
  const [socket] = open();
  const found = { session_id: "s", path: "/", entries: [] };
  socket.say("file_list_response", found, socket.got.at(-1).id);
  assert.deepEqual(await asked, found);
});
