// Start the client: show the screen of each address, in the frame that all screens share.

import { Model } from "./net/model.js";
import { Unanswered } from "./net/requests.js";
import { keepClient, lookAtServer, served, useNewer, watchServer } from "./net/served.js";
import { keepStorage } from "./net/storage.js";
import { announce, button, fill, h, icon, onFrame, setText, toast } from "./parts/dom.js";
import { leaveSheets, stepBack } from "./parts/sheet.js";
import { oneLine, titleOf } from "./parts/text.js";
import { named } from "./protocol/messages.js";
import { openApprovals } from "./store/approvals.js";
import { mayTell } from "./store/notify.js";
import { addressOf, BASE, screenOf } from "./views/addresses.js";
import { approvalsView, lineOf } from "./views/approvals.js";
import { homeView } from "./views/home.js";

const TICK_MS = 10_000;
const LATER_MS = 2000; // after the first screen the others are loaded
const ROW_MS = 10_000; // by then what a push was about has come, or is over
const PAIRING = "pairing"; // what /pair hands over, in this tab's storage

const model = new Model();
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
/** @type {ReturnType<typeof makeShell>} */
let shell;
/** @type {{ view: View | null; path: string }} */
let shown = { view: null, path: "" };
/** @type {{ key: string; view: any; paint?(late?: boolean): void } | null} */
let sheet = null;

/** @type {Go & { follow(event: any): void }} */
const go = {
  to: addressOf,
  /** What makes an element a link to a screen. */
  link: (name, ...values) => ({ href: addressOf(name, ...values), on: { click: go.follow } }),
  open: (name, ...values) => goTo(addressOf(name, ...values)),
  /**
   * Follow a link without loading the page again.
   *
   * @param {any} event
   */
  follow(event) {
    const isPlain = !(event.button || event.metaKey || event.ctrlKey || event.shiftKey);
    if (event.defaultPrevented || event.altKey || !isPlain) return;
    event.preventDefault();
    const path = event.currentTarget.getAttribute("href");
    const { origin, steps } = history.state ?? {};
    if (event.currentTarget.matches(".back") && origin === path) history.go(-steps);
    else goTo(path);
  },
};

/** @type {Promise<unknown>} */
let arrived = Promise.resolve(null); // where the browser goes back to, which takes it a moment

/** What the parts of a session have in common. @param {string} path */
const placeOf = (path) => path.split("/", 4).join("/");

/** @param {string} path */
async function goTo(path) {
  await arrived;
  await leaveSheets();
  const from = location.pathname;
  const { origin = from, steps = 0 } = placeOf(path) === placeOf(from) ? (history.state ?? {}) : {};
  history.pushState({ from, origin, steps: steps + 1 }, "", path);
  show();
}

const pairAgain = () => {
  history.pushState(null, "", location.href); // the browser leads back, to a page made anew
  addEventListener("popstate", () => location.reload());
  welcome("", () => location.assign(BASE));
};
const places = new Map(); // address → how far its screen was scrolled
/** @type {App} */
const app = { model, go, places, offer: null, shared: null, pairAgain };

// Home and approvals come with the page; the others are loaded when first needed, or soon after.
/** @type {Record<string, (app: App, at: any) => View>} */
const VIEWS = { home: homeView, approvals: approvalsView };
/** @type {Record<string, () => Promise<(app: App, at: any) => View>>} */
const LOADERS = {
  new: async () => (await import("./later.js")).newSessionView,
  settings: async () => (await import("./later.js")).settingsView,
  wrong: async () => (await import("./later.js")).wrongView,
  session: async () => (await import("./later.js")).sessionView,
  search: async () => (await import("./views/search.js")).searchView,
  share: async () => (await import("./views/share.js")).shareView,
};

const RARE = new Set(["search", "share"]); // loaded when they are asked for

async function loadSheet() {
  try {
    return (await import("./later.js")).openApproval;
  } catch (/** @type {any} */ error) {
    toast(`An approval could not be loaded: ${error.message} Reload the page.`, "warn");
    return null;
  }
}

/** @param {string} name */
async function loadView(name) {
  try {
    VIEWS[name] = await LOADERS[name]();
  } catch (/** @type {any} */ error) {
    return () => blank(`This screen could not be loaded: ${error.message} Reload the page.`);
  }
  return VIEWS[name];
}

/** @param {string} sentence */
const blank = (sentence) => ({
  node: h("section.screen.blank", {}, h("p.empty", {}, sentence)),
  paint: () => {},
});

const WIDE = matchMedia("(min-width: 900px)");

