// Make and update elements. Text is always text: nothing here takes markup.

const QUIET_MS = 500; // a card that appears or changes takes no tap for so long

/**
 * Make an element.
 *
 * @param {string} tag a tag's name, with classes after dots: `button.primary`
 * @param {Free} [attributes] `on`: listeners, `data`: data attributes; none that is false or null
 * @param {...Child} children nodes, texts, lists of them; null and false are left out
 * @returns {Element_} the element
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = /** @type {Element_} */ (document.createElement(name));
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on")
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key in node && typeof value !== "string") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...shown(children));
  return node;
}

/** @param {Child[]} children */
const shown = (children) =>
  /** @type {any[]} */ (children)
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false);

/**
 * Replace an element's children.
 *
 * @param {Element_} node
 * @param {...Child} children
 */
export const fill = (node, ...children) => node.replaceChildren(...shown(children));

/**
 * Make a button; `kind` is one as in `h`: `button.primary`.
 *
 * @param {string} kind
 * @param {() => unknown} act
 * @param {...Child} children
 */
export const button = (kind, act, ...children) =>
  h(kind, { type: "button", on: { click: () => act() } }, ...children);

/**
 * Make a form that calls `act` and asks the server for nothing.
 *
 * @param {string} kind
 * @param {() => unknown} act
 * @param {...Child} children
 */
export function form(kind, act, ...children) {
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    act();
  };
  return h(`form.${kind}`, { on: { submit } }, ...children);
}

const OFF = { autocomplete: "off", autocorrect: "off", autocapitalize: "off", spellcheck: "false" };
/**
 * Make a field for text that is not prose: no correction, completion or spelling.
 *
 * @param {string} tag
 * @param {Free} attributes
 */
export const field = (tag, attributes) => h(tag, { ...OFF, ...attributes });

/**
 * Make a screen: a bar with its title, what stands before and behind that, and its content.
 *
 * @param {string} title
 * @param {{ before?: Child; behind?: Child }} _
 * @param {...Child} content
 */
export function screen(title, { before = null, behind = null }, ...content) {
  const heading = h("h1", { tabindex: "-1" }, title);
  const bar = h("header.bar", {}, before, heading, behind);
  return h("section.screen", { "aria-label": title }, bar, ...content);
}

/**
 * Make the link that leads from a screen to the one above it.
 *
 * @param {Go} go
 * @param {ScreenName} name
 * @param {string} label
 */
export const backLink = (go, name, label) =>
  h("a.button.round.quiet.back", { ...go.link(name), "aria-label": label }, icon("back"));

/**
 * Make a row of a list, which leads somewhere.
 *
 * @param {Free} attributes
 * @param {{ before?: Child; title: Child; meta?: Child; after?: Child }} _
 */
export function row(attributes, { before = null, title, meta = null, after = null }) {
  const about = meta === null ? null : h("span.meta", {}, meta);
  const main = h("span.row-main", {}, h("span.title", {}, title), about);
  return h("li.row", {}, h("a.row-link", attributes, before, main, after));
}

/**
 * Make the terms and descriptions of a `dl.facts`, from an object.
 *
 * @param {Record<string, Child>} facts
 */
export const factsOf = (facts) =>
  Object.entries(facts).map(([term, fact]) => [h("dt", {}, term), h("dd", {}, fact)]);

/**
 * Set an element's text only where it differs, so that a selection in it survives.
 *
 * @param {Element_} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * The same for the element within `node` that matches.
 *
 * @param {Element_} node
 * @param {string} selector
 * @param {string} text
 */
export const setPart = (node, selector, text) =>
  setText(/** @type {Element_} */ (node.querySelector(selector)), text);

const SVG = "http://www.w3.org/2000/svg";
/** @type {Record<string, string>} */
const PATHS = {
  sessions: "M4 6h16M4 12h16M4 18h10",
  approvals: "M9 12l2.5 2.5L16 9.5M12 3l7 3v5c0 4.6-2.9 8.4-7 10-4.1-1.6-7-5.4-7-10V6z",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  back: "M15 5l-7 7 7 7",
  send: "M5 12h14M13 6l6 6-6 6",
  later: "M12 7v5l3 2M12 3a9 9 0 100 18 9 9 0 000-18z",
  stop: "M7 7h10v10H7z",
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
  dots: "M4 12a1 1 0 102 0 1 1 0 10-2 0m7 0a1 1 0 102 0 1 1 0 10-2 0m7 0a1 1 0 102 0 1 1 0 10-2 0",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  folder: "M3 6h6l2 2h10v11H3z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  clip: "M19 11l-7.5 7.5a4.6 4.6 0 01-6.5-6.5L13 4a3 3 0 014.3 4.3L9.7 16a1.4 1.4 0 01-2-2L14 7.6",
  wrap: "M4 6h16M4 12h13a3 3 0 010 6h-4m2-2l-2 2 2 2M4 18h5",
  more: "M6 9l6 6 6-6",
  check: "M5 12.5l4.5 4.5L19 7",
  attention: "M12 4l9 16H3zM12 10v4M12 17v.01",
};

