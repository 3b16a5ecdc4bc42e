// Addresses of screens, with ids and paths of every kind.

import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, screenOf } from "./views/addresses.js";

const ODD = ["plain", "a/b", "100%", "ü 🚀", "a?b#c", "\u202eevil", "%2F"];

test("an address leads back to its screen", () => {
  for (const id of ODD)
    for (const other of ODD) {
      assert.equal(screenOf(addressOf("approval", `${id}\n${other}`)).approval, `${id}\n${other}`);
      const file = { name: "session", id, tab: "files", path: other };
      assert.deepEqual(screenOf(addressOf("file", id, other)), file);
      const found = { ...file, tab: "chat" };
      assert.deepEqual(screenOf(addressOf("found", id, other)), found);
      for (const tab of ["chat", "changes", "files"])
        assert.deepEqual(screenOf(addressOf("session", id, tab)), { ...file, tab, path: "" });
    }
  assert.equal(screenOf("/app/s/1/files/src/a%20b.py").path, "src/a b.py"); // typed by hand
  for (const name of ["home", "new", "search", "settings", "wrong"])
    assert.deepEqual(screenOf(addressOf(name)), { name });
});

test("a damaged or unknown address is no failure", () => {
  for (const path of ["/app/%", "/app/s/%FF", "/app/%E0%A4%A/x", "/app/none", "/app/s/", "/app"])
    assert.ok(screenOf(path).name, path);
});
