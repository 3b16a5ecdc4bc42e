// Drive one WebSocket by the state machine of protocol/connection.js.

import { begin, CONNECT_MS, step } from "../protocol/connection.js";
import { read, write } from "../protocol/messages.js";
import { askOrigin } from "./requests.js";

const TICK_MS = 2000;

export class Socket {
  /**
   * @param {object} on
   * @param {string} on.url
   * @param {string[]} on.tokens
   * @param {string} on.deviceId
   * @param {(message: Wire.Message) => void} on.deliver a message that is not the connection's own
   * @param {(state: State) => void} on.changed the connection's state is another
   * @param {() => void} on.ready this connection may be used
   * @param {(tokens: string[]) => Promise<boolean>} on.keep store tokens; are they safe now?
   * @param {(strange: Strange) => void} on.strange a message that cannot be read
   */
  constructor(on) {
    this.on = on;
    this.state = begin(on.tokens, on.deviceId);
    this.socket = null;
    this.timers = new Map();
    this.number = 0; // of the connection, so that others know whether it is still the same
    this.lastTick = Date.now();
    this.watch = setInterval(() => this.tick(), TICK_MS);
    this.wake = (/** @type {Event} */ { type }) => {
      if (type === "online" || document.visibilityState === "visible") this.feed({ kind: "wake" });
    };
    /** @type {[EventTarget, string][]} */
    this.wakers = [
      [document, "pointerdown"],
      [document, "visibilitychange"],
      [window, "focus"],
      [window, "pageshow"],
      [window, "online"],
    ];
    for (const [target, name] of this.wakers) target.addEventListener(name, this.wake);
  }

  start() {
    this.feed({ kind: "start" });
  }

  /** End for good: nothing is sent or received afterwards. */
  close() {
    this.feed({ kind: "stop" });
    clearInterval(this.watch);
    for (const [target, name] of this.wakers) target.removeEventListener(name, this.wake);
  }

  accept() {
    this.feed({ kind: "accept" });
  }

  get ready() {
    return this.state.phase === "ready" && this.socket?.readyState === WebSocket.OPEN;
  }

  /** @param {Sent<keyof Wire.Requests>} message */
  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(write(message));
  }

  // A timer that comes late tells that the page or the machine slept: the socket may be dead.
  tick() {
    const now = Date.now();
    const slept = now - this.lastTick > TICK_MS + 5000;
    this.lastTick = now;
    if (slept) this.feed({ kind: "wake" });
  }

  /** @param {Happening} event */
  feed(event) {
    const before = this.state;
    const [state, effects] = step(before, event);
    this.state = state;
    for (const effect of effects) this.act(effect);
    if (state !== before) this.on.changed(this.state);
  }

  act(/** @type {any} */ { do: what, name, ms, message, tokens }) {
    const acts = {
      open: () => this.open(),
      close: () => this.drop(),
      send: () => this.send(message),
      cancel: () => this.cancel(name),
      timer: () => {
        this.cancel(name);
        this.timers.set(
          name,
          setTimeout(() => this.feed({ kind: "timer", name }), ms),
        );
      },
      keep: () => this.on.keep(tokens).then((safe) => this.feed({ kind: "kept", safe })),
      ready: () => this.on.ready(),
      deliver: () => this.on.deliver(message),
    };
    acts[/** @type {Effect["do"]} */ (what)]();
  }

  /** @param {Clock} name */
  cancel(name) {
    clearTimeout(this.timers.get(name));
    this.timers.delete(name);
  }

  async open() {
    this.drop();
    const number = (this.number += 1);
    // After sockets that failed Firefox delays the next ones by up to a minute; no other request.
    const answers = !this.state.neverOpened || (await askOrigin());
    if (this.number !== number || this.state.phase !== "connecting") return;
    if (!answers) return this.feed({ kind: "closed" });
    this.act({ do: "timer", name: "connect", ms: CONNECT_MS });
    const socket = new WebSocket(this.on.url);
    this.socket = socket;
    /** @param {(event: any) => unknown} handle */
    const mine = (handle) => (/** @type {any} */ event) => this.socket === socket && handle(event);
    socket.onopen = mine(() => this.feed({ kind: "opened" }));
    socket.onclose = mine(() => this.feed({ kind: "closed" }));
    socket.onmessage = mine(({ data }) => {
      const got = read(data);
      if (got.message) this.feed({ kind: "message", message: got.message });
      else this.on.strange(got);
    });
  }

  drop() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }
}