/**
 * Draw one of the client's icons; it is decoration, the text beside it has the name.
 *
 * @param {string} name
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.classList.add("icon");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/**
 * Make a list's children equal to `items`, keeping the nodes of those that stay.
 *
 * @template T
 * @param {Element_} list @param {T[]} items @param {Keyed<T>} _
 */
export function keyed(list, items, { key, make, update }) {
  list.nodesByKey ??= new Map();
  const kept = new Map();
  let at = list.firstChild;
  for (const item of items) {
    const name = key(item);
    let node = list.nodesByKey.get(name);
    if (node) update?.(node, item);
    else node = make(item);
    kept.set(name, node);
    if (node === at) at = node.nextSibling;
    else list.insertBefore(node, at);
  }
  for (const [name, node] of list.nodesByKey) if (kept.get(name) !== node) node.remove();
  list.nodesByKey = kept;
}

/**
 * Show a long list in parts: `draw(count)` shows so many of it and returns how many there are, at
 * first `most`; each tap on the button `more` shows twice as many. `show()` draws again.
 *
 * @param {number} most
 * @param {string} unit
 * @param {(to: number) => number} draw
 */
export function pager(most, unit, draw) {
  const more = button("button.quiet.more", () => show(count * 2));
  let count = 0;
  const show = (to = count || most) => {
    count = to;
    const left = draw(count) - count;
    more.hidden = left <= 0;
    setText(more, `Show more (${left} ${unit})`);
  };
  return { more, show };
}

/**
 * Run `paint` once in the next frame, however often it is asked for.
 *
 * @param {() => void} paint
 */
export function onFrame(paint) {
  let asked = 0;
  return () => {
    if (asked) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      paint();
    });
  };
}

/**
 * Let an element take no tap for half a second after it appeared or changed.
 *
 * @param {Element_} node
 */
export function guard(node) {
  node.classList.add("guarded");
  clearTimeout(node.guarding);
  node.guarding = setTimeout(() => node.classList.remove("guarded"), QUIET_MS);
}

for (const name of ["click", "pointerdown"])
  document.addEventListener(
    name,
    (event) => {
      if (!(event.target instanceof Element) || !event.target.closest(".guarded")) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    },
    { capture: true },
  );

// Enter held down is one press.
document.addEventListener("keydown", (event) => {
  const pressed = event.repeat && event.key === "Enter";
  if (pressed && document.activeElement?.closest("button, a")) event.preventDefault();
});

/** @param {Element_} node */
const fade = (node) => setTimeout(() => node.remove(), 6000);

/**
 * Say a sentence to a screen reader, after those before it.
 *
 * @param {string} sentence
 */
export function announce(sentence) {
  fade(
    /** @type {Element} */ (document.getElementById("announce")).appendChild(
      h("span", {}, `${sentence} `),
    ),
  );
}

/**
 * Show a sentence at the foot of the screen for some seconds; a warning outlasts news.
 *
 * @param {string} sentence
 */
export function toast(sentence, tone = "info") {
  const place = /** @type {Element_} */ (document.getElementById("toasts"));
  const node = h(`p.toast.${tone}`, {}, sentence);
  place.append(node);
  while (place.children.length > 3) (place.querySelector(".info") ?? place.children[0]).remove();
  if (document.visibilityState === "visible") fade(node);
  else document.addEventListener("visibilitychange", () => fade(node), { once: true });
  announce(sentence);
}

/**
 * Make a button that copies a text.
 *
 * @param {string} text
 */
export const copyButton = (text) =>
  button("button.quiet.copy", () => copy(text), icon("copy"), "Copy");

/**
 * Copy a text, and say whether it worked.
 *
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("This browser does not let the page copy. Select the text and copy it by hand.", "warn");
  }
}

/** @type {Record<string, string>} */
const PHASES = {
  off: "Not connected",
  warned: "Needs you",
  ready: "",
  waiting: "Offline",
  stopped: "Not connected",
};

/**
 * Make the link that says how the connection is; it is hidden while all is well.
 *
 * @param {Pick<App, "model" | "go">} _
 */
export function connectionSign({ model, go }) {
  const node = h("a.connection", go.link("wrong"));
  const paint = () => {
    const { phase } = model.connection;
    setText(node, PHASES[phase] ?? "Connecting…");
    node.dataset.phase = phase;
    node.hidden = phase === "ready";
  };
  return { node, paint };
}

/**
 * Show why something was not done; without an answer, what to look at before another try.
 *
 * @param {Element_} place
 * @param {string} title
 * @param {Failure} error
 * @param {string} what
 */
export function showFailure(place, title, error, what) {
  const unsure = error.code === undefined ? ` Look at ${what} before you try again.` : "";
  const why = h("pre.wrapped", {}, `${error.message}${unsure}`);
  fill(place, h("div.finding.bad", {}, h("p", {}, title), why));
  place.scrollIntoView({ block: "nearest" });
}