function makeShell() {
  /** @param {ScreenName} name @param {string} label @param {string} sign */
  const link = (name, label, sign) =>
    h(
      "a",
      { ...go.link(name), data: { tab: name } },
      icon(sign),
      h("span", {}, label),
      h("span.count", { hidden: true }),
    );
  const left = h("aside.left", { "aria-label": "Sessions" });
  const main = h("main.detail", {});
  const nav = h(
    "nav.bottom",
    { "aria-label": "Screens" },
    link("home", "Sessions", "sessions"),
    link("approvals", "Approvals", "approvals"),
    link("settings", "Settings", "settings"),
  );
  const later = () => {
    newer.dataset.later = "";
    newer.hidden = true;
  };
  const newer = h(
    "div.newer-version",
    { role: "status", hidden: true },
    h("p", {}, "The bridge has a newer version of this page."),
    h(
      "div.beside",
      {},
      button("button.quiet", () => useNewer(), "Use it now"),
      button("button.quiet", () => later(), "Later"),
    ),
  );
  fill(root, newer, left, main, nav);
  return { newer, left, main, nav, list: /** @type {View | null} */ (null) };
}

const scroller = () => shown.view?.node.querySelector(".scroller:not(.anchored)");
const focusTitle = () => shown.view?.node.querySelector("h1")?.focus({ preventScroll: true });

async function show() {
  const path = location.pathname;
  const at = screenOf(path);
  const wideHome = WIDE.matches && at.name === "home";
  if (WIDE.matches && !shell.list) {
    shell.list = homeView(app);
    fill(shell.left, shell.list.node);
  } else if (!WIDE.matches && shell.list) {
    shell.list = null;
    fill(shell.left);
  }
  const key = at.name === "approvals" ? "approvals" : path;
  const stays = at.approval && shown.view; // the sheet lies over the screen that it was opened from
  if (key !== shown.path && !stays) {
    const view = VIEWS[at.name] ?? (await loadView(at.name));
    if (location.pathname !== path) return; // another screen was asked for meanwhile
    places.set(shown.path, scroller()?.scrollTop);
    shown.view?.close?.();
    shown = { view: wideHome ? blank("Choose or start a session.") : view(app, at), path: key };
    fill(shell.main, shown.view?.node);
    root.dataset.screen = at.name;
    if (!openApprovals(model.home).length) scroller()?.scrollTo(0, places.get(key) ?? 0);
    focusTitle();
  }
  showSheet(at.approval ?? "");
  paint();
}

/** @param {string} key */
async function showSheet(key) {
  if (sheet && sheet.key !== key) {
    const old = sheet;
    sheet = null;
    old.view?.close();
  }
  if (!key || sheet) return;
  /** @type {any} */
  const mine = { key, view: null };
  sheet = mine;
  const closed = () => {
    if (document.activeElement === document.body) focusTitle();
    if (sheet !== mine) return;
    sheet = null;
    // Closed by its own button: the address follows, by going back where that leads inside.
    if (history.state?.from) {
      arrived = stepBack();
    } else {
      history.replaceState(null, "", go.to("approvals"));
      show();
    }
  };
  const open = await loadSheet();
  if (!open) return closed();
  // A tap on a push may be ahead of the row that it is about.
  mine.paint = (late = Boolean(model.home.approvals[key])) => {
    if (sheet === mine && late) mine.view ??= open(key, app, closed);
    mine.view?.paint();
  };
  setTimeout(mine.paint, ROW_MS, true);
  mine.paint();
}

/**
 * Show what is so now; `news` are what came since the last time, in order.
 *
 * @param {News[]} news
 */
function paint(news = []) {
  const count = openApprovals(model.home).length;
  const { screen } = root.dataset;
  const tab = screen === "wrong" ? "settings" : screen;
  for (const link of shell.nav.querySelectorAll("a")) {
    link.ariaCurrent = link.dataset.tab === tab ? "page" : null;
    if (link.dataset.tab !== "approvals") continue;
    const badge = /** @type {Element_} */ (link.querySelector(".count"));
    badge.hidden = count === 0;
    setText(badge, String(count));
  }
  shell.newer.hidden = !served.newer || "later" in shell.newer.dataset;
  document.title = count ? `(${count}) Bridge` : "Bridge";
  shell.list?.paint();
  shown.view?.paint(news);
  sheet?.paint?.();
  showWarning();
}

// Say what happened in a session; where it is seen, in the list or on the screen, only by voice.
/** @typedef {Wire.Notify["kinds"][number]} Kind */
/** @param {Home} _ */
function sayNews({ approvals, sessions }) {
  const isListed = shell.list || ["home", "approvals"].includes(root.dataset.screen ?? "");
  /** @param {string} id @param {string} what @param {Kind} kind @param {string} [risk] */
  const say = (id, what, kind, risk) => {
    if (document.visibilityState !== "visible") return;
    const isSeen = (isListed && !sheet) || id === model.viewed;
    if (!isSeen && !mayTell(model.connection.acked?.notify, kind, id, risk)) return;
    (isSeen ? announce : toast)(`${titleOf(model.home.sessions[id], id)}: ${what}`);
  };
  /** @param {string} tool */
  const nameOf = (tool) => (tool === "AskUserQuestion" ? "A question" : oneLine(tool));
  for (const { key, session_id: id, tool, risk_level: risk } of openApprovals(model.home))
    if (!approvals[key] && sheet?.key !== key)
      say(id, `${nameOf(tool)} waits for you`, "approval_required", risk);
  for (const [id, { filled, unseen, failed, trouble }] of Object.entries(model.home.sessions)) {
    const before = sessions[id];
    // There is no notification of it: it stays until somebody looks.
    if (filled && !before?.filled)
      toast(`${titleOf(model.home.sessions[id], id)}: 80 % of its context is used`, "warn");
    if (trouble && trouble !== before?.trouble) say(id, oneLine(trouble), "error");
    else if (unseen && !before?.unseen)
      say(id, failed ? "Failed" : "Finished", failed ? "error" : "task_complete");
  }
}

