// Show this device's settings.

import { renewPush, switchOff, switchOn, tryPush, wanted, whyNot } from "../net/push.js";
import { isIOS } from "../net/requests.js";
import { dropClient, served } from "../net/served.js";
import { forgetDevice } from "../net/storage.js";
import { button, factsOf, field, fill, form, h, row, screen, setText } from "../parts/dom.js";
import { twoSteps } from "../parts/sheet.js";
import { bytes, oneLine } from "../parts/text.js";
import { CLIENT_VERSION } from "../protocol/messages.js";

/** @type {Record<string, string>} */
const MODES = {
  local_only: "This machine only",
  private_network: "Private network",
  secure_remote: "Private mesh or tunnel",
  direct_public: "Open to the internet",
  misconfigured: "Not set up safely",
};

const TRUST = "The certificate authority, and the steps for this system";
const ADMIN = "Devices, approvals and the audit trail, with a password";

/**
 * Make the settings screen.
 *
 * @param {App} app
 */
export function settingsView(app) {
  const { model, go } = app;
  const facts = h("dl.facts");
  const storage = h("span", {}, "…");
  const forgetAll = async () => {
    await model.forget();
    forgetDevice();
    await dropClient();
    location.assign("/app/");
  };
  const forget = twoSteps("Forget this bridge", "Yes, forget everything here", forgetAll, "danger");
  const installing = h("li.row", {});
  const push = pushSection(model);
  const telling = h("div");
  let paintTelling = () => {};
  // Loaded when somebody looks at the settings.
  import("./telling.js").then(({ tellingSection }) => {
    const { node, paint } = tellingSection(model);
    telling.append(node);
    paintTelling = paint;
  });
  const bridges = h("ul.rows");
  const said = h("p.status", { role: "alert" });
  const like = { id: "address", type: "text", inputmode: "url", placeholder: "machine.local:8443" };
  const address = field("input", like);
  const node = screen(
    "Settings",
    {},
    h(
      "div.scroller.prose",
      {},
      facts,
      h(
        "ul.rows",
        {},
        row(go.link("wrong"), {
          title: "What is wrong?",
          meta: "Connection, certificate, clock, storage, in words",
        }),
        installing,
        row({ href: "/pair#trust" }, { title: "Trust this bridge", meta: TRUST }),
        row({ href: "/admin/" }, { title: "Admin site", meta: ADMIN }),
      ),
      h("h2.section", {}, "Push"),
      push.node,
      telling,
      h("h2.section", {}, "Other bridges"),
      h("p.meta", {}, "Install and pair each bridge on its own page."),
      bridges,
      form(
        "form",
        () => add(),
        h("label", { for: "address" }, "Address of another bridge"),
        h("div.beside", {}, address, h("button", { type: "submit" }, "Add")),
        said,
      ),
      h("h2.section", {}, "This device"),
      h("p.meta", {}, "This deletes all that is kept here. The bridge still knows the device."),
      forget.node,
    ),
  );

  /** @param {string[]} list */
  const showBridges = (list) =>
    fill(
      bridges,
      list.map((origin) => {
        const { host } = new URL(origin);
        const item = row({ href: `${origin}/app/`, rel: "noopener" }, { title: host });
        item.classList.add("pair");
        const act = () => keepBridges(list.filter((one) => one !== origin));
        const remove = { type: "button", "aria-label": `Remove ${host}`, on: { click: act } };
        item.append(h("button.quiet", remove, "Remove"));
        return item;
      }),
    );

  /** @param {string[]} list */
  const keepBridges = async (list) => {
    await model.db.set("bridges", list);
    showBridges(list);
  };

  const add = async () => {
    const origin = originOf(address.value);
    const list = (await model.db.get("bridges")) ?? [];
    const problem = !origin
      ? "This is no address of a bridge. It looks like machine.local:8443."
      : origin === location.origin
        ? "This is the bridge that you are using."
        : list.includes(origin)
          ? "This bridge is in the list."
          : "";
    setText(said, problem);
    if (problem) return;
    await keepBridges([...list, origin].sort());
    address.value = "";
  };

  const paint = () => {
    const { acked, health, phase } = model.connection;
    const mode = health?.connection_mode ?? acked?.connection_mode;
    const told = {
      Bridge: location.host,
      Connection: phase === "ready" ? (MODES[mode ?? ""] ?? mode) : "not connected",
      Warnings: !health ? "not known" : health.warnings.length ? "See “What is wrong?”" : "none",
      Certificate:
        /** @type {Free} */ ({
          kept: phase === "ready" && "accepted",
          refused: "not trusted here",
        })[served.worker] || "not known",
      "Bridge version": acked?.server_version ?? "not known",
      "Client version": CLIENT_VERSION,
      "This device": oneLine(model.home.device) || "not known",
      Paired: model.identity ? new Date(model.identity.paired).toLocaleString() : "no",
      "Kept on this device": storage,
    };
    fill(facts, factsOf(told));
    fill(installing, served.worker === "kept" && installRow(app.offer));
    installing.hidden = !installing.childElementCount;
    push.paint();
    paintTelling();
  };
  model.db.get("bridges").then((list) => showBridges(list ?? []));
  measure(model).then((text) => (storage.textContent = text));
  paint();
  return { node, paint };
}

