// Show differences line by line.

import { button, h, icon, pager } from "./dom.js";
import { visibleCode } from "./text.js";

const LINES_AT_ONCE = 400; // at first; each tap shows as many again as there are

export const SAY = "Tap a line to comment on it.";
const SIGNS = { added: "+", removed: "−", context: " " };
const NAMES = { added: "added", removed: "removed", context: "" };
/** @type {Record<string, DiffText["type"]>} */
const TYPES = { "+": "added", "-": "removed", " ": "context" };

/**
 * Colour code, where the browser can; what does that is loaded when there is some.
 *
 * @param {(module: typeof import("./colours.js")) => unknown} act
 */
export function colouring(act) {
  if (globalThis.CSS?.highlights) import("./colours.js").then(act, plain);
}

/** Leave a screen as it is, whole without a module that did not come: the network was away. */
export const plain = () => {};

/** @param {DiffText} _ */
function line({ type, content }) {
  return h(
    `div.line.${type}`,
    {},
    h("span.sign", { "aria-hidden": "true" }, SIGNS[type]),
    NAMES[type] && h("span.unseen", {}, `${NAMES[type]}: `),
    h("span.code", {}, visibleCode(content)),
  );
}

/**
 * Make the lines of a difference, with a button for those too many to show at once.
 *
 * @param {DiffText[]} lines
 * @param {Omit<Lines, "lines">} [place] of which file they are
 */
export function diffLines(lines, place) {
  const node = h("div.diff", { tabindex: "0", role: "group", "aria-label": "Diff" });
  if (place) node.about = { ...place, lines }; // a person may say something of them
  let drawn = 0;
  const { more, show } = pager(LINES_AT_ONCE, "lines", (to) => {
    more.before(...lines.slice(drawn, to).map(line));
    drawn = to;
    if (place) colouring(({ colourLines }) => colourLines(node, { ...place, lines }));
    return lines.length;
  });
  node.append(more);
  show();
  return node;
}

/**
 * A button that wraps the lines of an element, as they are at first, or lets it scroll.
 *
 * @param {Element_} lines
 */
export function wrapButton(lines) {
  const turn = () => wrap.setAttribute("aria-pressed", String(lines.classList.toggle("wrap")));
  const wrap = button("button.quiet", turn, icon("wrap"), "Wrap");
  wrap.setAttribute("aria-pressed", "true");
  return wrap;
}

/**
 * Lines of a unified diff; those of a hunk, whose header counts them, may look like headers.
 *
 * @param {string} text @returns {DiffText[]}
 */
export function parseUnified(text) {
  const several = text.split(/^--- .*\n\+\+\+ /m).length > 2;
  let left = 0; // lines of the hunk, before and after
  return text.split("\n").flatMap((row) => {
    const type = left > 0 && TYPES[row[0] ?? " "];
    const counts = !type && /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(row);
    if (type) left -= type === "context" ? 2 : 1;
    if (counts) left = Number(counts[1] ?? 1) + Number(counts[2] ?? 1);
    if (!type && (/^(---|\\) /.test(row) || (row.startsWith("+++ ") && !several))) return [];
    return { type: type || "context", content: type ? row.slice(1) : row };
  });
}

/**
 * Compare two texts, with some lines around each change: for an edit that waits for a decision.
 *
 * @param {string} before @param {string} after @returns {DiffText[]}
 */
export function compareTexts(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (
    end < a.length - start &&
    end < b.length - start &&
    a[a.length - 1 - end] === b[b.length - 1 - end]
  )
    end += 1;
  /** @type {(type: DiffText["type"], lines: string[]) => DiffText[]} */
  const made = (type, lines) => lines.map((content) => ({ type, content }));
  return [
    ...made("context", a.slice(Math.max(0, start - 3), start)),
    ...made("removed", a.slice(start, a.length - end)),
    ...made("added", b.slice(start, b.length - end)),
    ...made("context", a.slice(a.length - end, a.length - end + 3)),
  ];
}
