// Code, split into what is coloured: lines in, each token's kind and text out.

import assert from "node:assert/strict";
import { test } from "node:test";
import { languageOf, tokenizer } from "./parts/tokens.js";

const NAMES = { comment: "#", text: '"', number: "0", word: "w" };
const split = (name, ...lines) => {
  const take = tokenizer(languageOf(name));
  return lines.flatMap((line) =>
    take(line).map(([kind, from, to]) => `${NAMES[kind]}${line.slice(from, to)}`),
  );
};

const CASES = {
  "a comment of a line": ["a.js", ["x(1); // for 2"], ["01", "#// for 2"]],
  "one of several lines": [
    "a.c",
    ["int a; /* for", "if 1", "*/ b = 0x1F;"],
    ["wint", "#/* for", "#if 1", "#*/", "00x1F"],
  ],
  "texts, in which no comment begins": [
    "a.ts",
    ["f(\"// \\\" '\", 'a');"],
    ['""// \\" \'"', "\"'a'"],
  ],
  "a text that does not end": ["a.go", ['s := "if', "return"], ['""if', "wreturn"]],
  "a text of several lines": ["a.py", ['x = """if', 'for""" if y:'], ['""""if', '"for"""', "wif"]],
  "a template": ["a.mjs", ["const a = `b", "if` + 1"], ["wconst", '"`b', '"if`', "01"]],
  "a hash within a word": ["run.sh", ["echo a#b # if"], ["## if"]],
  "names that hold numbers and keywords": ["a.py", ["format2 = x.if_ + 1.5e3"], ["01.5e3"]],
  "a lifetime is no text": ["a.rs", ["fn f<'a>(x: &'a str)"], ["wfn"]],
  "keywords in capitals": ["q.sql", ["SELECT a -- from"], ["wSELECT", "#-- from"]],
  "a word of a code block": ["Python", ["def f(): pass"], ["wdef", "wpass"]],
};
for (const [name, [file, lines, wanted]] of Object.entries(CASES))
  test(name, () => assert.deepEqual(split(file, ...lines), wanted));

test("a file of no known language has none", () => {
  for (const name of ["notes.txt", "LICENSE", "", "a.py.orig"])
    assert.equal(languageOf(name), undefined);
});
