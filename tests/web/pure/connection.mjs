// The life of a connection: who says what and when, without a socket or a clock.

import assert from "node:assert/strict";
import { test } from "node:test";
import { begin, DELAYS, step } from "./protocol/connection.js";

/** A connection with what it has done; `expects` gives the effects since it was asked last. */
function machine(tokens = ["code"]) {
  let state = begin(tokens, "device-1");
  let effects = [];
  return {
    feed(event) {
      const [next, done] = step(state, event);
      state = next;
      effects.push(...done.filter((effect) => effect.do !== "cancel"));
    },
    get(type, payload = {}) {
      this.feed({ kind: "message", message: { type, id: "1", timestamp: "", payload } });
    },
    took(what) {
      const found = effects.filter((effect) => effect.do === what);
      effects = effects.filter((effect) => effect.do !== what);
      return found;
    },
    sent() {
      return this.took("send").map(({ message }) => message);
    },
    timers() {
      return Object.fromEntries(this.took("timer").map(({ name, ms }) => [name, ms]));
    },
    get state() {
      return state;
    },
  };
}

const HEALTHY = { ready: true, warnings: [], requires_acknowledgment: false };

/** One whose socket has been opened. */
function opened(tokens) {
  const one = machine(tokens);
  one.feed({ kind: "start" });
  one.feed({ kind: "opened" });
  return one;
}

function readyOne() {
  const one = opened(["own"]);
  one.get("connection_ack", { active_sessions: [] });
  one.get("health_status", HEALTHY);
  assert.equal(one.state.phase, "ready");
  one.sent();
  one.took("open");
  one.timers();
  one.took("deliver");
  one.took("ready");
  return one;
}

test("auth, health check, ready", () => {
  const one = machine(["own"]);
  one.feed({ kind: "start" });
  assert.equal(one.took("open").length, 1);
  assert.deepEqual(one.timers(), { connect: 8000 });
  one.feed({ kind: "opened" });
  const [auth] = one.sent();
  assert.equal(auth.type, "auth");
  assert.equal(auth.payload.token, "own");
  assert.equal(auth.payload.device_id, "device-1");
  assert.match(auth.payload.client_version, /^\d+\.\d+\.\d+$/);
  one.get("connection_ack", { active_sessions: [] });
  const [check] = one.sent();
  assert.equal(check.type, "health_check");
  assert.ok(check.payload.client_nonce && check.payload.timestamp);
  one.get("health_status", HEALTHY);
  assert.equal(one.took("ready").length, 1);
  assert.deepEqual(one.timers(), { ping: 15000 });
});

test("the code's token is stored beside the fresh one, which is used at once", () => {
  const one = opened(["code"]);
  one.get("connection_ack", { active_sessions: [], device_token: "fresh" });
  assert.deepEqual(one.took("keep"), [{ do: "keep", tokens: ["code", "fresh"] }]);
  assert.equal(one.took("open").length, 1); // only the first: not before it is stored
  one.feed({ kind: "kept", safe: true });
  assert.equal(one.took("open").length, 1);
  one.sent();
  one.feed({ kind: "opened" });
  assert.equal(one.sent()[0].payload.token, "fresh");
  one.get("connection_ack", { active_sessions: [] });
  assert.deepEqual(one.took("keep"), [{ do: "keep", tokens: ["fresh"] }]);
  assert.equal(one.sent()[0].type, "health_check");
});

test("a fresh token that cannot be stored is not used", () => {
  const one = opened(["code"]);
  one.get("connection_ack", { active_sessions: [], device_token: "fresh" });
  one.sent();
  one.feed({ kind: "kept", safe: false });
  assert.equal(one.took("open").length, 1);
  assert.equal(one.sent()[0].type, "health_check");
  assert.deepEqual(one.state.tokens, ["code"]);
});

test("a fresh token that is void gives way to the one before it", () => {
  const one = opened(["code", "void"]);
  assert.equal(one.sent()[0].payload.token, "void");
  one.get("connection_error", { code: "AUTH_FAILED", message: "no" });
  one.feed({ kind: "opened" });
  assert.equal(one.sent()[0].payload.token, "code");
  one.get("connection_error", { code: "AUTH_FAILED", message: "no" });
  assert.equal(one.state.phase, "stopped");
});

test("five delays, the last one again and again, the first one after a good connection", () => {
  const one = machine();
  one.feed({ kind: "start" });
  for (const ms of [...DELAYS, 30000, 30000]) {
    one.timers();
    one.feed({ kind: "closed" });
    assert.deepEqual(one.timers(), { retry: ms });
    one.feed({ kind: "timer", name: "retry" });
  }
  assert.deepEqual(DELAYS, [1000, 2000, 5000, 10000, 30000]);
  assert.equal(one.state.neverOpened, 7);
  const good = readyOne();
  good.feed({ kind: "closed" });
  assert.deepEqual(good.timers(), { retry: 1000 });
});

