// Subscribe this browser to pushes, and keep the bridge's record of it right.

import { clock } from "../parts/text.js";
import { isIOS } from "./requests.js";
import { ownRegistration, served } from "./served.js";

const SUBSCRIBE_MS = 20_000;
const KEPT = "push"; // what this device wants: "quiet", "full"; nothing: no push

/**
 * Say why this browser cannot be sent pushes; "" when it can.
 *
 * @param {Connection} _
 */
export function whyNot({ acked, phase }) {
  if (phase !== "ready") return "There is no connection to the bridge.";
  if (!acked?.push) return "The bridge is set up to send none (BRIDGE_PUSH).";
  if (isIOS && !("PushManager" in window))
    return "On an iPhone only an app on the Home Screen is told: add it, and pair it there.";
  if (served.worker === "unknown") return "One moment…";
  if (served.worker !== "kept" || !("PushManager" in window))
    return "It needs a certificate that this browser trusts: “What is wrong?” has the steps.";
  if (Notification.permission === "denied")
    return "Notifications of this page are blocked: allow them in the browser's settings.";
  return "";
}

/**
 * What this device wants: "quiet", "full", or null.
 *
 * @param {Model} model
 */
export const wanted = (model) => model.db.get(KEPT);

/**
 * Subscribe to pushes of this detail; asks the person for permission first.
 *
 * @param {Model} model
 * @param {Detail} detail
 */
export async function switchOn(model, detail) {
  const allowed = await Notification.requestPermission();
  if (allowed !== "granted") throw new Error("This browser was not allowed to show notifications.");
  await tell(model, detail);
  await model.db.set(KEPT, detail);
}

/** @param {Model} model */
export async function switchOff(model) {
  await model.db.set(KEPT, null);
  await model.call("ask", "push_unsubscribe", {});
  const { pushManager } = /** @type {ServiceWorkerRegistration} */ (await ownRegistration());
  await (await pushManager.getSubscription())?.unsubscribe();
}

/**
 * Have a push sent now; says in words what became of it.
 *
 * @param {Model} model
 */
export async function tryPush(model) {
  const { subscribed, problem } = await model.call("ask", "push_test", {});
  if (!subscribed) {
    await renewPush(model);
    return "The push service had dropped this browser. It is subscribed anew: try once more.";
  }
  return problem ? `It was not sent: ${problem}` : "Sent. It is shown here in a few seconds.";
}

/**
 * Renew the subscription, if a push is wanted; returns in words what became of the last push.
 *
 * @param {Model} model
 */
export async function renewPush(model) {
  const detail = await wanted(model);
  if (!detail || whyNot(model.connection)) return "";
  const { last } = await tell(model, detail);
  if (!last) return "";
  const at = clock(last.at);
  if (last.problem) return `The last push failed at ${at}: ${last.problem}`;
  const shown = last.shown_at ? `, shown ${clock(last.shown_at)}` : "";
  return `The last push was accepted by ${last.service} ${at}${shown}.`;
}

/**
 * Renew the push subscription on each connection, if a push is wanted.
 *
 * @param {Model} model
 */
export function keepPush(model) {
  const mend = () => renewPush(model).catch(() => {}); // a test in Settings says why
  model.follow(({ connection }) => connection?.phase === "ready" && mend());
  document.addEventListener("visibilitychange", clear);
  return Promise.all([mend(), clear()]);
}

// Whoever looks at the page has been told.
async function clear() {
  if (document.visibilityState !== "visible") return;
  for (const shown of (await (await ownRegistration())?.getNotifications()) ?? []) shown.close();
}

// Subscribe, and tell the bridge; a subscription that it knows to be dead is made anew, once.
/** @param {Model} model @param {Detail} detail @returns {Promise<Wire.Payloads["push_state"]>} */
async function tell(model, detail, again = true) {
  const { pushManager } = /** @type {ServiceWorkerRegistration} */ (await ownRegistration());
  const key = model.connection.acked?.push?.public_key ?? "";
  const options = { userVisibleOnly: true, applicationServerKey: key };
  let subscription = await pushManager.getSubscription();
  if (subscription && textOf(subscription.options.applicationServerKey) !== key) {
    await subscription.unsubscribe(); // made for another key: nobody can send to it
    subscription = null;
  }
  if (!subscription) {
    // A browser that does not reach its maker's service may try for ever.
    const error = new Error("The push service of this browser's maker does not answer.");
    const late = new Promise((_, reject) => setTimeout(reject, SUBSCRIBE_MS, error));
    subscription = await Promise.race([pushManager.subscribe(options), late]);
  }
  await model.db.set("push-key", key); // for the service worker
  const given = { subscription: subscription?.toJSON(), detail };
  return model.call("ask", "push_subscribe", given).catch(async (error) => {
    if (error.code !== "PUSH_ENDPOINT_GONE" || !again) throw error;
    await subscription?.unsubscribe();
    return tell(model, detail, false);
  });
}

/** @param {ArrayBuffer | null} key */
const textOf = (key) =>
  btoa(String.fromCharCode(...new Uint8Array(key ?? [])))
    .replace(/=+$/, "")
    .replaceAll("+", "-")
    .replaceAll("/", "_");
