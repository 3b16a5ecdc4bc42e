// Colour code by the CSS Custom Highlight API: ranges of the text that is there, no elements.

import { languageOf, tokenizer } from "./tokens.js";

const LONGEST = 2000; // characters of a line
const MOST = 5000; // lines

/** @type {Map<string, Highlight>} */
const highlights = new Map();

// Where the system has few colours, a highlight would look as what is selected.
const forced = matchMedia("(forced-colors: active)");
const register = () => {
  for (const [kind, highlight] of highlights)
    if (forced.matches) CSS.highlights.delete(`code-${kind}`);
    else CSS.highlights.set(`code-${kind}`, highlight);
};
forced.addEventListener("change", register);

/** @param {string} kind */
function highlightOf(kind) {
  const made = highlights.get(kind) ?? new Highlight();
  if (highlights.has(kind)) return made;
  highlights.set(kind, made);
  register();
  return made;
}

// What has left the page would be held by its ranges.
function sweep() {
  for (const highlight of highlights.values())
    for (const range of highlight)
      if (!(/** @type {StaticRange} */ (range).startContainer.isConnected)) highlight.delete(range);
}

/**
 * Colour lines from the index `first` on; nothing where one is too long or there are too many.
 *
 * @param {CodeLine[]} lines
 * @param {string} name a file's name, or a language
 */
export function colour(lines, name, first = 0) {
  const language = languageOf(name);
  const isTooMuch = lines.length > MOST || lines.some(({ text }) => text.length > LONGEST);
  if (!language || isTooMuch) return;
  sweep();
  const sides = { old: tokenizer(language), new: tokenizer(language) };
  for (const [index, { node, from = 0, text, type }] of lines.entries()) {
    const tokens = (type === "removed" ? sides.old : sides.new)(text);
    if (type === "context") sides.old(text);
    if (index < first || !node) continue;
    for (const [kind, begin, end] of tokens) {
      const place = { startContainer: node, startOffset: from + begin };
      const range = { ...place, endContainer: node, endOffset: from + end };
      highlightOf(kind).add(new StaticRange(range));
    }
  }
}

// The text of an element in which no character had to be named.
/** @param {Element | null | undefined} node */
const textIn = (node) =>
  node?.childNodes.length === 1 && node.firstChild instanceof Text ? node.firstChild : null;

/**
 * Colour the lines of a difference or a file that are drawn, those that were before stay.
 *
 * @param {Element_} list
 * @param {Lines} about
 */
export function colourLines(list, { path, lines }) {
  const drawn = list.querySelectorAll(":scope > .line > .code, :scope > li:not(.writing) > span");
  const units = lines.slice(0, drawn.length).map(({ type, content: text }, index) => {
    const node = textIn(drawn[index]);
    return { type, text, node: node?.data === text ? node : null };
  });
  if (lines.length <= MOST) colour(units, path, list.coloured);
  list.coloured = units.length;
}

/**
 * Colour the code blocks of Markdown that have a language.
 *
 * @param {Element_} place
 */
export function colourBlocks(place) {
  for (const block of /** @type {Iterable<Element_>} */ (
    place.querySelectorAll("pre > code[data-language]")
  )) {
    if (block.coloured) continue;
    block.coloured = true;
    const node = textIn(block);
    let from = 0;
    const lines = (node?.data ?? "").split("\n").map((text) => {
      const line = { type: /** @type {const} */ ("context"), text, node, from };
      from += text.length + 1;
      return line;
    });
    colour(lines, block.dataset.language ?? "");
  }
}
