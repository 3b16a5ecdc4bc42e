// Model one connection to the bridge as a pure state machine: `step(state, event)` returns the new
// state and the effects, which net/socket.js carries out: it opens sockets and sets timers.

import { CLIENT_VERSION, make } from "./messages.js";

export const DELAYS = [1, 2, 5, 10, 30].map((seconds) => seconds * 1000);
export const CONNECT_MS = 8000;
export const PING_MS = 15000;
export const PONG_MS = 10000;
export const WAKE_MS = 1000;

// After these codes a person has to act; connecting again would not help.
const FINAL =
  "AUTH_FAILED VERSION_INCOMPATIBLE MISCONFIGURED INSECURE_TRANSPORT CONN_REPLACED".split(" ");

const UP = new Set(["warned", "ready"]); // phases in which heartbeats go

/**
 * Return the state of a connection that was not tried yet.
 *
 * @param {string[]} tokens
 * @param {string} deviceId
 * @returns {State}
 */
export const begin = (tokens, deviceId) => ({
  // or connecting, authenticating, keeping, checking, warned, ready, waiting, stopped
  phase: "off",
  attempt: 0, // failed attempts since the last connection that became ready
  neverOpened: 0, // attempts in a row whose socket did not open
  tokens, // the bridge's tokens, the one to use last
  deviceId,
  acked: null, // payload of `connection_ack`
  health: null, // payload of `health_status`
  fault: null, // why it failed: {code, message, remediation?}
  patience: 0, // ms within which a pong is awaited, or 0
  fresh: "", // the token that is being stored, in the phase "keeping"
});

const now = () => new Date().toISOString();

/** @type {{ [K in Happening["kind"]]: Step<K> }} */
const STEPS = {
  start: (state) =>
    ["off", "waiting", "stopped"].includes(state.phase)
      ? open({ ...state, fault: null })
      : [state, []],
  stop: (state) => [{ ...state, phase: "off", patience: 0 }, [...quiet, { do: "close" }]],
  opened: (state) => (state.phase === "connecting" ? authenticate(state) : [state, []]),
  closed,
  wake,
  timer: (state, { name }) => timer(state, name),
  accept: (state) => [state, state.phase === "warned" ? acknowledgements(state) : []],
  kept: (state, { safe }) => kept(state, safe),
  message: (state, event) => message(state, event.message),
};

/**
 * Advance the connection by one event.
 *
 * Events: `{kind: "start" | "stop" | "opened" | "closed" | "wake" | "accept"}`,
 * `{kind: "timer", name}`, `{kind: "message", message}`, and `{kind: "kept", safe}` as the answer
 * to the effect "keep". Effects: `{do: "open" | "close" | "send" | "timer" | "cancel" | "keep" |
 * "ready" | "deliver", …}`; times are in milliseconds.
 *
 * @param {State} state
 * @param {Happening} event
 * @returns {Stepped} the new state and the effects
 */
export const step = (state, event) => /** @type {Step<any>} */ (STEPS[event.kind])(state, event);

/** @type {Effect[]} */
const quiet = ["connect", "ping", "pong", "retry"].map((name) => ({
  do: "cancel",
  name: /** @type {Clock} */ (name),
}));

// Of a connection on which heartbeats go from now on.
/** @type {Effect[]} */
const alive = [
  { do: "cancel", name: "connect" },
  { do: "timer", name: "ping", ms: PING_MS },
];

/** @param {State} state @returns {Stepped} */
function open(state) {
  return [
    { ...state, phase: "connecting", patience: 0 },
    [...quiet, { do: "open" }, { do: "timer", name: "connect", ms: CONNECT_MS }],
  ];
}

/** @param {State} state @returns {Stepped} */
function authenticate(state) {
  const [token] = state.tokens.slice(-1);
  const auth = make("auth", {
    token,
    client_version: CLIENT_VERSION,
    platform: "web",
    device_id: state.deviceId,
  });
  return [{ ...state, phase: "authenticating", neverOpened: 0 }, [{ do: "send", message: auth }]];
}

/** @param {State} state @returns {Stepped} */
function closed(state) {
  if (state.phase === "off" || state.phase === "stopped" || state.phase === "waiting")
    return [state, []];
  const neverOpened = state.phase === "connecting" ? state.neverOpened + 1 : 0;
  const ms = DELAYS[Math.min(state.attempt, DELAYS.length - 1)];
  const attempt = state.attempt + 1;
  /** @type {State} */
  const next = { ...state, phase: "waiting", attempt, neverOpened, patience: 0 };
  return [next, [...quiet, { do: "timer", name: "retry", ms }]];
}

// Somebody taps, or the page or the network came back: a socket that seems open may be dead.
/** @param {State} state @returns {Stepped} */
function wake(state) {
  if (state.phase === "waiting") return open({ ...state, attempt: 0 });
  const isAsked = state.patience === WAKE_MS || !UP.has(state.phase);
  return isAsked ? [state, []] : ping(state, WAKE_MS);
}

/** @param {State} state @param {number} ms @returns {Stepped} */
function ping(state, ms) {
  /** @type {Effect[]} */
  const effects = [
    { do: "cancel", name: "ping" },
    { do: "send", message: make("heartbeat_ping") },
    { do: "timer", name: "pong", ms },
  ];
  return [{ ...state, patience: ms }, effects];
}

