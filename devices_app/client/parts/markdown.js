// Turn Markdown into nodes. HTML and unknown syntax stay text. Only changed blocks are made again,
// so that a long answer can stream.

import { blocksOf } from "./blocks.js";
import { h } from "./dom.js";
import { plainOutput } from "./terminal.js";

/**
 * Show Markdown in an element, again with a longer text while an answer streams; `linkTo(path)`
 * gives what makes an element a link to a file.
 *
 * @param {Element_} node @param {string} text @param {(path: string) => object} linkTo
 */
export function showMarkdown(node, text, linkTo) {
  // Bidi controls turn the text around them round.
  const plain = plainOutput(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  const blocks = blocksOf(plain.split("\n"));
  const before = node.markdownBlocks ?? [];
  let same = 0;
  while (same < before.length && before[same] === blocks[same]?.source) same += 1;
  const made = blocks.slice(same).map((block) => render(block));
  for (const one of made) linkPaths(one, linkTo);
  become(node, made, same);
  node.markdownBlocks = blocks.map(({ source }) => source);
}

/**
 * Give a node other children from one on; what goes on as it was stays, with a selection in it.
 *
 * @param {Element_} node @param {any[]} children
 */
function become(node, children, from = 0) {
  for (const [at, child] of children.entries()) {
    /** @type {any} */
    const was = node.childNodes[from + at];
    if (!was) node.append(child);
    else if (was.isEqualNode(child)) continue;
    else if (was.nodeType === Node.TEXT_NODE && child.data?.startsWith(was.data))
      was.appendData(child.data.slice(was.data.length));
    else if (was.cloneNode(false).isEqualNode(child.cloneNode(false)))
      become(was, [...child.childNodes]);
    else was.replaceWith(child);
  }
  while (node.childNodes.length > from + children.length) node.lastChild?.remove();
}

const DEEPEST = 50; // lists and quotations in each other; what is deeper is text

/** @param {Block} block @returns {Element_} */
function render(block, depth = 0) {
  const { type, source, lines = [], items = [], text = "", level, start } = block;
  /** @param {string[]} inside */
  const within = (inside) =>
    depth < DEEPEST
      ? blocksOf(inside).map((one) => render(one, depth + 1))
      : [h("p", {}, inside.join("\n"))];
  if (type === "code") {
    const language = /^\s*[`~]+[ \t]*([\w+.-]+)/.exec(source)?.[1];
    return h("pre", { tabindex: "0" }, h("code", { data: language && { language } }, text));
  }
  if (type === "heading") return h(`p.heading.h${level}`, {}, inline(text));
  if (type === "rule") return h("hr");
  if (type === "quote") return h("blockquote", {}, within(lines));
  if (type === "table") return table(lines);
  if (type === "p")
    return h("p", {}, ...lines.map((line, at) => [at ? h("br") : null, inline(line)]));
  const made = items.map(([first, ...rest]) => {
    const [task, mark] = /^\[([ xX])\]\s+/.exec(first) ?? [""];
    const parts = /** @type {Child[]} */ (within([first.slice(task.length), ...rest]));
    const words = /** @type {Element_ | undefined} */ (parts[0]);
    if (words?.matches("p:not(.heading)")) parts[0] = [...words.childNodes];
    return h("li", {}, mark && (mark === " " ? "☐ " : "☑ "), parts);
  });
  return h(start === undefined ? "ul" : "ol", { dir: "auto", start: start && String(start) }, made);
}

/** @param {string[]} lines */
function table(lines) {
  /** @param {string} line */
  const cells = (line) =>
    line
      .trim()
      .replace(/^\||\|$/g, "")
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim().replaceAll("\\|", "|"));
  /** @param {string} line @param {string} tag */
  const row = (line, tag) =>
    h(
      "tr",
      {},
      cells(line).map((cell) => h(tag, tag === "th" ? { scope: "col" } : {}, inline(cell))),
    );
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": "Table" },
    h(
      "table",
      {},
      h("thead", {}, row(lines[0], "th")),
      h("tbody", {}, ...lines.slice(1).map((line) => row(line, "td"))),
    ),
  );
}

const INLINE = new RegExp(
  [
    /\\([!-/:-@[-`{-~])/, // a sign that is no mark
    /(?<!(?<!\\)`)(`+)(?!`)([\s\S]{0,20000}?[^`])\2(?!`)/, // code; bounded too
    /\*\*([^\s*](?:[\s\S]{0,2000}?[^\s*])?)\*\*/, // strong; bounded, for it may never close
    /(?<!\w)__([^\s_](?:[\s\S]{0,2000}?[^\s_])?)__(?!\w)/,
    /\*([^\s*](?:[^*]*[^\s*])?)\*/, // emphasis
    /(?<![\w])_([^\s_](?:[^_]*[^\s_])?)_(?![\w])/, // emphasis
    /~~([^~]+)~~/, // struck out
    /\[([^\]\n]{1,500})\]\(((?:\([^()\s]*\)|[^()\s]){1,2000})\)/, // a link
    /(https?:\/\/(?:\([^\s<>"'()]*\)|[^\s<>"'()\]]){1,2000})/, // a bare address
  ]
    .map(({ source }) => source)
    .join("|"),
  "g",
);

/**
 * Make the nodes of a text with code, emphasis and links; links open only by a tap.
 *
 * @param {string} text @returns {(string | Node)[]}
 */
function inline(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > from) nodes.push(text.slice(from, found.index));
    from = found.index + found[0].length;
    const [whole, sign, , code, strong, strong2, em, em2, gone, label, target, bare] = found;
    if (sign) nodes.push(sign);
    else if (code !== undefined) nodes.push(h("code", {}, code.trim() || code));
    else if (strong ?? strong2) nodes.push(h("strong", {}, inline(strong ?? strong2)));
    else if (em ?? em2) nodes.push(h("em", {}, inline(em ?? em2)));
    else if (gone) nodes.push(h("s", {}, gone));
    else nodes.push(link(bare ?? target, label ?? "", whole));
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

// Where a link leads is shown unless its label says just that: an agent's text may be anybody's.
/** @param {string} address @param {string} label @param {string} whole */
function link(address, label, whole) {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address))
    return label ? h("span", { data: { path: address } }, label) : whole;
  const { host } = new URL(address);
  const said = label || address;
  const saysSo = `${said.replace(/^https?:\/\//i, "")}/`.startsWith(`${host}/`);
  const shown = saysSo ? said : `${said} (${host})`;
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, shown);
}

// A path in a text has a slash and an ending (src/app.py:12); in code or a link ENDINGS are enough.
const LINE = String.raw`(?:(?::\d+)+|#L\d+(?:-L?\d+)?)?`;
const PATH = new RegExp(
  String.raw`(?<![\w/:.~@+-])(?:\.{0,2}\/)?(?:[\w@+.-]+\/)+[\w@+.-]*\.[a-z]\w{0,9}${LINE}(?![\w/])`,
  "gi",
);
const ENDINGS =
  "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|java|js|json|jsx|kt|lock|log|md|mjs|" +
  "php|py|rb|rs|sh|sql|svg|swift|toml|ts|tsx|txt|xml|yaml|yml";
const NAME = new RegExp(String.raw`^[\w@+-][\w@+.-]*\.(?:${ENDINGS})${LINE}$`, "i");

/** @param {Element_} block @param {(path: string) => object} linkTo */
function linkPaths(block, linkTo) {
  const end = new RegExp(`${LINE}$`, "i");
  /** @param {string} path @param {string} label */
  const link = (path, label = path) => h("a", linkTo(path.replace(end, "")), label);
  for (const node of /** @type {Iterable<Element_>} */ (block.querySelectorAll("[data-path]"))) {
    const { path = "" } = node.dataset;
    const [found] = path.match(PATH) ?? path.match(NAME) ?? [];
    if (found === path) node.replaceWith(link(path, node.textContent));
  }
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const texts = /** @type {any[]} */ ([]);
  while (walker.nextNode())
    if (!walker.currentNode.parentElement?.closest("a, pre")) texts.push(walker.currentNode);
  for (const node of texts) {
    const text = node.textContent;
    const found = [...text.matchAll(PATH)];
    if (node.parentElement.matches("code") && NAME.test(text)) found.push(NAME.exec(text));
    const parts = [];
    let from = 0;
    for (const { 0: path, index } of found) {
      parts.push(text.slice(from, index), link(path));
      from = index + path.length;
    }
    if (found.length) node.replaceWith(...parts, text.slice(from));
  }
}
