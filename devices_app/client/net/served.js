// Compare this client's version with the one that the bridge serves, and manage the service worker
// that keeps the client on this device, where the browser trusts the origin. It is optional.

import { askOrigin } from "./requests.js";

const WORKER = "/app/sw.js";
const TAKE_OVER_MS = 3_000; // for a worker that was told to; some browsers leave it waiting
const VERSION = new URL(import.meta.url).pathname.split("/")[2];

/** The findings so far. @type {Served} */
export const served = {
  worker: "unknown", // whether the client is kept here: or kept, refused, absent
  trouble: "", // why it is not
  newer: false, // the bridge serves another version than this one
  reached: null, // whether the page's own origin answered; null before it was asked
  skew: null, // milliseconds that this device's clock is ahead of the bridge's
};

/** @type {ServiceWorkerRegistration | null} */
let registration = null;
let changed = () => {};
let takenOver = false;

/** @param {Partial<Served>} news */
function learn(news) {
  Object.assign(served, news);
  changed();
}

/**
 * Look at the server; from now on `tell` is called whenever `served` is another.
 *
 * @param {() => void} tell
 */
export function watchServer(tell) {
  changed = tell;
  lookAtServer();
}

/** Keep the client on this device, where the browser allows it. */
export async function keepClient() {
  const container = navigator.serviceWorker;
  if (!container)
    return learn({ worker: "absent", trouble: "This browser offers no service worker here." });
  container.addEventListener("controllerchange", () => {
    takenOver = true;
    learn({ newer: true });
  });
  try {
    registration = await container.register(address(), { scope: "/app/", updateViaCache: "none" });
  } catch (/** @type {any} */ error) {
    return learn({ worker: "refused", trouble: error.message });
  }
  registration.addEventListener("updatefound", () => watch(registration?.installing ?? null));
  watch(registration.installing);
  const newer = served.newer || Boolean(registration.waiting && container.controller);
  return learn({ worker: "kept", newer });
}

/** @param {ServiceWorker | null} worker */
function watch(worker) {
  worker?.addEventListener("statechange", () => {
    if (worker.state === "installed" && navigator.serviceWorker.controller) learn({ newer: true });
  });
}

// The policy of the page lets nothing but this address become a worker.
function address() {
  const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("worker", {
    createScriptURL: () => WORKER,
  });
  return policy?.createScriptURL("") ?? WORKER;
}

// None where the browser refuses one, or does not have them at all.
export const ownRegistration = async () =>
  (await navigator.serviceWorker?.getRegistration("/app/").catch(() => null)) ?? null;

/** Ask the bridge for its version and time, and note both in `served`. */
export async function lookAtServer() {
  const asked = Date.now();
  const response = await askOrigin();
  if (!response) return learn({ reached: false });
  const now = (asked + Date.now()) / 2;
  const date = Date.parse(response.headers.get("Date") ?? "");
  const version = response.headers.get("ETag") ?? "";
  learn({ reached: true, skew: Number.isNaN(date) ? null : now - date });
  if (!version || version.includes(VERSION)) return null;
  registration ??= await ownRegistration();
  if (!registration) return learn({ newer: true });
  // The worker fetches the new version first; the banner comes when it is here.
  return registration.update().catch(() => learn({ newer: true }));
}

/** Start the newer version; called only when the person asks for it. */
export async function useNewer() {
  const waiting = registration?.waiting;
  if (waiting && !takenOver) {
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
    waiting.postMessage("take over");
    await new Promise((go) => setTimeout(go, TAKE_OVER_MS));
  }
  // A worker that could not fetch the new version would serve the old one again.
  if (!takenOver) await registration?.unregister();
  location.reload();
}

/** Remove the worker and what it keeps. */
export async function dropClient() {
  await (await ownRegistration())?.unregister();
  const names = await globalThis.caches?.keys().catch(() => []); // a private window may refuse
  for (const name of names ?? []) await caches.delete(name);
}