test("what does not open, or does not answer, within eight seconds is closed", () => {
  for (const until of [[], [{ kind: "opened" }]]) {
    const one = machine();
    one.feed({ kind: "start" });
    until.forEach((event) => one.feed(event));
    one.timers();
    one.feed({ kind: "timer", name: "connect" });
    assert.equal(one.took("close").length, 1);
    assert.deepEqual(one.timers(), { retry: 1000 });
  }
});

test("a heartbeat every fifteen seconds, answered within ten", () => {
  const one = readyOne();
  one.feed({ kind: "timer", name: "ping" });
  assert.equal(one.sent()[0].type, "heartbeat_ping");
  assert.deepEqual(one.timers(), { pong: 10000 });
  one.get("heartbeat_pong");
  assert.deepEqual(one.timers(), { ping: 15000 });
  one.feed({ kind: "timer", name: "ping" });
  one.feed({ kind: "timer", name: "pong" });
  assert.equal(one.took("close").length, 1);
  assert.equal(one.state.phase, "waiting");
});

test("after a tap or sleep a socket is dead unless it answers within a second", () => {
  for (const before of [[], [{ kind: "timer", name: "ping" }]]) {
    const one = readyOne();
    before.forEach((event) => one.feed(event));
    one.sent();
    one.feed({ kind: "wake" });
    assert.equal(one.sent()[0].type, "heartbeat_ping");
    assert.equal(one.timers().pong, 1000);
    one.feed({ kind: "wake" }); // of many taps the first counts
    assert.deepEqual([one.sent(), one.timers()], [[], {}]);
    one.feed({ kind: "timer", name: "pong" });
    assert.equal(one.took("open").length, 1); // at once
    // and one that waits for its turn does not wait any longer
    one.feed({ kind: "closed" });
    assert.equal(one.state.phase, "waiting");
    one.feed({ kind: "wake" });
    assert.equal(one.took("open").length, 1);
  }
});

test("while rows come, the pong behind them is waited for", () => {
  const one = readyOne();
  one.feed({ kind: "wake" });
  one.timers();
  one.get("stream_chunk");
  assert.deepEqual(one.timers(), { pong: 1000 });
  one.get("heartbeat_pong");
  assert.deepEqual(one.timers(), { ping: 15000 });
  one.get("stream_chunk");
  assert.deepEqual(one.timers(), {});
});

test("a warning is acknowledged by a person, and heartbeats go on meanwhile", () => {
  const one = opened();
  one.get("connection_ack", { active_sessions: [] });
  one.sent();
  one.get("health_status", {
    ready: false,
    requires_acknowledgment: true,
    warnings: ["DIRECT_PUBLIC_CONNECTION", "CLOCK_SKEW"],
    warning_details: {
      DIRECT_PUBLIC_CONNECTION: { message: "Open to all.", requires_acknowledgment: true },
      CLOCK_SKEW: { message: "Late.", requires_acknowledgment: false },
    },
  });
  assert.equal(one.state.phase, "warned");
  assert.deepEqual(one.sent(), []);
  one.feed({ kind: "timer", name: "ping" });
  assert.equal(one.sent()[0].type, "heartbeat_ping");
  one.feed({ kind: "accept" });
  const told = one.sent();
  assert.deepEqual(
    told.map(({ payload }) => payload.warning_code),
    ["DIRECT_PUBLIC_CONNECTION"],
  );
  assert.equal(told[0].payload.acknowledged, true);
  one.get("acknowledgment_accepted", { warning_code: "DIRECT_PUBLIC_CONNECTION", ready: true });
  assert.equal(one.state.phase, "ready");
});

test("what a person has to mend is not tried again, anything else is", () => {
  for (const code of [
    "AUTH_FAILED",
    "VERSION_INCOMPATIBLE",
    "MISCONFIGURED",
    "INSECURE_TRANSPORT",
  ]) {
    const one = opened();
    one.timers();
    one.get("connection_error", { code, message: "why" });
    one.feed({ kind: "closed" });
    assert.equal(one.state.phase, "stopped");
    assert.equal(one.state.fault.message, "why");
    assert.deepEqual(one.timers(), {});
    one.took("open");
    one.feed({ kind: "start" }); // a person says so
    assert.equal(one.took("open").length, 1);
  }
  const one = readyOne();
  one.get("error", { code: "CONN_REPLACED", message: "elsewhere" });
  assert.equal(one.state.phase, "stopped");
  const busy = opened();
  busy.timers();
  busy.get("connection_error", { code: "RATE_LIMITED", message: "too many" });
  assert.deepEqual(busy.timers(), { retry: 1000 });
});
