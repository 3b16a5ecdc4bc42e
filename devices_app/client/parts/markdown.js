// Turn Markdown into nodes. HTML and unknown syntax stay text. Only changed blocks are made again,
// so that a long answer can stream.

import { h } from "./dom.js";

/**
 * Show Markdown in an element, again with a longer text while an answer streams; `linkTo(path)`
 * gives what makes an element a link to a file.
 *
 * @param {Element_} node @param {string} text @param {(path: string) => object} linkTo
 */
export function showMarkdown(node, text, linkTo) {
  // Bidi controls turn the text around them round.
  const blocks = split(text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd"));
  const before = node.markdownBlocks ?? [];
  let same = 0;
  while (same < before.length && same < blocks.length && before[same] === blocks[same]) same += 1;
  while (node.childNodes.length > same) node.lastChild?.remove();
  for (const block of blocks.slice(same)) {
    const made = render(block);
    linkPaths(made, linkTo);
    node.append(made);
  }
  node.markdownBlocks = blocks;
}

// Blocks as they stand in the source: a fence, or lines up to an empty one.
/** @param {string} text */
function split(text) {
  /** @type {string[]} */
  const blocks = [];
  /** @type {string[]} */
  let lines = [];
  let fence = "";
  const end = () => {
    if (lines.length) blocks.push(lines.join("\n"));
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence) {
      lines.push(line);
      if (mark.startsWith(fence) && line.trim() === mark) {
        fence = "";
        end();
      }
    } else if (mark) {
      end();
      fence = mark;
      lines.push(line);
    } else if (!line.trim()) {
      end();
    } else {
      const isHeading = /^#{1,6}\s/.test(line);
      if (isHeading || beginsList(line, lines[0])) end();
      if (lines.length > 1 && isRule(line) && lines.at(-1)?.includes("|") && !isRule(lines[1])) {
        const head = lines.splice(-1); // a table's
        end();
        lines.push(...head);
      }
      lines.push(line);
      if (isHeading) end();
    }
  }
  end();
  return blocks;
}

/** @param {string} line */
const isRule = (line) => /^[\s:|-]+$/.test(line) && line.includes("|") && line.includes("-");

// Whether a list begins in the line, behind other text or a list of another kind.
/** @param {string} line @param {string | undefined} first */
function beginsList(line, first) {
  const [item, before] = [ITEM.exec(line), ITEM.exec(first ?? "")];
  if (!item || !first || !before) return Boolean(item && first);
  return item[1].length <= before[1].length && isNumber(item[2]) !== isNumber(before[2]);
}

/** @param {string} block */
function render(block) {
  const lines = block.split("\n");
  const fence = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(lines[0]);
  if (fence) {
    const closed = lines.length > 1 && lines[lines.length - 1].trim().startsWith(fence[1]);
    const code = lines.slice(1, closed ? -1 : undefined).join("\n");
    return h("pre", { tabindex: "0" }, h("code", {}, code));
  }
  const heading = /^(#{1,6})\s+(.*)$/.exec(lines[0]);
  if (heading && lines.length === 1)
    return h(`p.heading.h${heading[1].length}`, {}, inline(heading[2].replace(/\s#+$/, "")));
  if (lines.every((line) => /^\s*([-*_])(\s*\1){2,}\s*$/.test(line))) return h("hr");
  if (lines.every((line) => line.startsWith(">")))
    return h(
      "blockquote",
      {},
      ...lines.map((line) => [inline(line.replace(/^>\s?/, "")), h("br")]),
    );
  if (ITEM.test(lines[0])) return list(lines);
  if (lines.length > 1 && isRule(lines[1]) && lines[0].includes("|")) return table(lines);
  return h("p", {}, ...lines.map((line, index) => [index ? h("br") : null, inline(line)]));
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
/** @param {string} marker */
const isNumber = (marker) => /\d/.test(marker);

/** @param {string[]} lines */
function list(lines) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[0]));
  const numbered = isNumber(first[2]);
  const start = numbered && String(parseInt(first[2], 10));
  const node = h(numbered ? "ol" : "ul", { dir: "auto", start });
  const depth = first[1].length;
  /** @type {string[]} */
  let nested = [];
  const endNested = () => {
    if (nested.length) node.lastElementChild?.append(list(nested));
    nested = [];
  };
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length > depth + 1) {
      nested.push(line);
    } else if (item) {
      endNested();
      const task = /^\[([ xX])\]\s+(.*)$/.exec(item[3]);
      node.append(
        h("li", {}, task ? [task[1] === " " ? "☐ " : "☑ ", inline(task[2])] : inline(item[3])),
      );
    } else if (nested.length) {
      nested.push(line);
    } else {
      node.lastElementChild?.append(" ", ...inline(line.trim()));
    }
  }
  endNested();
  return node;
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
      h("tbody", {}, ...lines.slice(2).map((line) => row(line, "td"))),
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