// The public connection's warning must be accepted before anything goes.
function showWarning() {
  const { phase, health } = model.connection;
  const place = /** @type {Element_} */ (document.getElementById("warning"));
  root.inert = phase === "warned";
  if (!root.inert || !health) return fill(place);
  if (place.childElementCount) return null;
  fill(
    place,
    h(
      "div.warning",
      { role: "alertdialog", "aria-labelledby": "warning-title" },
      h("h1", { id: "warning-title", tabindex: "-1" }, "Before you go on"),
      health.warnings.map((code) => [
        h("p", {}, health.warning_details?.[code]?.message ?? code),
        health.warning_details?.[code]?.remediation &&
          h("p.meta", {}, health.warning_details[code].remediation),
      ]),
      button("button.primary.wide", () => model.call("accept"), "I understand, go on"),
    ),
  );
  return place.querySelector("h1")?.focus();
}

// What a tap asked of a tab that is gone, or of a bridge that is away, is said.
addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof Unanswered)) return;
  event.preventDefault();
  toast(event.reason.message, "warn");
});

async function loadLater() {
  if (!model.identity) return; // forgotten meanwhile
  if (served.newer) return; // the bridge has no view of this version any more
  keepClient();
  keepStorage(model).catch(() => {});
  for (const name of Object.keys(LOADERS)) if (!RARE.has(name)) loadView(name);
  const { keepPush } = await import("./later.js");
  keepPush(model).catch(() => {});
}

// Chrome offers once to install the client; Settings holds the offer.
/** @param {any} event */
function keepOffer(event) {
  event.preventDefault();
  app.offer = event;
}

function begin() {
  model.connect();
  shell = makeShell();
  /** @type {News[]} */
  const waiting = [];
  let told = model.home;
  const repaint = onFrame(() => paint(waiting.splice(0)));
  model.follow((news) => {
    if (news.news === "gone") return location.assign(BASE);
    if (news.news === "trouble") {
      const { text = "", late } = news;
      toast(late ? `Decided too late here: ${lineOf(late)}. ${text}` : text, "warn");
    }
    if (news.news === "rows" && !news.session)
      for (const { type, payload } of /** @type {Free[]} */ (news.rows))
        if (type === "notification") toast(named(`${payload.title}: ${payload.body}`));
    if (["ready", "waiting"].includes(news.connection?.phase ?? "")) lookAtServer();
    if (news.home) sayNews(told);
    told = model.home;
    waiting.push(news);
    return repaint();
  });
  addEventListener("popstate", show);
  addEventListener("beforeinstallprompt", keepOffer);
  addEventListener("appinstalled", () => (app.offer = null));
  // A push was tapped while this tab was open: sw.js.
  navigator.serviceWorker?.addEventListener("message", ({ data }) => data.open && goTo(data.open));
  WIDE.addEventListener("change", () => {
    if (root.dataset.screen === "home") shown.path = ""; // it stands elsewhere now
    show();
  });
  setInterval(() => document.visibilityState === "visible" && paint(), TICK_MS);
  show().then(() => {
    watchServer(() => paint());
    setTimeout(() => loadLater().catch(() => {}), LATER_MS); // said when it is needed
  });
}

/** @param {string} problem */
async function welcome(problem, paired = begin) {
  const { welcomeView } = await import("./views/welcome.js");
  const view = welcomeView(model, paired, problem);
  fill(root, view.node);
  view.node.querySelector("h1")?.focus();
}

/** Take the link that the pairing page left for this tab, once; null when there is none. */
function takePairing() {
  try {
    const link = sessionStorage.getItem(PAIRING);
    sessionStorage.removeItem(PAIRING);
    return link;
  } catch {
    return null; // refused here: the person pastes the link
  }
}

/** @param {string} link */
async function pair(link) {
  const { readPairingLink } = await import("./protocol/pairing.js");
  await model.pair(readPairingLink(link, location.host));
}

async function start() {
  await model.open();
  const link = takePairing();
  let problem = "";
  try {
    if (link) await pair(link);
  } catch (/** @type {any} */ error) {
    problem = error.message;
  }
  if (model.identity && !problem) begin();
  else welcome(problem);
}

if (!document.documentElement.classList.contains("old")) start();
