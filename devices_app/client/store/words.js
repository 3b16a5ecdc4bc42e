// Fold a person's words at lines of differences and files into one message. Pure.

const SIGNS = { added: "+", removed: "-", context: " " };
const QUOTED = { lines: 20, chars: 300 }; // of each word, the rest is counted

/** @param {DiffText} _ */
const signed = ({ type, content }) => SIGNS[type] + content.replace(/\r$/, "");

/**
 * Make an empty word at lines of a list, from the index `from` to `to`: on the new side, unless all
 * of them are removed. Where the list does not say at which line it begins, it has no numbers.
 *
 * @param {Lines} _
 * @param {number} from
 * @param {number} to
 * @returns {Word}
 */
export function wordAt({ path, lines, start, file = false }, from, to) {
  const chosen = lines.slice(from, to + 1);
  const side = chosen.every(({ type }) => type === "removed") ? "old" : "new";
  const absent = side === "old" ? "added" : "removed"; // there
  const before = lines.slice(0, from).filter(({ type }) => type !== absent).length;
  const count = chosen.filter(({ type }) => type !== absent).length;
  const first = start ? start[side] + before : 0;
  const last = start ? first + count - 1 : 0;
  return { path, side, file, first, last, lines: chosen.map(signed), text: "" };
}

/**
 * Name the place of a word: "src/app.py, lines 2–3 (new)".
 *
 * @param {Word} _
 */
export function placeOf({ path, side, file, first, last }) {
  const numbers = first === last ? `, line ${first}` : `, lines ${first}–${last}`;
  return path + (first ? numbers : "") + (file ? "" : ` (${side})`);
}

/**
 * Tell whether the lines of a word are not the same any more, or lie elsewhere.
 *
 * @param {Word} word
 * @param {Lines[]} present what its file or difference has now
 */
export function isChanged(word, present) {
  const same = (/** @type {Word} */ other) =>
    placeOf(other) === placeOf(word) && other.lines.join("\n") === word.lines.join("\n");
  const { length } = word.lines;
  return !present.some((list) =>
    list.lines.some((_, at) => same(wordAt(list, at, at + length - 1))),
  );
}

/** @param {string} line */
const quoted = (line) =>
  `> ${line.length > QUOTED.chars ? `${line.slice(0, QUOTED.chars)}…` : line}`.trimEnd();

/**
 * Write all words as one text: of each its place, its lines and what is said.
 *
 * @param {Word[]} words
 * @param {Set<Word>} [changed] those whose lines have changed since
 */
export const messageOf = (words, changed = new Set()) =>
  words
    .map((word) => {
      const rest = word.lines.length - QUOTED.lines;
      return [
        `${placeOf(word)}${changed.has(word) ? ", changed since" : ""}:`,
        ...word.lines.slice(0, QUOTED.lines).map(quoted),
        ...(rest > 0 ? [`> … (${rest} more)`] : []),
        "",
        word.text.trim(),
      ].join("\n");
    })
    .join("\n\n");
