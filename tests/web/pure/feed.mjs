// What a real bridge sent: nothing in it is unknown, and it leads to one state however it comes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { faultOf, isRow, sessionOf } from "./protocol/messages.js";
import { emptyChat, foldChat } from "./store/chat.js";
import { emptyHome, reduceHome } from "./store/home.js";

const feed = JSON.parse(readFileSync(process.env.FEED, "utf8"));
const rows = feed
  .flatMap((one) => (one.type === "replay_buffer" ? one.payload.messages : [one]))
  .filter(isRow);
const sessions = [...new Set(rows.map(sessionOf).filter(Boolean))];
const rowsOf = (session) => rows.filter((row) => sessionOf(row) === session);
const shown = ({ items }) => items.map(({ version, ...item }) => item);

test("nothing that the bridge sends is unknown or of another shape", () => {
  const types = new Set(feed.map(({ type }) => type));
  for (const type of ["agent_event", "stream_chunk", "tool_result", "tool_error", "session_end"])
    assert.ok(types.has(type) || rows.some((row) => row.type === type), type);
  for (const message of [...feed, ...rows])
    assert.equal(faultOf(message), "", JSON.stringify(message));
});

test("a chat after a replay is the chat after live rows, and rows that come twice change nothing", () => {
  assert.equal(sessions.length, 2);
  for (const session of sessions) {
    const all = rowsOf(session);
    const whole = shown(foldChat(emptyChat(), all));
    assert.ok(whole.length > 3);
    const live = emptyChat();
    for (const row of all) foldChat(live, [row]);
    assert.deepEqual(shown(live), whole);
    for (let cut = 0; cut < all.length; cut += 1) {
      const again = foldChat(
        foldChat(emptyChat(), all.slice(0, cut)),
        all.slice(Math.max(0, cut - 5)),
      );
      assert.deepEqual(shown(again), whole);
    }
  }
});

test("the state of sessions and approvals stands when rows come again after a reconnection", () => {
  const fold = (list, home = emptyHome()) =>
    list.reduce((state, one) => reduceHome(state, one), home);
  const whole = fold(rows);
  assert.equal(Object.values(whole.approvals).length, 2);
  assert.ok(Object.values(whole.approvals).every(({ open }) => !open));
  for (let cut = 0; cut < rows.length; cut += 1)
    assert.deepEqual(fold(rows.slice(cut), whole).approvals, whole.approvals);
  assert.deepEqual(
    Object.values(whole.sessions).map(({ session_status: status }) => status),
    ["closed", "closed"],
  );
});
