// Settings of this device, and the page that says what is wrong.

import { fill, h, icon, toast } from "../parts/dom.js";
import { bytes } from "../parts/text.js";
import { CLIENT_VERSION } from "../protocol/messages.js";

const MODES = {
  local_only: "This machine only",
  private_network: "Private network",
  secure_remote: "Private mesh or tunnel",
  direct_public: "Open to the internet",
  misconfigured: "Not set up safely",
};

/** The settings screen. */
export function settingsView({ model, go }) {
  const facts = h("dl.facts");
  const storage = h("dd", {}, "…");
  const forget = h(
    "button.danger",
    { type: "button", on: { click: () => ask() } },
    "Forget this bridge",
  );
  const node = h(
    "section.screen",
    { "aria-labelledby": "screen-title" },
    h("header.bar", {}, h("h1", { id: "screen-title", tabindex: "-1" }, "Settings")),
    h(
      "div.scroller.prose",
      {},
      facts,
      h(
        "ul.rows",
        {},
        h(
          "li.row",
          {},
          h(
            "a.row-link",
            { href: go.to("wrong"), on: { click: go.follow } },
            h(
              "span.row-main",
              {},
              h("span.title", {}, "What is wrong?"),
              h("span.meta", {}, "Connection, certificate, storage, in words"),
            ),
          ),
        ),
        h(
          "li.row",
          {},
          h(
            "a.row-link",
            { href: "/ca.crt" },
            h(
              "span.row-main",
              {},
              h("span.title", {}, "Certificate authority"),
              h("span.meta", {}, "Let this phone trust the bridge for good"),
            ),
          ),
        ),
        h(
          "li.row",
          {},
          h(
            "a.row-link",
            { href: "/admin/" },
            h(
              "span.row-main",
              {},
              h("span.title", {}, "Admin site"),
              h("span.meta", {}, "Devices, approvals and the audit trail, with a password"),
            ),
          ),
        ),
      ),
      h("h2.section", {}, "This device"),
      h(
        "p.meta",
        {},
        "Forgetting removes the token and everything that was kept here. The bridge keeps the device until it is revoked there.",
      ),
      forget,
    ),
  );

  const ask = () => {
    fill(forget, "Yes, forget everything here");
    forget.addEventListener(
      "click",
      async (event) => {
        event.stopImmediatePropagation();
        await model.forget();
        location.assign("/app/");
      },
      { capture: true, once: true },
    );
  };

  const paint = () => {
    const { acked, health, phase } = model.connection;
    const mode = health?.connection_mode ?? acked?.connection_mode;
    fill(
      facts,
      h("dt", {}, "Bridge"),
      h("dd", {}, location.host),
      h("dt", {}, "Connection"),
      h("dd", {}, phase === "ready" ? (MODES[mode] ?? mode) : "not connected"),
      h("dt", {}, "Bridge version"),
      h("dd", {}, acked?.server_version ?? "not known"),
      h("dt", {}, "Client version"),
      h("dd", {}, CLIENT_VERSION),
      h("dt", {}, "Paired"),
      h("dd", {}, model.identity ? new Date(model.identity.paired).toLocaleString() : "no"),
      h("dt", {}, "Kept on this device"),
      storage,
    );
  };
  measure(model).then((text) => (storage.textContent = text));
  paint();
  return { node, paint };
}

