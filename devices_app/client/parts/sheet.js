// Show a sheet over the screen, and the buttons of a decision.

import { button, guard, h } from "./dom.js";

export const HOLD_MS = 1200;
const ARMED_MS = 10_000; // for the second of two steps

// Open sheets that are steps of the browser's history, and closed ones whose step is not left yet.
/** @type {Set<{ dialog: Element_; left: Promise<unknown> }>} */
const steps = new Set();

/** Go one step back in the browser's history; done when it has arrived there. */
export const stepBack = () =>
  new Promise((done) => {
    addEventListener("popstate", done, { once: true });
    history.back();
  });

/** Close the sheets over a screen that is left; done when the browser has left their steps. */
export async function leaveSheets() {
  for (const { dialog, left } of [...steps].reverse()) {
    dialog.close();
    await left;
  }
}

// Back closes the sheet, and leads nowhere else.
/** @param {Element_} dialog */
function makeStep(dialog) {
  let depth = 0; // once the step is made
  let isLeft = false;
  const look = () => {
    isLeft = (history.state?.sheets ?? 0) < depth;
    if (isLeft) dialog.close();
  };
  const closing = [...steps].filter((one) => !one.dialog.open).map(({ left }) => left);
  Promise.all(closing).then(() => {
    if (!dialog.open) return;
    depth = (history.state?.sheets ?? 0) + 1;
    history.pushState({ ...history.state, sheets: depth }, "");
    addEventListener("popstate", look);
  });
  const left = new Promise((done) =>
    dialog.addEventListener("close", async () => {
      removeEventListener("popstate", look);
      if (depth && !isLeft) await stepBack();
      steps.delete(step);
      done(null);
    }),
  );
  const step = { dialog, left };
  steps.add(step);
}

/**
 * Open a full-height sheet, with `actions` at its foot; the focus returns to where it was.
 *
 * @param {string} title
 * @param {Child} content
 * @param {Child} actions
 * @param {() => void} closed
 * @param {{ hasAddress?: boolean }} _ whether an address of its own opens and closes it
 */
export function openSheet(title, content, actions, closed, { hasAddress = false } = {}) {
  const heading = h("h1", { id: "sheet-title", tabindex: "-1" }, title);
  const body = h(
    "div.sheet-body",
    { tabindex: "0", role: "region", "aria-labelledby": "sheet-title" },
    content,
  );
  const foot = h("div.sheet-foot", {}, actions);
  const close = button("button.quiet", () => dialog.close(), "Close");
  const dialog = h(
    "dialog.sheet",
    { "aria-labelledby": "sheet-title" },
    h("header.sheet-head", {}, heading, close),
    body,
    foot,
  );
  dialog.addEventListener("close", () => {
    liftNews();
    dialog.remove();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  if (!hasAddress) makeStep(dialog);
  liftNews();
  heading.focus();
  return { dialog, heading, body, foot };
}

/**
 * Open a sheet that asks: not now, or the button that closes it and acts.
 *
 * @param {string} title
 * @param {Child} content
 * @param {string} label
 * @param {() => unknown} act
 */
export function askSheet(title, content, label, act, kind = "primary") {
  const go = button(
    `button.${kind}`,
    () => {
      sheet.dialog.close();
      act();
    },
    label,
  );
  const not = button("button", () => sheet.dialog.close(), "Not now");
  const sheet = openSheet(title, content, [not, go], () => {});
}

// What lies outside an open sheet is neither heard nor touched.
function liftNews() {
  const place = document.querySelector("dialog[open]") ?? document.body;
  for (const id of ["warning", "toasts", "announce"])
    place.append(/** @type {Element} */ (document.getElementById(id)));
}

/**
 * Tell whether an element's content has been seen to its end.
 *
 * @param {Element_} node
 */
export const seenToEnd = (node) => node.scrollTop + node.clientHeight >= node.scrollHeight - 8;

/**
 * Make a button to hold, and one to tap twice for those who cannot hold it.
 *
 * @param {string} label
 * @param {() => unknown} act
 */
export function holdButton(label, act) {
  let timer = 0;
  const node = h(
    "button.primary.danger.hold",
    { type: "button", "aria-describedby": "hold-hint" },
    h("span.fill", { "aria-hidden": "true" }),
    h("span", {}, `Hold to ${label}`),
  );
  const end = () => {
    clearTimeout(timer);
    node.classList.remove("held");
  };
  node.addEventListener("pointerdown", (/** @type {any} */ event) => {
    if (event.button !== 0 || node.disabled) return;
    event.target.releasePointerCapture(event.pointerId); // which a touch has: sliding off ends it
    end(); // another finger's
    node.classList.add("held");
    timer = setTimeout(() => {
      end();
      if (node.isConnected) act(); // the sheet may have been closed meanwhile
    }, HOLD_MS);
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave", "blur"])
    node.addEventListener(name, end);
  node.addEventListener("contextmenu", (/** @type {any} */ event) => event.preventDefault());
  const other = twoSteps("Tap twice instead", `Yes, ${label}`, act, "quiet");
  node.addEventListener("click", (/** @type {any} */ event) => {
    // A key or a screen reader clicks without holding: show the other way instead.
    if (event.detail === 0 && !node.disabled) other.start();
  });
  return {
    button: node,
    other: other.node,
    hint: h("p.hint", { id: "hold-hint" }, "It can destroy something: hold it for a second."),
  };
}

/**
 * Make a button that asks once more in its own place.
 *
 * @param {string} first
 * @param {string} second
 * @param {() => unknown} act
 */
export function twoSteps(first, second, act, kind = "primary") {
  let armed = false;
  let timer = 0;
  const start = () => {
    armed = true;
    node.textContent = second;
    node.classList.add("armed");
    guard(node);
    node.focus();
    clearTimeout(timer);
    timer = setTimeout(() => {
      armed = false;
      node.textContent = first;
      node.classList.remove("armed");
    }, ARMED_MS);
  };
  const node = button(`button.${kind}`, () => (armed ? act() : start()), first);
  return { node, start };
}