const PUSH =
  "While this page is closed, the bridge can tell this device that an agent needs you, is done " +
  "or failed: at once when it is not connected, after 20 seconds when it does not react. The " +
  "message goes through the push service of this browser's maker (Google, Apple, Mozilla or " +
  "Microsoft), who sees that your bridge has sent something and when, but cannot read it.";

/** @param {Model} model */
function pushSection(model) {
  const why = h("p.meta", {});
  const said = h("p.status", { role: "alert" });
  const word = h("p.meta", { role: "status" });
  let asked = false; // what became of the last push
  /** @type {Detail | null} */
  let detail = null;
  let last = Promise.resolve();
  /** @param {() => Promise<string | void>} work */
  const act = (work) => (last = last.then(() => carryOut(work))); // one after the other
  /** @param {() => Promise<string | void>} work */
  const carryOut = async (work) => {
    setText(said, "One moment…");
    try {
      setText(said, (await work()) ?? "");
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
    }
    detail = await wanted(model);
    asked = false;
    paint();
  };
  const full = h("input", { type: "checkbox" });
  full.addEventListener("change", () => detail && act(() => switchOn(model, level())));
  const level = () => (full.checked ? "full" : "quiet");
  const toggle = button("button", () =>
    act(() => (detail ? switchOff(model) : switchOn(model, level()))),
  );
  const test = button("button.quiet", () => act(() => tryPush(model)), "Send a test");
  const controls = h(
    "div.form",
    {},
    h("label.choice", {}, full, "Show the tool and what it is to do, also on the lock screen"),
    h("div.beside", {}, toggle, test),
  );
  const paint = () => {
    const reason = whyNot(model.connection);
    setText(why, reason);
    setText(toggle, detail ? "Switch push off" : "Switch push on");
    controls.hidden = Boolean(reason);
    test.hidden = !detail;
    if (!asked && detail && !reason) look();
    if (!detail) setText(word, "");
  };
  const look = () => {
    asked = true;
    renewPush(model).then(
      (text) => setText(word, text),
      (/** @type {any} */ error) => setText(word, error.message),
    );
  };
  navigator.serviceWorker?.addEventListener("message", ({ data }) => {
    if (data === "shown" && word.isConnected) look();
  });
  last = wanted(model).then((level) => {
    detail = level;
    full.checked = level === "full";
    paint();
  });
  return { node: h("div.form", {}, h("p.meta", {}, PUSH), why, controls, word, said), paint };
}

/** @param {Model} model */
async function measure(model) {
  if (!model.db.lasting) return `only until this page is closed (${model.db.trouble})`;
  const { usage } = (await navigator.storage?.estimate?.()) ?? {};
  return usage === undefined ? "not known" : bytes(usage);
}

// Chrome offers to install; Safari has it in its own menu. Nothing where it is installed.
/** @param {App["offer"]} offer */
function installRow(offer) {
  if (matchMedia("(display-mode: standalone)").matches) return null;
  const about = h("span.row-main", {}, h("span.title", {}, "Install as an app"));
  if (offer) {
    about.append(h("span.meta", {}, "An icon of its own, and a start without a network"));
    return h("button.row-link", { type: "button", on: { click: () => offer.prompt() } }, about);
  }
  if (!isIOS) return null;
  about.append(h("span.meta", {}, "Share, Add to Home Screen. Pair the app with its own code."));
  return h("div.row-link", {}, about);
}

// The origin of an address or of a pairing link, whose token is not for here; "" for neither.
/** @param {string} text */
function originOf(text) {
  const whole = /^https?:/i.test(text.trim()) ? text.trim() : `https://${text.trim()}`;
  const url = URL.canParse(whole) ? new URL(whole) : null;
  const good = url?.protocol === "https:" && /^([a-z0-9.-]+|\[[0-9a-f:]+\])$/.test(url.hostname);
  return good ? url.origin : "";
}