async function measure(model) {
  if (!model.db.lasting) return `only until this page is closed (${model.db.trouble})`;
  const { usage = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  return bytes(usage);
}

/** The page that says in words what is wrong, and what to do. */
export function wrongView({ model, go }) {
  const list = h("ol.findings");
  const notes = h("ol.findings");
  const notesTitle = h("h2.section", {}, "What was noted");
  const node = h(
    "section.screen",
    { "aria-labelledby": "screen-title" },
    h(
      "header.bar",
      {},
      h(
        "a.button.round.quiet.back",
        { href: go.to("settings"), "aria-label": "Back to the settings", on: { click: go.follow } },
        icon("back"),
      ),
      h("h1", { id: "screen-title", tabindex: "-1" }, "What is wrong?"),
    ),
    h(
      "div.scroller.prose",
      {},
      list,
      h(
        "button",
        {
          type: "button",
          on: { click: () => model.call("connect").catch((error) => toast(error.message, "warn")) },
        },
        "Connect now",
      ),
      notesTitle,
      notes,
    ),
  );
  const paint = () => {
    fill(
      list,
      findings(model).map(({ tone, text, steps }) =>
        h(
          `li.finding.${tone}`,
          {},
          h("p", {}, text),
          steps &&
            h(
              "ol",
              {},
              steps.map((step) => h("li", {}, step)),
            ),
        ),
      ),
    );
    fill(
      notes,
      model.problems.map(({ at, what, detail }) =>
        h(
          "li",
          {},
          h("p", {}, `${new Date(at).toLocaleTimeString()}: ${what}.`),
          h("p.meta", {}, detail),
        ),
      ),
    );
    notesTitle.hidden = model.problems.length === 0;
  };
  paint();
  return { node, paint };
}

const apple = () => /iPhone|iPad|Macintosh/.test(navigator.userAgent);

function findings(model) {
  const { phase, fault, neverOpened, reached, health } = model.connection;
  const found = [];
  const add = (tone, text, steps) => found.push({ tone, text, steps });
  if (phase === "ready") add("good", "The connection is good.");
  else if (phase === "stopped")
    add("bad", fault.message, [
      fault.remediation ?? REMEDIES[fault.code] ?? "Pair this device again.",
    ]);
  else if (neverOpened >= 2 && reached)
    add(
      "bad",
      "The page loads, but the browser refuses the live connection. This is what browsers do with a certificate that they do not trust.",
      certificateSteps(),
    );
  else if (neverOpened >= 2 && reached === false)
    add("bad", "The bridge cannot be reached from here.", [
      "Is the machine on, and “make run” running?",
      "Is this phone in the same network, or connected by its VPN?",
    ]);
  else
    add(
      "warn",
      `Connecting to ${location.host}…${fault ? ` The last answer was: ${fault.message}` : ""}`,
    );
  for (const code of health?.warnings ?? [])
    add(
      "warn",
      health.warning_details?.[code]?.message ?? code,
      [health.warning_details?.[code]?.remediation].filter(Boolean),
    );
  if (!model.db.lasting)
    add(
      "warn",
      `This browser keeps nothing: ${model.db.trouble}. What you see is gone when the page is closed.`,
      ["Leave private browsing, or free some storage."],
    );
  if (!("serviceWorker" in navigator) || !isSecureContext)
    add(
      "warn",
      "This browser does not treat the page as secure, so it cannot be installed.",
      certificateSteps(),
    );
  return found;
}

const REMEDIES = {
  CONN_REPLACED:
    "This device is connected in another browser window. Close that one, then connect here.",
  AUTH_FAILED:
    "This device was revoked, or its code ran out. Pair it again: Settings, Forget this bridge, then scan a new code.",
  VERSION_INCOMPATIBLE: "Reload this page: the bridge has another version of it.",
};

function certificateSteps() {
  const authority = apple()
    ? "Let this device trust the bridge's authority: open /ca.mobileconfig, install the profile in Settings, then switch it on under General, About, Certificate Trust Settings."
    : "Let this device trust the bridge's authority: download /ca.crt, then Settings, Security, Install a certificate, CA certificate.";
  return [
    "Best: reach the machine through Tailscale (tailscale serve or tailscale cert), whose certificates every browser trusts.",
    authority,
    "Or put a tunnel with a certificate of its own before the bridge.",
  ].concat(apple() ? [] : ["Only to try it: open this page again and accept the warning."]);
}
