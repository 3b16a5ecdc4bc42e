// What the service worker shows for a push, whatever a push service makes of it.

import assert from "node:assert/strict";
import { test } from "node:test";

const shown = [];
const heard = {};
globalThis.self = {
  CLIENT: { version: "0", files: [] },
  location: { origin: "https://bridge" },
  registration: { showNotification: async (title, about) => shown.push({ title, ...about }) },
  addEventListener: (name, listener) => {
    heard[name] = listener;
  },
};
await import("./sw.js");

async function push(data) {
  let work;
  heard.push({
    data,
    waitUntil: (promise) => {
      work = promise;
    },
  });
  await work;
  return shown.pop();
}

const text = (said) => ({ json: () => JSON.parse(said) });

test("a push shows what it says, and leads there", async () => {
  const said = { title: "Done", body: "All tests pass", session_id: "a/b" };
  const { title, body, data } = await push(text(JSON.stringify(said)));
  assert.deepEqual([title, body, data], ["Done", "All tests pass", "/app/s/a%2Fb"]);
});

test("one without data, or with something else, shows something", async () => {
  for (const data of [null, undefined, text(""), text("no JSON"), text("null"), text("{}")]) {
    const { title, data: place } = await push(data);
    assert.ok(title);
    assert.equal(place, "/app/");
  }
});
