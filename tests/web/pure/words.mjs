// Words at lines of a difference or a file: what is tapped in, a place and a message out.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isChanged, messageOf, placeOf, wordAt } from "./store/words.js";

const TYPES = { "+": "added", "-": "removed", " ": "context" };
const linesOf = (...rows) => rows.map((row) => ({ type: TYPES[row[0]], content: row.slice(1) }));
const HUNK = {
  path: "app.py",
  start: { old: 7, new: 9 },
  lines: linesOf(" one", "-two", "-three", "+2", "+3", " four"),
};
const at = (from, to, list = HUNK) => wordAt(list, from, to);
const without = (from, to) => at(from, to, { path: "app.py", lines: HUNK.lines });
const inFile = { path: "a", file: true, start: { old: 5, new: 5 }, lines: linesOf(" x", " y") };

// where a word stands, and which lines it is about
const PLACES = {
  "a line that stays": [at(0, 0), "app.py, line 9 (new)", [" one"]],
  "a line that goes": [at(1, 1), "app.py, line 8 (old)", ["-two"]],
  "lines that go": [at(1, 2), "app.py, lines 8–9 (old)", ["-two", "-three"]],
  "a line that comes": [at(4, 4), "app.py, line 11 (new)", ["+3"]],
  "lines that go and one that comes": [at(1, 3), "app.py, line 10 (new)", ["-two", "-three", "+2"]],
  "behind a change": [at(5, 5), "app.py, line 12 (new)", [" four"]],
  "an edit, whose place in the file nobody knows": [without(3, 4), "app.py (new)", ["+2", "+3"]],
  "a file": [at(1, 1, inFile), "a, line 6", [" y"]],
};
for (const [name, [word, place, lines]] of Object.entries(PLACES))
  test(name, () => {
    assert.equal(placeOf(word), place);
    assert.deepEqual(word.lines, lines);
  });

const changed = (row) => [
  { ...HUNK, lines: HUNK.lines.map((line) => (line.content === "3" ? row : line)) },
];
const moved = [{ ...HUNK, start: { old: 7, new: 10 } }];
const ofWindows = HUNK.lines.map(({ type, content }) => ({ type, content: `${content}\r` }));

// what the difference is by then, and whether the words at its first change have another one
const CHANGES = {
  "the same": [[HUNK], false],
  "the same among others": [[{ ...HUNK, path: "b" }, HUNK], false],
  "the same, with the ends of lines of Windows": [[{ ...HUNK, lines: ofWindows }], false],
  "another line": [changed({ type: "added", content: "three" }), true],
  "the line is not new any more": [changed({ type: "context", content: "3" }), true],
  "it lies elsewhere": [moved, true],
  "in another file": [[{ ...HUNK, path: "b" }], true],
  "there is no difference any more": [[], true],
};
for (const [name, [present, wanted]] of Object.entries(CHANGES))
  test(name, () => assert.equal(isChanged(at(1, 4), present), wanted));

test("all words are one message", () => {
  const words = [
    { ...at(1, 3), text: "Keep both.\nWhy two?  " },
    { ...at(0, 0, inFile), text: "Rename it." },
  ];
  assert.equal(
    messageOf(words, new Set([words[1]])),
    "app.py, line 10 (new):\n> -two\n> -three\n> +2\n\nKeep both.\nWhy two?\n\n" +
      "a, line 5, changed since:\n>  x\n\nRename it.",
  );
});

test("of many and of long lines there is a part", () => {
  const rows = Array.from({ length: 30 }, (_, number) => `+${number}${"x".repeat(400)}`);
  const word = wordAt({ path: "a", lines: linesOf(...rows), start: { old: 1, new: 1 } }, 0, 29);
  const lines = messageOf([{ ...word, text: "Too long." }]).split("\n");
  assert.equal(lines[0], "a, lines 1–30 (new):");
  assert.equal(lines[21], "> … (10 more)");
  assert.ok(lines[1].length < 310 && lines[1].endsWith("…"));
});
