// Read what a program wrote to a terminal as that would show it, with colours. Pure.
// The bridge does the same without colours (bridge_project/kernel/terminal_output.py).

const COLUMNS = 1000; // in longer lines codes mean nothing: each could take long
const RUNS = 2000; // of a colour each, at most: no text takes more elements

const C0 = String.raw`\x00-\x1f\x7f`;
const CONTROL = /[^\n\t\P{Cc}]/u;
const CODES = new RegExp(
  [
    String.raw`(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])`,
    // titles, links, the clipboard; one that does not end is none, and hides nothing
    String.raw`(?:\x1b\]|\x9d)[^${C0}\x9c]*(?:\x07|\x1b\\|\x9c)`,
    String.raw`(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x18\x1a\x1b\x9c]*(?:\x1b\\|\x9c)`,
    String.raw`\x1b[ -/]*[0-~]`,
    String.raw`([\n\r\x08\x0b\x0c])|[\x00-\x08\x0e-\x1f\x7f-\x9f]`,
  ].join("|"),
  "g",
);

const HUES = ["", "red", "green", "yellow", "blue", "magenta", "cyan", ""];

/** @typedef {{ text: string; style: string }} Run of one style: names of classes, or "" */

/**
 * Return the lines that a terminal would show: overwritten, without codes and controls.
 *
 * @param {string} text @returns {Run[]}
 */
export function readOutput(text) {
  if (!CONTROL.test(text)) return [{ text, style: "" }];
  /** @type {{ chars: string[]; styles: string[] }[]} */
  const rows = [{ chars: [], styles: [] }];
  let [row, column, at, style] = [0, 0, 0, ""];
  /** @param {string} part */
  const write = (part) => {
    const { chars, styles } = rows[row];
    if (part) while (chars.length < column) styles[chars.push(" ") - 1] = "";
    for (const char of part) {
      chars[column] = char;
      styles[column] = style;
      column += 1;
    }
  };
  /** @param {number} from @param {number} to */
  const blank = (from, to) => {
    const { chars, styles } = rows[row];
    for (let one = from; one < Math.min(to, chars.length); one += 1)
      [chars[one], styles[one]] = [" ", ""];
  };
  /** @param {number} length */
  const cut = (length) => {
    const { chars, styles } = rows[row];
    if (chars.length > length) chars.length = styles.length = length;
  };
  /** @param {string} final @param {string} numbers */
  const move = (final, numbers) => {
    const number = Math.min(Number(/^\d*/.exec(numbers)?.[0]), COLUMNS);
    const count = number || 1;
    if (final === "m") style = styled(style, numbers);
    else if (Math.max(column, rows[row].chars.length) > COLUMNS) return;
    else if (final === "A" || final === "F") row = Math.max(0, row - count);
    else if (final === "B" || final === "E") row = Math.min(rows.length - 1, row + count);
    else if (final === "C") column += count;
    else if (final === "D") column = Math.max(0, column - count);
    else if (final === "G") column = count - 1;
    else if (final === "K" && number === 1) blank(0, column + 1);
    else if (final === "K" && number === 2) cut(0);
    else if ((final === "K" || final === "J") && number === 0) {
      cut(column);
      if (final === "J") rows.length = row + 1;
    }
    if (final === "E" || final === "F") column = 0;
  };
  for (const found of text.matchAll(CODES)) {
    const [whole, numbers, final, control] = found;
    write(text.slice(at, found.index));
    at = found.index + whole.length;
    if (final) move(final, numbers);
    else if (control === "\r") column = 0;
    else if (control === "\b") column = Math.max(0, column - 1);
    else if (control) {
      row += 1;
      column = 0;
      if (row === rows.length) rows.push({ chars: [], styles: [] });
    }
  }
  write(text.slice(at));
  return runsOf(rows);
}

/** @param {string} text */
export const plainOutput = (text) =>
  readOutput(text)
    .map((run) => run.text)
    .join("");

/** @param {{ chars: string[]; styles: string[] }[]} rows */
function runsOf(rows) {
  /** @type {Run[]} */
  const runs = [{ text: "", style: "" }];
  let parts = /** @type {string[]} */ ([]);
  rows.forEach(({ chars, styles }, at) => {
    if (at) parts.push("\n");
    chars.forEach((char, place) => {
      const last = runs[runs.length - 1];
      const next = runs.length < RUNS - 1 ? styles[place] : "";
      if (next !== last.style) {
        last.text = parts.join("");
        parts = [];
        runs.push({ text: "", style: next });
      }
      parts.push(char);
    });
  });
  runs[runs.length - 1].text = parts.join("");
  return runs.filter((run) => run.text);
}

// Apply a code of colours. A background is left out: what is written on it must be legible.
/** @param {string} before @param {string} numbers */
function styled(before, numbers) {
  let [hue = "", bold = "", line = ""] = before.split(".");
  const list = numbers.split(/[;:]/).map(Number);
  for (let at = 0; at < list.length; at += 1) {
    const number = list[at];
    if (number === 0) hue = bold = line = "";
    else if (number === 1) bold = "bold";
    else if (number === 22) bold = "";
    else if (number === 4) line = "underlined";
    else if (number === 24) line = "";
    else if (number === 39) hue = "";
    else if ((number >= 30 && number < 38) || (number >= 90 && number < 98))
      hue = HUES[number % 10];
    else if (number === 38 || number === 48 || number === 58) {
      const rgb = list[at + 1] === 2;
      const found = rgb ? hueOf(list.slice(at + 2, at + 5)) : ofTable(list[at + 2]);
      if (number === 38) hue = found;
      at += rgb ? 4 : 2;
    }
  }
  return hue || bold || line ? `${hue}.${bold}.${line}` : "";
}

// One of the 256 colours: 16, a cube of 216, and greys.
/** @param {number} index */
function ofTable(index) {
  if (index < 16) return HUES[index % 8];
  const at = index - 16;
  return index < 232 ? hueOf([at / 36, (at / 6) % 6, at % 6].map(Math.floor)) : "";
}

/** @param {number[]} rgb */
function hueOf(rgb) {
  const [most, least] = [Math.max(...rgb), Math.min(...rgb)];
  if (!(most - least > most / 4)) return ""; // grey
  const [red, green, blue] = rgb.map((one) => Number(one > (most + least) / 2));
  return HUES[red + 2 * green + 4 * blue];
}
