// Say in words what is wrong and what to do, as `doctor` does at the machine.

import { lookAtServer, served, useNewer } from "../net/served.js";
import { lossOf } from "../net/storage.js";
import { backLink, button, fill, h, icon, screen, toast } from "../parts/dom.js";
import { oneLine, span } from "../parts/text.js";

const SKEW_MS = 60_000; // a clock that is further off shows wrong ages and refuses certificates

/**
 * Make the screen "What is wrong?".
 *
 * @param {App} _
 */
export function wrongView({ model, go, pairAgain }) {
  const list = h("ul.findings", { role: "list" });
  const notes = h("ol.findings");
  const notesTitle = h("h2.section", {}, "What was noted");
  const connect = () => {
    lookAtServer().then(() => paint());
    model.call("connect").catch((error) => toast(error.message, "warn"));
  };
  const again = button("button", connect, "Look again");
  const node = screen(
    "What is wrong?",
    { before: backLink(go, "settings", "Back to the settings") },
    h("div.scroller.prose", {}, list, again, notesTitle, notes),
  );
  let painted = "";
  /** @type {Kept} */
  const kept = { persisted: null, lost: null };
  const paint = () => {
    const found = findings(model, kept);
    const now = JSON.stringify([found, model.problems]);
    if (now === painted) return; // a selection in it survives
    painted = now;
    fill(list, ...found.map((one) => finding(one, pairAgain)));
    fill(
      notes,
      model.problems.map(({ at, what, detail }) =>
        h(
          "li.finding",
          {},
          h("p", {}, `${new Date(at).toLocaleString()}: ${what}.`),
          h("p.meta", {}, detail),
        ),
      ),
    );
    notesTitle.hidden = model.problems.length === 0;
  };
  paint();
  lookAtServer().then(() => paint());
  Promise.all([navigator.storage?.persisted?.(), lossOf(model)]).then(([persisted, lost]) => {
    Object.assign(kept, { persisted, lost });
    paint();
  });
  return { node, paint };
}

/** @param {Finding} _ @param {() => void} pairAgain */
function finding({ tone, text, detail = "", steps = [], newer = false, pair = false }, pairAgain) {
  return h(
    `li.finding.${tone}`,
    {},
    icon(tone === "good" ? "check" : "attention"),
    h(
      "div",
      {},
      h("p", {}, tone !== "good" && h("span.unseen", {}, "Attention: "), text),
      detail && h("p.meta", {}, detail),
      steps.length === 1 && h("p.step", {}, steps[0]),
      steps.length > 1 && h("ol", {}, ...steps.map((step) => h("li", {}, step))),
      newer && button("button", useNewer, "Use it now"),
      pair && button("button", pairAgain, "Pair again"),
    ),
  );
}

/** @typedef {{ persisted: boolean | null; lost: Lost | null }} Kept */

/** @param {Model} model @param {Kept} kept */
function findings(model, kept) {
  const all = /** @type {Finding[]} */ (
    [
      connection(model.connection),
      ...warnings(model.connection.health),
      certificate(),
      version(),
      clock(),
      storage(model.db, kept),
      loss(model.identity, kept),
    ].filter(Boolean)
  );
  const order = ["bad", "warn", "good"];
  if (served.reached && all.every(({ tone }) => tone === "good"))
    return [{ tone: "good", text: "Nothing is wrong." }, ...all];
  return all.sort((a, b) => order.indexOf(a.tone) - order.indexOf(b.tone));
}

/** @param {Connection} _ */
function connection({ phase, fault, neverOpened = 0 }) {
  if (phase === "ready") return { tone: "good", text: `Connected to ${location.host}.` };
  if (!navigator.onLine)
    return { tone: "bad", text: "This device has no network.", steps: ["Is it in flight mode?"] };
  if (phase === "stopped" && fault)
    return {
      tone: "bad",
      text: fault.message,
      steps: [REMEDIES[fault.code] ?? fault.remediation ?? "Pair this device again."],
      pair: fault.code === "AUTH_FAILED",
    };
  if (neverOpened >= 2 && served.reached)
    return {
      tone: "bad",
      text: "The page loads, but the connection fails: the browser distrusts the certificate.",
      steps: certificateSteps(),
    };
  if (neverOpened >= 1 && served.reached === false)
    return {
      tone: "bad",
      text: `The bridge at ${location.host} cannot be reached from here.`,
      steps: [
        "Is the machine on, and “make run” running?",
        "Is this device in the same network, or connected by its VPN?",
        ["Does the browser ", h("a", { href: "/pair#trust" }, "warn of its certificate"), "?"],
        "Did its address change? Scan a new code (“make qr”) in a new tab.",
      ],
    };
  const last = fault ? ` The last answer was: ${fault.message}` : "";
  return { tone: "warn", text: `Connecting to ${location.host}…${last}` };
}

