// What waits to be sent: once, in order, and decisions only about what is still open.

import assert from "node:assert/strict";
import { test } from "node:test";
import { make } from "./protocol/messages.js";
import {
  again,
  due,
  fail,
  filesLeft,
  keep,
  OUTBOX_MAX,
  put,
  REPEATABLE_MS,
  settle,
  uploaded,
  withoutDecisions,
} from "./store/outbox.js";

const on = (more = {}) => ({
  now: 1000,
  connection: 1,
  joined: new Set(["s"]),
  open: new Set(),
  ...more,
});
const say = (content, session_id = "s") => make("message", { session_id, content, role: "user" });
const decision = () =>
  make("approval_response", { session_id: "s", tool_call_id: "c", decision: "approved" });
const texts = (messages) => messages.map(({ payload }) => payload.content);

function filled(messages, connection = 0, now = 0) {
  return messages.reduce((items, message) => put(items, message, now, connection).items, []);
}

test("first in, first out, and each once on a connection", () => {
  const first = due(filled([say("1"), say("2"), say("3")]), on());
  assert.deepEqual(texts(first.send), ["1", "2", "3"]);
  const second = due(first.items, on());
  assert.deepEqual(second.send, []);
  assert.equal(second.items, first.items);
});

test("a session is joined before it is spoken to", () => {
  const items = filled([say("1"), say("2", "other")]);
  const { send, join } = due(items, on());
  assert.deepEqual([texts(send), join], [["1"], ["other"]]);
});

test("what was sent on a connection that is gone is sent again under its id, for nine minutes", () => {
  const { items } = due(filled([say("1")]), on());
  const soon = due(items, on({ connection: 2, now: 1000 + REPEATABLE_MS }));
  assert.deepEqual(soon.send, [items[0].message]);
  const late = due(items, on({ connection: 2, now: 1001 + REPEATABLE_MS }));
  assert.deepEqual(late.send, []);
  assert.equal(late.items[0].state, "failed");
  assert.match(late.items[0].problem, /may have arrived/);
});

test("a decision that was never sent goes later only if its call is open", () => {
  assert.equal(due(filled([decision()], 1), on()).send.length, 1);
  const offline = filled([decision()], 0);
  assert.equal(due(offline, on()).send.length, 0);
  assert.equal(due(offline, on({ open: new Set(["s\nc"]) })).send.length, 1);
  const cut = due(filled([decision()], 1), on()).items;
  assert.equal(due(cut, on({ connection: 2 })).send.length, 1); // the bridge says what became of it
  assert.deepEqual(withoutDecisions(cut, "s\nc"), cut);
  assert.deepEqual(withoutDecisions(offline, "s\nc"), []);
  assert.deepEqual(withoutDecisions(offline, "s\nother"), offline);
});

test("failed, once more, settled", () => {
  const sent = due(filled([say("1"), say("2")]), on()).items;
  const id = sent[0].message.id;
  const failed = fail(sent, id, "too long");
  assert.deepEqual([failed[0].state, failed[0].problem], ["failed", "too long"]);
  assert.deepEqual(due(failed, on({ connection: 2 })).send.length, 1); // the other one
  assert.deepEqual(texts(due(again(sent, id), on()).send), ["1"]);
  assert.deepEqual(texts(settle(sent, id).map(({ message }) => message)), ["2"]);
});

test("what is stored is marked, and what came meanwhile is not", () => {
  const stored = filled([say("1"), say("2")]);
  const [, second, third] = put(stored, say("3"), 0, 0).items;
  const marked = keep([second, third], stored);
  assert.deepEqual(
    marked.map(({ kept }) => kept),
    [true, false],
  );
});

test("of more than a thousand the oldest are dropped, and named", () => {
  const items = filled(Array.from({ length: OUTBOX_MAX }, (_, at) => say(String(at))));
  const { items: after, dropped } = put(items, say("new"), 0, 0);
  assert.equal(after.length, 1000);
  assert.deepEqual(texts(dropped.map(({ message }) => message)), ["0"]);
});

test("files go first, and later messages of their session wait for them", () => {
  const file = (id) => ({ id, name: id, size: 1, attachment_id: "" });
  const first = say("1");
  const carrying = put([], first, 0, 0, [file("a"), file("b")]).items;
  const items = [...carrying, ...filled([say("2"), say("3", "other")])];
  const at = on({ joined: new Set(["s", "other"]) });
  const { send, upload } = due(items, at);
  assert.deepEqual(texts(send), ["3"]);
  assert.deepEqual(upload, carrying);
  const half = uploaded(items, first.id, "b", "B");
  assert.deepEqual(
    filesLeft(half[0]).map(({ id }) => id),
    ["a"],
  );
  assert.deepEqual(texts(due(half, at).send), ["3"]);
  const whole = due(uploaded(half, first.id, "a", "A"), at);
  assert.deepEqual(texts(whole.send), ["1", "2", "3"]);
  assert.deepEqual(whole.send[0].payload.attachments, ["A", "B"]);
  assert.deepEqual(whole.upload, []);
  assert.deepEqual(texts(due(fail(items, first.id, "no"), at).send), ["2", "3"]);
});
