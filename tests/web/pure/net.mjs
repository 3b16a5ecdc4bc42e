// The socket, the requests and the outbox as they run; only the browser and its clock are not real.

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

class FakeSocket {
  static OPEN = 1;
  static made = [];
  constructor() {
    this.readyState = 0;
    this.sent = [];
    FakeSocket.made.push(this);
  }
  send(text) {
    this.sent.push(JSON.parse(text));
  }
  close() {
    this.readyState = 3;
  }
  open() {
    this.readyState = 1;
    this.onopen({});
  }
  fail() {
    this.readyState = 3;
    this.onclose({});
  }
  get(type, payload, id = "1") {
    const timestamp = new Date().toISOString();
    this.onmessage({ data: JSON.stringify({ type, id, timestamp, payload }) });
  }
}

const globals = {
  WebSocket: FakeSocket,
  document: Object.assign(new EventTarget(), { visibilityState: "visible" }),
  window: new EventTarget(),
  navigator: { userAgent: "", maxTouchPoints: 0 },
  fetch: async () => ({ status: 200 }),
};
for (const [name, value] of Object.entries(globals))
  Object.defineProperty(globalThis, name, { value, configurable: true });

const { Outgoing } = await import("./net/outgoing.js");
const { Requests, Unanswered } = await import("./net/requests.js");
const { Socket } = await import("./net/socket.js");

const settled = () => new Promise((resolve) => setImmediate(resolve));
const last = () => FakeSocket.made.at(-1);

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  FakeSocket.made = [];
});

async function started() {
  const nothing = () => {};
  const on = { url: "", tokens: ["t"], deviceId: "d", deliver: nothing, changed: nothing };
  const socket = new Socket({ ...on, ready: nothing, keep: async () => true, strange: nothing });
  socket.start();
  await settled();
  return socket;
}

async function usable() {
  const socket = await started();
  last().open();
  last().get("connection_ack", {});
  last().get("health_status", { ready: true, warnings: [], requires_acknowledgment: false });
  assert.equal(socket.ready, true);
  return socket;
}

// In small steps: one long step is what a machine that slept looks like.
async function after(ms) {
  for (let left = ms; left > 0; left -= 1000) {
    mock.timers.tick(Math.min(left, 1000));
    await settled();
  }
}

test("it connects again after 1, 2, 5, 10, 30 and 30 seconds", async () => {
  const socket = await started();
  for (const [index, seconds] of [1, 2, 5, 10, 30, 30].entries()) {
    last().fail();
    await after(seconds * 1000 - 1);
    assert.equal(FakeSocket.made.length, index + 1);
    await after(1);
    assert.equal(FakeSocket.made.length, index + 2);
  }
  socket.close();
});

test("an unanswered heartbeat ends a dead socket", async () => {
  const socket = await usable();
  const dead = last();
  await after(15_000);
  assert.equal(dead.sent.at(-1).type, "heartbeat_ping");
  await after(9_999);
  assert.equal(socket.ready, true);
  await after(1);
  assert.equal(dead.readyState, 3);
  assert.equal(socket.state.phase, "waiting");
  socket.close();
});

test("a tap, a look and the network's return each ask it at once", async () => {
  for (const [target, name] of [
    [document, "pointerdown"],
    [document, "visibilitychange"],
    [window, "focus"],
    [window, "pageshow"],
    [window, "online"],
  ]) {
    const socket = await usable();
    const dead = last();
    target.dispatchEvent(new Event(name));
    assert.equal(dead.sent.at(-1).type, "heartbeat_ping");
    await after(1_000);
    assert.notEqual(last(), dead);
    last().fail();
    assert.equal(socket.state.phase, "waiting");
    target.dispatchEvent(new Event(name));
    assert.equal(socket.state.phase, "connecting");
    socket.close();
  }
});

test("a socket that does not open in 8 seconds is given up", async () => {
  const socket = await started();
  await after(7_999);
  assert.equal(socket.state.phase, "connecting");
  await after(1);
  assert.equal(last().readyState, 3);
  assert.equal(socket.state.phase, "waiting");
  socket.close();
});

/** An outbox on a socket that keeps what it is given. */
function line(keep = async () => true) {
  const sent = [];
  const socket = { ready: true, number: 1, send: (message) => sent.push(message) };
  const requests = new Requests(() => socket);
  const db = { get: async () => [] };
  const engine = { socket, requests, db, stopped: false, tell() {}, note() {} };
  const outgoing = new Outgoing({ ...engine, keep });
  return { sent, requests, outgoing };
}

const ready = ({ id }) => ({ type: "session_ready", id, payload: { session_id: "s" } });

test("what waits joins its session once, and goes in its order", async () => {
  const { sent, requests, outgoing } = line();
  for (const content of ["a", "b", "c"])
    await outgoing.put("message", { session_id: "s", content, role: "user" });
  assert.deepEqual(
    sent.map(({ type }) => type),
    ["session_start"],
  );
  requests.answer(ready(sent[0]));
  outgoing.flush();
  outgoing.flush();
  await settled();
  assert.deepEqual(
    sent.slice(1).map(({ payload }) => payload.content),
    ["a", "b", "c"],
  );
});

test("a message goes before it is stored, once, and says when it is", async () => {
  const stored = [];
  const { sent, requests, outgoing } = line(
    (_, items) => new Promise((resolve) => stored.push([items, resolve])),
  );
  requests.joined.add("s");
  const done = outgoing.put("message", { session_id: "s", content: "a", role: "user" });
  assert.equal(sent.length, 1);
  const [[[kept], store]] = stored;
  assert.deepEqual([stored.length, kept.state], [1, "sent"]);
  assert.equal(outgoing.items[0].kept, false);
  store(true);
  await done;
  assert.equal(outgoing.items[0].kept, true);
  outgoing.settle(sent[0].id);
  assert.deepEqual(stored.at(-1)[0], []);
});

test("an answer that comes late is still known, and joins", async () => {
  const { sent, requests } = line();
  const joining = requests.join("s");
  assert.equal(requests.join("s"), joining);
  mock.timers.tick(20_000);
  await assert.rejects(joining, Unanswered);
  assert.equal(requests.has(sent[0].id), true);
  requests.answer(ready(sent[0]));
  assert.equal(requests.has(sent[0].id), false);
  assert.equal(await requests.join("s"), null);
  assert.equal(sent.length, 1);
});
