// Markdown's blocks, as one line of names each: what holds what, and what stays text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf } from "./parts/blocks.js";

const tree = (lines) =>
  blocksOf(lines)
    .map(({ type, lines: held, items, text, level, start }) => {
      if (type === "p" || type === "table") return `${type === "p" ? "" : "|"}${held.join("/")}`;
      if (type === "code") return `<${text.replaceAll("\n", "/")}>`;
      if (type === "heading") return `h${level} ${text}`;
      if (type === "quote") return `>(${tree(held)})`;
      if (type === "list") return `${start ?? "-"}[${items.map(tree).join(" * ")}]`;
      return "---";
    })
    .join(" ");

const CASES = {
  "1. Run:\n    ```sh\n    a_b=1; rm *_old.txt\n    ls\n    ```\n2. Then:\n   - deeper\n     ```\n     x\n\n     y\n     ```\n3. Done":
    "1[Run: <a_b=1; rm *_old.txt/ls> * Then: -[deeper <x//y>] * Done]",
  "1. Run:\n   ```sh\n   ls\n   ```\n2. Done": "1[Run: <ls> * Done]",
  "1. Run:\n\n    ```sh\n    ls\n    ```\n\n2. Then": "1[Run: <ls> * Then]",
  "1. a\n\n```\nx\n```\n\n2. b": "1[a] <x> 2[b]",
  "- a\n  - b\n    - c\n- d": "-[a -[b -[c]] * d]",
  "1. a\n  - b\n2. c": "1[a -[b] * c]",
  "- a\n\n  second\n\n- b\n\nafter": "-[a second * b] after",
  "- a\ngoes on\n- b": "-[a/goes on * b]",
  "- a\n\nnot in it": "-[a] not in it",
  "- a\n1. b": "-[a] 1[b]",
  "- a\n- - b": "-[a * -[b]]",
  "text\n- a": "text -[a]",
  "> said:\n> ```\n> a\n>   b\n> ```\n> - x\n> > deeper": ">(said: <a/  b> -[x] >(deeper))",
  "> a\nb": ">(a) b",
  "- > quoted\n  > more\n- b": "-[>(quoted/more) * b]",
  "- | a | b |\n  |---|---|\n  | 1 | 2 |": "-[|| a | b |/| 1 | 2 |]",
  "a | b\n-|-\n1 | 2\nafter": "|a | b/1 | 2 after",
  "a | b": "a | b",
  "before\na | b\n-|-\n1 | 2": "before |a | b/1 | 2",
  "```\nnever\n\n- closed": "<never//- closed>",
  "- a\n  ```\n  never closed\n- b": "-[a <never closed> * b]",
  "````\n```\n````": "<```>",
  "~~~\n```\n~~~": "<```>",
  "```a```": "```a```",
  "```\n```": "<>",
  "# A #\n## B\ntext": "h1 A h2 B text",
  "***\n- - -\n* * *": "--- --- ---",
  "-": "-",
  "-x\n1.x": "-x/1.x",
  "12. a\n13. b": "12[a * b]",
  "": "",
};

for (const [text, shown] of Object.entries(CASES))
  test(JSON.stringify(text), () => assert.equal(tree(text.split("\n")), shown));

test("forty deep", () => {
  const lines = Array.from({ length: 40 }, (_, at) => `${"  ".repeat(at)}- ${at}`);
  assert.match(tree(lines), /^-\[0 -\[1 .*39\]{40}$/);
});

test("each line is in one block, and blocks stay while an answer streams", () => {
  const text = Object.keys(CASES).join("\n\n");
  const lines = text.split("\n");
  const sources = (some) => blocksOf(some).map(({ source }) => source);
  const full = lines.filter((line) => line.trim());
  assert.deepEqual(
    sources(lines)
      .join("\n")
      .split("\n")
      .filter((line) => line.trim()),
    full,
  );
});

test("much of it takes its time once", () => {
  const bad = ["> ".repeat(100_000), "- ".repeat(100_000), "- a\n".repeat(100_000)];
  bad.push("```\n".repeat(100_001), "|\n".repeat(100_000), "a\n\n".repeat(100_000));
  for (const text of bad) assert.ok(blocksOf(text.split("\n")).length > 0);
});
