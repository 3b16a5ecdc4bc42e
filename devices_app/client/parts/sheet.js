// A sheet over the screen, and the buttons of a decision.

import { guard, h } from "./dom.js";

export const HOLD_MS = 1200;

/**
 * Open a full-height sheet; the browser's back closes it, and the focus returns to where it was.
 *
 * @param {string} title
 * @param {Node[]} content
 * @param {Node[]} actions at the foot, always in reach
 * @param {() => void} closed
 */
export function openSheet(title, content, actions, closed) {
  const heading = h("h1", { id: "sheet-title", tabindex: "-1" }, title);
  const body = h(
    "div.sheet-body",
    { tabindex: "0", role: "region", "aria-labelledby": "sheet-title" },
    content,
  );
  const foot = h("div.sheet-foot", {}, actions);
  const close = h("button.quiet", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog = h(
    "dialog.sheet",
    { "aria-labelledby": "sheet-title" },
    h("header.sheet-head", {}, heading, close),
    body,
    foot,
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  heading.focus();
  return { dialog, heading, body, foot };
}

/** Tell whether an element's content has been seen to its end. */
export const seenToEnd = (node) => node.scrollTop + node.clientHeight >= node.scrollHeight - 8;

/**
 * Make a button that must be held; beside it one that needs no holding, in two steps.
 *
 * @param {string} label
 * @param {() => void} act
 */
export function holdButton(label, act) {
  let timer = 0;
  const button = h(
    "button.primary.danger.hold",
    { type: "button", "aria-describedby": "hold-hint" },
    h("span.fill", { "aria-hidden": "true" }),
    h("span", {}, `Hold to ${label}`),
  );
  const end = () => {
    clearTimeout(timer);
    button.classList.remove("held");
  };
  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || button.disabled) return;
    button.setPointerCapture(event.pointerId);
    button.classList.add("held");
    timer = setTimeout(() => {
      end();
      act();
    }, HOLD_MS);
  });
  for (const name of ["pointerup", "pointercancel", "lostpointercapture", "blur"])
    button.addEventListener(name, end);
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  const other = twoSteps("Without holding", `Yes, ${label}`, act, "quiet");
  button.addEventListener("click", (event) => {
    // A key or a screen reader clicks without holding: show the other way instead.
    if (event.detail === 0 && !button.disabled) other.start();
  });
  return {
    button,
    other: other.node,
    hint: h(
      "p.hint",
      { id: "hold-hint" },
      "This can destroy something: hold the button for a second.",
    ),
  };
}

/** Make a button that asks once more in its own place. */
export function twoSteps(first, second, act, kind = "primary") {
  const node = h(`button.${kind}`, { type: "button" }, first);
  let armed = false;
  const start = () => {
    armed = true;
    node.textContent = second;
    node.classList.add("armed");
    guard(node);
    node.focus();
  };
  node.addEventListener("click", () => (armed ? act() : start()));
  return { node, start };
}
