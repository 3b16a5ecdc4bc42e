"use strict";
(() => {
  // First of all: out of the address bar and the history. Nothing below makes a request, and the
  // page's policy would not let it.
  const take = () => {
    const fragment = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
    return fragment;
  };
  let fragment = take();
  let values = null;

  const FORMS = {
    v: /^1$/,
    token: /^bridge_device_[A-Za-z0-9_-]{43}$/,
    url: /^wss:\/\/[^\s"'<>\\]+$/,
    pin: /^[0-9a-f]{64}$/,
  };
  const NAMES = { v: "version", token: "token", url: "address", pin: "pin", link: "pairing link" };

  // Read by hand: URLSearchParams would turn a "+" into a space.
  const parse = (text) => {
    if (!text)
      throw new Error(
        "This page was opened without a pairing code. Scan the QR code that “{% own_command 'qr' %}” shows at " +
          "the machine, also when you had scanned it before: this page keeps no code.",
      );
    const found = Object.fromEntries(
      text.split("&").map((pair) => {
        const at = pair.indexOf("=");
        return [pair.slice(0, at), pair.slice(at + 1)];
      }),
    );
    const wrong = Object.keys(FORMS).filter((key) => !FORMS[key].test(found[key] ?? ""));
    const names = wrong.map((key) => NAMES[key]).join(", ");
    if (names)
      throw new Error(`The pairing code is damaged (${names}). Scan the whole QR code again.`);
    let host = "";
    try {
      host = new URL(found.url).host;
    } catch {
      /* reported below: no host is this page's */
    }
    if (host !== location.host)
      throw new Error(
        `This link would connect you to another place than ${location.host}, the bridge that ` +
          "this page came from. Do not use it.",
      );
    return { url: found.url, token: found.token, pin: found.pin };
  };

  const byId = (id) => document.getElementById(id);

  const show = () => {
    values = null;
    let problem = "";
    // The client leads here for the steps to trust alone.
    try {
      if (fragment !== "trust") values = parse(fragment);
    } catch (error) {
      problem = error.message;
    }
    const title = fragment === "trust" ? "Trust this bridge" : "Pair this device";
    document.querySelector("h1").textContent = document.title = title;
    fragment = "";
    for (const key of ["url", "token", "pin"]) byId(key).textContent = values ? values[key] : "";
    byId("code").hidden = !values;
    byId("problem").hidden = !problem;
    byId("problem").textContent = problem;
    byId("said").textContent = "";
    // The same link by the machine's name, where only its address was scanned.
    const { name } = byId("named").dataset;
    const offered = values && name && /^(\[|[0-9.]+$)/.test(location.hostname);
    byId("named").hidden = !offered;
    if (offered) byId("named").querySelector("a").href = link().replaceAll(location.hostname, name);
  };

  // Where the clipboard is refused, the text is selected, so that the system's own "copy" works.
  const select = (id) => {
    const range = document.createRange();
    range.selectNodeContents(byId(id));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };

  const link = () => {
    const { token, url, pin } = values;
    return `${location.origin}${location.pathname}#v=1&token=${token}&url=${url}&pin=${pin}`;
  };

  const copy = async (what) => {
    const whole = { all: () => JSON.stringify({ v: 1, ...values }), link };
    const text = whole[what]?.() ?? values[what];
    try {
      await navigator.clipboard.writeText(text);
      return `Copied ${what === "all" ? "all" : `the ${NAMES[what]}`}.`;
    } catch {
      if (!byId(what))
        return (
          "This browser lets nothing be copied. Open “Another client” and copy the values one by " +
          "one."
        );
      select(what);
      return `Selected the ${NAMES[what]}: copy it with your browser’s menu.`;
    }
  };

  // The web client takes the link from this tab's storage and removes it: it was in no address.
  const use = () => {
    try {
      sessionStorage.setItem("pairing", link());
    } catch {
      byId("said").textContent =
        "This browser lets the page store nothing, so it cannot be paired. Leave private " +
        "browsing, or use another browser.";
      return;
    }
    location.replace("/app/");
  };

  // An app on the Home Screen has storage of its own there; a Mac with a touch screen is an iPad.
  const { userAgent, maxTouchPoints } = navigator;
  const isApple =
    /iPhone|iPad/.test(userAgent) || (/Macintosh/.test(userAgent) && maxTouchPoints > 1);

  const SYSTEMS = { android: /Android/, windows: /Windows/, mac: /Macintosh/, linux: /Linux|X11/ };
  const system = isApple
    ? "ios"
    : Object.keys(SYSTEMS).find((name) => SYSTEMS[name].test(userAgent));

  document.addEventListener("DOMContentLoaded", () => {
    show();
    byId("apple").hidden = !isApple;
    const steps = document.querySelector(`[data-system="${system}"]`);
    if (steps) steps.open = true;
    byId("use").addEventListener("click", use);
    document.addEventListener("click", async (event) => {
      const button = event.target.closest("button[data-copy]");
      if (button && values) byId("said").textContent = await copy(button.dataset.copy);
    });
  });
  // Another code scanned into the same tab does not load the page again.
  addEventListener("hashchange", () => {
    if (!location.hash) return;
    fragment = take();
    show();
  });
})();
