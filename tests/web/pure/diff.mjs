// A unified diff, line by line: what looks like a header may be a line of the file.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = new EventTarget(); // to which the parts listen as they are loaded
const { parseUnified } = await import("./parts/diff.js");

const SIGNS = { added: "+", removed: "-", context: " " };
const shown = (text) => parseUnified(text).map(({ type, content }) => SIGNS[type] + content);

const HUNK = ["@@ -1,3 +1,3 @@ of main", " one", "--- a comment in SQL", "+++ a counter", " "];
const END = "\\ No newline at end of file";

test("a line that looks like a header is a line", () => {
  const [header, ...lines] = HUNK;
  assert.deepEqual(shown(`${HUNK.join("\n")}\n${END}`), [` ${header}`, ...lines]);
});

test("one file has no header, several have their names", () => {
  const one = (name) => [`--- ${name}`, `+++ ${name}`, "@@ -1 +0,0 @@", "-gone"].join("\n");
  assert.deepEqual(shown(one("a")), [" @@ -1 +0,0 @@", "-gone"]);
  const added = "--- a\n+++ a\n@@ -0,0 +1 @@\n+++ i;";
  assert.deepEqual(shown(added), [" @@ -0,0 +1 @@", "+++ i;"]);
  const both = ["a", "b"].flatMap((name) => [` +++ ${name}`, " @@ -1 +0,0 @@", "-gone"]);
  assert.deepEqual(shown(`${one("a")}\n${one("b")}`), both);
});

test("what is cut short is shown as far as it goes", () => {
  assert.deepEqual(shown("@@ -1,9 +1,9 @@\n-a\n[cut: 9 bytes in all]"), [
    " @@ -1,9 +1,9 @@",
    "-a",
    " [cut: 9 bytes in all]",
  ]);
});