/** @type {Record<string, string>} */
const REMEDIES = {
  CONN_REPLACED:
    "This device is connected in another browser window. Close that one, then look again here.",
  AUTH_FAILED:
    "This device was revoked, or its code was used before or ran out. Scan a new code " +
    "(“make qr”); what is kept here stays.",
  VERSION_INCOMPATIBLE: "Reload this page. Where that does not help, update the bridge.",
};

/** @param {Connection["health"]} health */
const warnings = (health) =>
  (health?.warnings ?? []).map((code) => {
    const details = health?.warning_details?.[code];
    return {
      tone: "warn",
      text: details?.message ?? code,
      steps: [details?.remediation].filter(Boolean),
    };
  });

function certificate() {
  if (served.worker === "kept")
    return {
      tone: "good",
      text: "The page is kept in this browser and starts without a network.",
    };
  if (served.worker === "refused")
    return {
      tone: "warn",
      text: "This browser does not trust the certificate: the page cannot be installed.",
      detail: served.trouble,
      steps: certificateSteps(),
    };
  if (served.worker === "absent")
    return {
      tone: "warn",
      text: "This browser keeps no page here, as in a private window. Everything else works.",
    };
  return null;
}

function version() {
  if (served.newer)
    return { tone: "warn", text: "The bridge has a newer version of this page.", newer: true };
  return served.reached ? { tone: "good", text: "This page is of the bridge's version." } : null;
}

function clock() {
  if (served.skew === null) return null;
  if (Math.abs(served.skew) < SKEW_MS)
    return { tone: "good", text: "The clocks of this device and of the bridge agree." };
  const side = served.skew > 0 ? "ahead of" : "behind";
  const apart = span(Math.round(Math.abs(served.skew) / 1000));
  return {
    tone: "warn",
    text:
      `The clock of this device is ${apart} ${side} the bridge's. Times are wrong here, and a ` +
      "certificate may seem to have run out.",
    steps: ["Let both take the time from the network (“timedatectl” at the machine)."],
  };
}

const LOSS_TOLD_MS = 30 * 24 * 3600_000;

/** @param {Identity | null} identity @param {Kept} kept */
function loss(identity, { lost }) {
  if (!lost || !identity || Date.now() - Date.parse(identity.paired) > LOSS_TOLD_MS) return null;
  return {
    tone: "warn",
    text:
      `This browser deleted what it had kept of the bridge, as “${oneLine(lost.name)}”, which was ` +
      `here last on ${new Date(lost.at).toLocaleString()}.`,
    steps: [
      "Install the page as an app, where the browser offers it: then it is kept longer.",
      ["Revoke the old device on the ", h("a", { href: "/admin/" }, "admin site"), "."],
    ],
  };
}

/** @param {Store} db @param {Kept} kept */
function storage(db, { persisted }) {
  const until = persisted === false ? ", until the browser needs the room" : "";
  if (db.lasting) return { tone: "good", text: `What is received is kept on this device${until}.` };
  return {
    tone: "warn",
    text: `This browser keeps nothing: ${db.trouble}. When the page is closed, all is gone.`,
    steps: ["Leave private browsing, or free some storage."],
  };
}

const isApple = /iPhone|iPad|Macintosh/.test(navigator.userAgent); // with a touch screen or not

function certificateSteps() {
  return [
    "Best: reach the machine through Tailscale, whose certificates every browser trusts.",
    ["Let this device trust the bridge: ", h("a", { href: "/pair#trust" }, "the steps"), "."],
    "Or put a tunnel with a certificate of its own before the bridge.",
    ...(isApple ? [] : ["Only to try it: open this page again and accept the warning."]),
  ];
}
