// Reading and making messages, on the project's golden ones.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { faultOf, isRow, make, ODD_ALL, ODD_CODE, read } from "./protocol/messages.js";
import { readPairingLink } from "./protocol/pairing.js";

const golden = JSON.parse(process.env.GOLDEN);
const load = (path) => JSON.parse(readFileSync(path, "utf8"));

test("every message of the bridge is known and whole", () => {
  assert.ok(golden.server.length > 20);
  for (const path of golden.server) {
    const text = readFileSync(path, "utf8");
    assert.deepEqual(read(text), { message: JSON.parse(text) }, path);
  }
});

test("every message of the client is made as the contract has it", () => {
  assert.ok(golden.client.length > 10);
  for (const path of golden.client) {
    const { type, id, timestamp, payload } = load(path);
    const made = make(type, payload, id, new Date(timestamp));
    assert.deepEqual(made, load(path), path);
  }
});

test("what is unknown or damaged is kept aside, and never an exception", () => {
  const envelope = '"id": "1", "timestamp": "2026-01-01T00:00:00Z"';
  const texts = [
    "",
    "{",
    "null",
    "3",
    '"text"',
    "[]",
    "[[]]",
    "{}",
    '{"type": 1}',
    '{"type": "toString"}',
    '{"type": "__proto__"}',
    `{"type": "from_the_future", ${envelope}, "payload": {}}`,
    `{"type": "notification", ${envelope}}`,
    `{"type": "notification", ${envelope}, "payload": []}`,
    '{"type": "notification", "id": 7, "payload": {}}',
  ];
  for (const text of texts) {
    const { message, problem } = read(text);
    assert.equal(message, undefined, text);
    assert.ok(problem, text);
  }
});

test("a message without a field that is shown says which", () => {
  for (const path of golden.server) {
    const message = load(path);
    for (const field of Object.keys(message.payload ?? {})) {
      const without = structuredClone(message);
      delete without.payload[field];
      const said = faultOf(without);
      assert.ok(said === "" || said === `wrong or missing: ${field}`, `${path} ${field}: ${said}`);
      const wrong = structuredClone(message);
      wrong.payload[field] = Symbol.for("of no kind that JSON has");
      assert.equal(faultOf(wrong), said, `${path} ${field}`);
    }
    const more = structuredClone(message);
    if (more.payload) more.payload.added_later = { any: "thing" };
    assert.equal(faultOf(more), "", path);
  }
});

test("an error is a row only where a session has it", () => {
  const error = { type: "error", id: "1", payload: { code: "X", message: "x", session_id: null } };
  assert.equal(isRow(error), false);
  assert.equal(isRow({ ...error, payload: { ...error.payload, session_id: "s" } }), true);
});

test("a command has blanks and characters without width named, and prose its own", () => {
  const blanks =
    "\u00a0\u034f\u1680\u2000\u200a\u202f\u205f\u2800\u3000\ufe0f\u{13430}\u{1bca0}\u{1d173}";
  assert.deepEqual(blanks.match(ODD_CODE), [...blanks]);
  assert.equal(blanks.search(ODD_ALL), -1);
  for (const odd of [ODD_ALL, ODD_CODE]) {
    assert.equal("echo ❤️ 👩‍💻 done\n".search(odd), -1);
    for (const one of "\u202e\ufff0\ufffc") assert.equal(`a${one}b`.search(odd), 1);
  }
});

test("a pairing link is read, or what is wrong with it is said", () => {
  const token = `bridge_device_${"Ab0-_".repeat(8)}xyz`;
  const pin = "0123456789abcdef".repeat(4);
  const url = "wss://here:8443/api/v1/ws";
  const link = `https://here:8443/pair#v=1&token=${token}&url=${url}&pin=${pin}`;
  assert.deepEqual(readPairingLink(` ${link}\n`, "here:8443"), { token, url, pin });
  assert.deepEqual(readPairingLink(link.split("#")[1], "here:8443"), { token, url, pin });
  const wrong = {
    "no pairing link": "https://here:8443/pair#",
    "damaged (token)": link.replace(token, "bridge_device_short"),
    "damaged (version, pin)": link.replace("v=1", "v=2").replace(pin, "ff"),
    "damaged (address)": link.replace("wss:", "ws:"),
    "belongs to the bridge at evil": link.replace("wss://here", "wss://evil"),
    "an unknown place": link.replace("wss://here:8443", "wss://["),
  };
  for (const [says, text] of Object.entries(wrong))
    assert.throws(
      () => readPairingLink(text, "here:8443"),
      new RegExp(says.replace(/[()]/g, "\\$&")),
    );
});
