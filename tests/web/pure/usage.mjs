// What a session has used, in words: what the bridge tells in, a line and numbers out.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = new EventTarget(); // to which the parts listen as they are loaded
const { clock } = await import("./parts/text.js");
const { isPressing, usageFacts, usageWords } = await import("./parts/usage.js");

const NOW = Date.parse("2026-11-28T12:00:00Z");
const later = (hours) => new Date(NOW + hours * 3_600_000).toISOString();
const limit = (used, status = "ok", hours = 2, name = "five_hour") => ({
  ...{ name, status, resets_at: later(hours) },
  ...(used !== null && { used }),
});
const end = clock(later(2), NOW);

// usage, its line, whether it presses
const LINES = {
  "nothing is known": [null, "", false],
  "nothing is said": [{}, "", false],
  "its context": [
    { context_tokens: 124_000, context_window: 200_000 },
    "62\u00a0% of its context",
    false,
  ],
  "nearly full": [{ context_tokens: 8, context_window: 10 }, "80\u00a0% of its context", true],
  "tokens of a context whose size is not said": [
    { context_tokens: 12_400 },
    "12k tokens of context",
    false,
  ],
  "with a limit": [
    { context_tokens: 62, context_window: 100, limits: [limit(0.8, "near")] },
    `62\u00a0% of its context · limit 80\u00a0%, until ${end}`,
    true,
  ],
  "a limit without a share": [
    { limits: [limit(null, "near")] },
    `limit nearly reached, until ${end}`,
    true,
  ],
  "a limit that says nothing": [{ limits: [limit(null)] }, "", false],
  "the limit that is felt first": [
    { limits: [limit(0.9), limit(0.4, "reached"), limit(0.5, "near")] },
    `limit reached, until ${end}`,
    true,
  ],
  "a limit that has ended": [{ limits: [limit(1, "reached", -1)] }, "", false],
  "its cost, where nothing else is said": [{ cost_usd: 0.4213 }, "$0.42", false],
};
for (const [name, [usage, line, presses]] of Object.entries(LINES))
  test(name, () => {
    assert.equal(usageWords(usage, NOW), line);
    assert.equal(isPressing(usage, NOW), presses);
  });

test("a limit that ends on another day says which", () => {
  const words = (hours) => usageWords({ limits: [limit(0.5, "near", hours)] }, NOW);
  const [tomorrow, far] = [words(23.9), words(24 * 20)];
  assert.match(tomorrow, /until \p{L}+\.?,? \d/u);
  assert.match(far, /18/);
});

test("a time says its day, where that is not today", () => {
  const [today, yesterday, lastMonth, longAgo] = [0, -24, -24 * 26, -24 * 400].map(later);
  const hour = clock(today, NOW);
  assert.match(hour, /^\d+:00/);
  assert.match(clock(yesterday, NOW), new RegExp(`^\\p{L}+\\.?,? ${hour}$`, "u"));
  assert.match(clock(lastMonth, NOW), /2/);
  assert.match(clock(longAgo, NOW), /2025/);
  assert.equal(clock("never", NOW), "");
});

test("all numbers stand on the sheet", () => {
  const limits = [limit(1, "reached", 2, "seven_day"), limit(0.1)];
  const usage = { context_tokens: 5, context_window: 10, cost_usd: 1, limits };
  assert.deepEqual(usageFacts(usage, NOW), [
    ["Context", "5 of 10 tokens"],
    ["Part used", "50\u00a0%"],
    ["Cost", "$1.00"],
    ["Limit: seven day", `reached · 100\u00a0% used · until ${end}`],
    ["Limit: five hour", `10\u00a0% · until ${end}`],
  ]);
});
