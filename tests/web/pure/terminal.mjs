// Output of a terminal: the bridge's table of cases, colours, and what is meant to do harm.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { plainOutput, readOutput } from "./parts/terminal.js";

for (const { name, written, shown } of JSON.parse(readFileSync(process.env.TERMINAL, "utf8")))
  test(name, () => {
    assert.equal(plainOutput(written), shown);
    assert.equal(plainOutput(shown), shown);
  });

const E = "\u001b";
const styles = (text) => readOutput(text).map((run) => [run.text, run.style]);

test("colours are those that have a name here", () => {
  const table = {
    31: "red..",
    92: "green..",
    "1;33": "yellow.bold.",
    "4;34": "blue..underlined",
    "38;5;5": "magenta..",
    "38;5;51": "cyan..",
    "38;2;250;20;20": "red..",
    "38:2:20:20:250": "blue..",
    "38;5;244": "",
    37: "",
    "30;47": "",
    "48;5;196": "",
    "48;2;1;31;32": "",
    "58;5;1;32": "green..",
    "38;5": "",
    38: "",
    7: "",
    "99999999;31": "red..",
    "?25": "",
  };
  for (const [code, style] of Object.entries(table))
    assert.deepEqual(styles(`${E}[${code}mx`), [["x", style]], code);
  assert.deepEqual(styles(`a${E}[31mb${E}[1mc${E}[22;39md${E}[0me`), [
    ["a", ""],
    ["b", "red.."],
    ["c", "red.bold."],
    ["de", ""],
  ]);
  assert.deepEqual(styles(`${E}[31mab\ncd\r${E}[32mx`), [
    ["ab\n", "red.."],
    ["x", "green.."],
    ["d", "red.."],
  ]);
});

test("what is long or never ends takes its time once", () => {
  const many = 100_000;
  const bad = {
    escapes: Array.from({ length: many }, (_, at) => `${E}[3${at % 8}mx`).join(""),
    titles: `${E}]0;`.repeat(many),
    strings: `${E}P`.repeat(many),
    codes: `${E}[`.repeat(many),
    numbers: `${E}[${"1".repeat(5_000_000)}`,
    semicolons: `${E}[${";".repeat(1_000_000)}m`,
    bars: "loading\r".repeat(many),
    erased: `x${E}[2K`.repeat(many),
    right: `${E}[1000Cx\r`.repeat(many),
    up: `x\n${E}[1A`.repeat(many),
    line: `${E}[31m${"x".repeat(10_000_000)}`,
    plain: "x".repeat(10_000_000),
  };
  for (const [name, text] of Object.entries(bad)) {
    const began = process.cpuUsage();
    const runs = readOutput(text);
    assert.ok(runs.length <= 2000, name);
    assert.ok(process.cpuUsage(began).user < 10e6, name);
  }
});