/** @param {State} state @param {Clock} name @returns {Stepped} */
function timer(state, name) {
  if (name === "retry" && state.phase === "waiting") return open(state);
  if (name === "ping" && UP.has(state.phase)) return ping(state, PONG_MS);
  const opening = ["connecting", "authenticating", "keeping", "checking"].includes(state.phase);
  const isDead = name === "pong" && state.patience > 0;
  if (!isDead && !(name === "connect" && opening)) return [state, []];
  // Somebody waits for it.
  if (state.patience === WAKE_MS) return open(state);
  const [next, effects] = closed(state);
  return [next, [{ do: "close" }, ...effects]];
}

/** @param {State} state @param {Wire.Message} got @returns {Stepped} */
function message(state, got) {
  // The pong stands in line behind what comes.
  const [next, effects] = take(state, got);
  /** @type {Effect} */
  const longer = { do: "timer", name: "pong", ms: next.patience };
  return [next, next.patience ? [longer, ...effects] : effects];
}

/** @param {State} state @param {Wire.Message} got @returns {Stepped} */
function take(state, got) {
  const { type, payload } = got;
  if (type === "heartbeat_pong") {
    if (!state.patience) return [state, []];
    /** @type {Effect} */
    const next = { do: "timer", name: "ping", ms: PING_MS };
    return [{ ...state, patience: 0 }, [{ do: "cancel", name: "pong" }, next]];
  }
  if (type === "connection_error" || (type === "error" && payload.code === "CONN_REPLACED"))
    return refused(state, payload);
  if (type === "connection_ack") return acked(state, got);
  if (type === "health_status") {
    const next = { ...state, health: payload };
    if (payload.ready) return ready(next, got);
    /** @type {Effect} */
    const deliver = { do: "deliver", message: got };
    return payload.requires_acknowledgment
      ? [{ ...next, phase: "warned" }, [...alive, deliver]]
      : [next, [deliver]];
  }
  if (type === "notify_state" && state.acked)
    return [
      { ...state, acked: { ...state.acked, notify: payload } },
      [{ do: "deliver", message: got }],
    ];
  if (type === "acknowledgment_accepted" && payload.ready && state.phase !== "ready")
    return ready(state, got);
  return [state, [{ do: "deliver", message: got }]];
}

/** @param {State} state @param {Wire.Envelope<"connection_ack">} got @returns {Stepped} */
function acked(state, got) {
  const fresh = got.payload.device_token;
  const held = { ...state, acked: got.payload };
  /** @type {Effect} */
  const deliver = { do: "deliver", message: got };
  // Somebody may have copied the code's token: the fresh one is stored beside it and used at once.
  if (fresh) {
    const tokens = [...state.tokens.slice(-1), fresh];
    return [{ ...held, phase: "keeping", fresh }, [deliver, { do: "keep", tokens }]];
  }
  const tokens = state.tokens.slice(-1);
  /** @type {Effect[]} */
  const keep = state.tokens.length > 1 ? [{ do: "keep", tokens }] : [];
  const [next, effects] = check({ ...held, tokens });
  return [next, [deliver, ...keep, ...effects]];
}

/** @param {State} state @param {boolean} safe @returns {Stepped} */
function kept(state, safe) {
  if (state.phase !== "keeping") return [state, []];
  // If it were used and then lost, this device would be locked out: unless stored, it is not used.
  if (!safe) return check(state);
  const [next, effects] = open({ ...state, tokens: [...state.tokens.slice(-1), state.fresh] });
  return [next, [{ do: "close" }, ...effects]];
}

/** @param {State} state @returns {Stepped} */
function check(state) {
  const asking = make("health_check", {
    timestamp: now(),
    client_nonce: crypto.randomUUID(),
    client_capabilities: ["health_v1", "acknowledgment_v1"],
  });
  return [{ ...state, phase: "checking" }, [{ do: "send", message: asking }]];
}

/** @param {State} state @returns {Effect[]} */
function acknowledgements({ health }) {
  if (!health) return [];
  const { warnings, warning_details: details = {} } = health;
  const asked = warnings.filter((code) => details[code]?.requires_acknowledgment !== false);
  return asked.map((code) => {
    const payload = { warning_code: code, acknowledged: true, acknowledged_at: now() };
    return { do: "send", message: make("acknowledge_warning", payload) };
  });
}

/** @param {State} state @param {Wire.Message} got @returns {Stepped} */
function ready(state, got) {
  return [
    { ...state, phase: "ready", attempt: 0, fault: null },
    [...alive, { do: "deliver", message: got }, { do: "ready" }],
  ];
}

/** @param {State} state @param {Fault} fault @returns {Stepped} */
function refused(state, fault) {
  if (fault.code === "AUTH_FAILED" && state.tokens.length > 1) {
    // The fresh token became void, or a code was used before; the token before it works.
    const tokens = state.tokens.slice(0, -1);
    const [next, effects] = open({ ...state, tokens });
    return [next, [{ do: "close" }, { do: "keep", tokens }, ...effects]];
  }
  if (FINAL.includes(fault.code)) {
    return [{ ...state, phase: "stopped", fault, patience: 0 }, [...quiet, { do: "close" }]];
  }
  const [next, effects] = closed(state);
  return [{ ...next, fault }, [{ do: "close" }, ...effects]];
}
