// Divide Markdown into blocks. Pure. Lists and quotations hold lines, which are blocks again.

const FENCE = /^(\s{0,3})(`{3,}(?=[^`]*$)|~{3,})/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s{0,3}>\s?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+)(?=\S)/;

/** @param {string} marker */
const isNumber = (marker) => /\d/.test(marker);
/** @param {string} line */
const isTableRule = (line = "") =>
  /^[\s:|-]+$/.test(line) && line.includes("|") && line.includes("-");
/** @param {string} line */
const indentOf = (line) => line.length - line.trimStart().length;

/**
 * Return the blocks of some lines; each has its lines as they came in `source`.
 *
 * @param {string[]} lines @returns {Block[]}
 */
export function blocksOf(lines) {
  /** @type {Block[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const take = TAKES.find(({ begins }) => begins(lines, at));
    const [block, to] = take ? take.take(lines, at) : paragraph(lines, at);
    blocks.push({ ...block, source: lines.slice(at, to).join("\n") });
    at = to;
  }
  return blocks;
}

/** @typedef {[Omit<Block, "source">, number]} Taken a block, and the line behind it */

/**
 * @typedef {object} Take how a kind of block is known by its first line, and taken
 * @property {(lines: string[], at: number) => boolean} begins
 * @property {(lines: string[], at: number) => Taken} take
 */

/** @type {Take[]} */
const TAKES = [
  { begins: (lines, at) => FENCE.test(lines[at]), take: code },
  { begins: (lines, at) => HEADING.test(lines[at]), take: heading },
  {
    begins: (lines, at) => RULE.test(lines[at]),
    take: (_, at) => [{ type: "rule" }, at + 1],
  },
  { begins: (lines, at) => QUOTE.test(lines[at]), take: quote },
  { begins: (lines, at) => ITEM.test(lines[at]), take: list },
  {
    begins: (lines, at) => lines[at].includes("|") && isTableRule(lines[at + 1]),
    take: table,
  },
];

/** @param {string[]} lines @param {number} from @param {(at: number) => boolean} goesOn */
function endOf(lines, from, goesOn) {
  let at = from;
  while (at < lines.length && goesOn(at)) at += 1;
  return at;
}

/** @param {string[]} lines @param {number} at @returns {Taken} */
function paragraph(lines, at) {
  const begins = (/** @type {number} */ next) => TAKES.some((one) => one.begins(lines, next));
  const to = endOf(lines, at + 1, (next) => Boolean(lines[next].trim()) && !begins(next));
  return [{ type: "p", lines: lines.slice(at, to) }, to];
}

// One that is not closed goes on to the end of what holds it.
/** @param {string[]} lines @param {number} at @returns {Taken} */
function code(lines, at) {
  const [, { length: indent }, mark] = /** @type {RegExpExecArray} */ (FENCE.exec(lines[at]));
  const closes = (/** @type {string} */ line) =>
    line.trim().startsWith(mark) && !line.trim().replaceAll(mark[0], "");
  const to = endOf(lines, at + 1, (next) => !closes(lines[next]));
  const inside = lines.slice(at + 1, to);
  const text = inside.map((line) => line.slice(Math.min(indent, indentOf(line)))).join("\n");
  return [{ type: "code", text }, to + 1];
}

/** @param {string[]} lines @param {number} at @returns {Taken} */
function heading(lines, at) {
  const [, { length: level }, text] = /** @type {RegExpExecArray} */ (HEADING.exec(lines[at]));
  return [{ type: "heading", level, text: text.replace(/\s#+$/, "") }, at + 1];
}

/** @param {string[]} lines @param {number} at @returns {Taken} */
function quote(lines, at) {
  const to = endOf(lines, at, (next) => QUOTE.test(lines[next]));
  return [{ type: "quote", lines: lines.slice(at, to).map((line) => line.replace(QUOTE, "")) }, to];
}

/** @param {string[]} lines @param {number} at @returns {Taken} */
function table(lines, at) {
  const to = endOf(lines, at + 2, (next) => lines[next].includes("|"));
  return [{ type: "table", lines: [lines[at], ...lines.slice(at + 2, to)] }, to];
}

/** @param {string[]} lines @param {number} from @returns {Taken} */
function list(lines, from) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[from]));
  const depth = first[1].length;
  const numbered = isNumber(first[2]);
  /** @type {string[][]} */
  const items = [];
  let [at, inside] = [from, 0]; // `inside`: where the text of an item begins
  let isOpen = false; // text of the item, which the next line may go on with
  for (; at < lines.length; at += 1) {
    const line = lines[at];
    const indent = indentOf(line);
    const item = indent < depth + 2 && !RULE.test(line) ? ITEM.exec(line) : null;
    const isInside = items.length > 0 && indent >= depth + 2;
    if (item) {
      if (isNumber(item[2]) !== numbered) break;
      inside = item[0].length;
      items.push([line.slice(inside)]);
    } else if (!line.trim() || isInside) {
      items[items.length - 1].push(line.slice(Math.min(indent, inside)));
    } else if (isOpen && !TAKES.some((one) => one.begins(lines, at))) {
      items[items.length - 1].push(line);
    } else break;
    isOpen = Boolean(line.trim()) && !FENCE.test(line.trim()) && (isOpen || !!item || isInside);
  }
  while (!lines[at - 1].trim()) at -= 1; // between this and the next
  return [{ type: "list", items, start: numbered ? parseInt(first[2], 10) : undefined }, at];
}
