// Sessions and approvals, folded from messages.

import assert from "node:assert/strict";
import { test } from "node:test";
import { amongRows, openDatabase, placeRows } from "./net/db.js";
import { rowsOf, signBefore } from "./protocol/messages.js";
import { closeApprovals, openApprovals, staleApprovals } from "./store/approvals.js";
import { emptyChat, foldChat } from "./store/chat.js";
import {
  arranged,
  emptyHome,
  finishedUnseen,
  markSeen,
  reduceHome,
  reduceSessionList,
  sortedSessions,
} from "./store/home.js";
import { fieldTime, limitEnd } from "./store/later.js";

const AT = "2026-01-31T12:00:00.000Z";
let count = 0;
const message = (type, payload, id = `m-${(count += 1)}`) => ({ type, id, timestamp: AT, payload });
const view = (session_id, more = {}) => ({
  session_id,
  last_activity_at: AT,
  turn: "idle",
  ...more,
});
const fold = (messages, home = emptyHome()) =>
  messages.reduce((state, one) => reduceHome(state, one), home);
const ack = (...sessions) =>
  message("connection_ack", { active_sessions: sessions, device_name: "mine" });
const asks = (session_id, tool_call_id, id) =>
  message(
    "approval_required",
    { session_id, tool_call_id, tool: "Bash", params: {}, risk_level: "low", source: "agent_sdk" },
    id,
  );
const decidedBy = (device, decision = "approved") =>
  message("notification", {
    notification_type: "approval_decided",
    session_id: "s",
    title: "",
    body: "",
    data: { tool_call_id: "c", decision, decided_by: "device", device },
  });
const recorded = (forwarded, decision = "approved") =>
  message("approval_recorded", { session_id: "s", tool_call_id: "c", decision, forwarded });
const happened = (session_id, notification_type, priority = "normal", data = {}) =>
  message("notification", {
    notification_type,
    session_id,
    title: "",
    body: "Why.",
    priority,
    data,
  });
const only = (home) => Object.values(home.approvals)[0];

test("who decided is what the bridge says, whichever message comes first", () => {
  for (const [device, by] of [
    ["mine", "you"],
    ["other", "other"],
  ]) {
    const told = [decidedBy(device), recorded(true)];
    for (const order of [told, told.toReversed()]) {
      const approval = only(fold([ack(view("s")), asks("s", "c"), ...order]));
      assert.deepEqual([approval.open, approval.by, approval.forwarded], [false, by, true]);
    }
  }
});

test("a row that comes again opens nothing that was decided", () => {
  const row = asks("s", "c");
  const home = fold([ack(view("s")), row, decidedBy("other", "rejected"), row]);
  assert.deepEqual(openApprovals(home), []);
  assert.equal(only(home).decision, "rejected");
});

test("an approval that the bridge does not show any more is over", () => {
  const home = fold([ack(view("s")), asks("s", "c", "old"), asks("s", "d", "new")]);
  // before all that are open have been shown nobody knows
  assert.deepEqual(staleApprovals(home, "s", new Set(), 1), []);
  assert.deepEqual(staleApprovals(home, "s", new Set(["new"]), 1), ["s\nc"]);
  assert.deepEqual(staleApprovals(home, "s", new Set(), 0), ["s\nc", "s\nd"]);
  const closed = closeApprovals(home, ["s\nc"]);
  assert.deepEqual(
    openApprovals(closed).map(({ tool_call_id: id }) => id),
    ["d"],
  );
  // and if it is shown after all, it is open
  assert.equal(openApprovals(fold([asks("s", "c", "old")], closed)).length, 2);
});

test("an unknown risk is the highest, and an end of a session closes what it asked", () => {
  const row = asks("s", "c");
  row.payload.risk_level = "unheard-of";
  const home = fold([ack(view("s")), row]);
  assert.equal(only(home).risk_level, "critical");
  assert.equal(only(fold([message("session_end", { session_id: "s" })], home)).open, false);
});

test("sessions stand by what they need of a person", () => {
  const home = fold([
    ack(
      view("idle"),
      view("works", { turn: "working" }),
      view("starts", { session_status: "created" }),
      view("noted", { turn: "waiting", kind: "observed" }),
      view("failed", { session_status: "error" }),
      view("asks", { turn: "waiting" }),
      view("paused", { session_status: "paused" }),
      view("done", { turn: "working" }),
      view("broke", { turn: "working" }),
      view("quick"), // its turn was over before anything told that it began
    ),
    happened("done", "task_complete"),
    message("session_update", { session: view("done") }),
    message("stream_end", { session_id: "broke", message_id: "m", finish_reason: "error" }),
    message("stream_end", { session_id: "quick", message_id: "m", finish_reason: "stop" }),
    message("session_started", { session_id: "over" }),
    message("session_end", { session_id: "over" }),
  ]);
  assert.deepEqual(
    sortedSessions(home).map(({ session, state }) => [session.session_id, state]),
    [
      ["asks", "approval"],
      ["failed", "error"],
      ["broke", "error"],
      ["done", "finished"],
      ["quick", "finished"],
      ["works", "working"],
      ["starts", "working"],
      ["noted", "machine"],
      ["paused", "paused"],
      ["idle", "idle"],
      ["over", "ended"],
    ],
  );
});

test("a turn that was stopped, ended or lost is not finished", () => {
  const works = ack(view("s", { turn: "working" }));
  const stop = { session_id: "s", message_id: "m", finish_reason: "stop", interrupted: true };
  for (const [expected, ...messages] of [
    ["idle", message("session_update", { session: view("s") }), message("stream_end", stop)],
    [
      "idle",
      happened("s", "task_complete", "low"),
      message("session_update", { session: view("s") }),
    ],
    ["paused", ack(view("s", { session_status: "paused" }))],
    ["ended", message("session_end", { session_id: "s" })],
  ]) {
    const home = fold([works, ...messages]);
    const { unseen } = home.sessions.s;
    assert.deepEqual([sortedSessions(home)[0].state, unseen], [expected, false]);
  }
});

test("what was missed and is older changes nothing that was told", () => {
  const works = view("s", { turn: "working", last_activity_at: "2026-01-31T12:00:01.000Z" });
  const home = fold([
    ack(works),
    message("session_end", { session_id: "s" }),
    message("session_started", { session_id: "s", session: view("s") }),
    message("notification", { session_id: "s", title: "", body: "", data: {} }),
    message("stream_end", { session_id: "s", message_id: "m", finish_reason: "error" }),
  ]);
  const { turn, unseen, session_status: status } = home.sessions.s;
  assert.deepEqual([turn, unseen, status], ["working", false, "active"]);
});

test("a turn that failed is told until another one goes well", () => {
  const works = message("session_update", { session: view("s", { turn: "working" }) });
  const idle = message("session_update", { session: view("s", { session_status: "paused" }) });
  const state = (home) => sortedSessions(home)[0].state;
  const failure = { code: "AGENT_ERROR" };
  const failed = fold([ack(view("s")), works, happened("s", "error", "high", failure), idle]);
  assert.deepEqual([state(failed), failed.sessions.s.trouble], ["error", "Why."]);
  assert.equal(state(fold([works], failed)), "working");
  const ran = happened("s", "error", "high", { code: "REJECTED_CALL_RAN" });
  assert.equal(state(fold([ack(view("s")), works, ran])), "error");
  assert.equal(state(fold([happened("s", "task_complete")], failed)), "finished");
  const over = message("session_end", { session_id: "s", reason: "completed", title: "Why?" });
  const { sessions } = fold([over, happened("s", "task_complete", "low")], failed);
  assert.deepEqual(
    [sessions.s.failed, sessions.s.title],
    [true, "Why?"],
    "its end changes nothing",
  );
});

test("a conversation has what was said at its end, allowed and waited for", () => {
  const event = (name, payload) =>
    message("agent_event", { session_id: "s", event: name, payload });
  const told = (data) =>
    message("notification", { notification_type: "error", title: "", body: "It broke.", data });
  const changed = decidedBy("mine", "modified");
  changed.payload.data.modifications = { command: "ls -l" };
  const stop = { message: "It broke.", reason: "error" };
  const chat = foldChat(emptyChat(), [
    event("UserPromptSubmit", { prompt: "one" }),
    event("UserPromptSubmit", { prompt: "two", queued: true }),
    asks("s", "c"),
    changed,
    message("stream_end", { session_id: "s", message_id: "m", finish_reason: "tool_call" }),
    event("Stop", { message: "All is done." }),
    event("Stop", stop),
    told({ reason: "error" }),
  ]);
  const { items } = chat;
  assert.deepEqual(
    items.map(({ kind, text }) => [kind, text ?? ""]),
    [
      ["prompt", "one"],
      ["prompt", "two"],
      ["tool", ""],
      ["answer", ""],
      ["answer", "All is done."],
      ["note", "It broke."],
    ],
  );
  assert.deepEqual([items[2].params, items[2].was], [{ command: "ls -l" }, {}]);
  const missed = asks("s", "d");
  Object.assign(missed.payload, { decision: "modified", modifications: { command: "ls -a" } });
  const [later] = foldChat(emptyChat(), [missed]).items;
  assert.deepEqual([later.params, later.was], [{ command: "ls -a" }, {}]);
  assert.equal(items[1].state, "queued");
  foldChat(chat, [
    message("stream_end", { session_id: "s", message_id: "m", finish_reason: "stop" }),
  ]);
  const { text, state } = items.at(-1); // its turn begins there
  assert.deepEqual([text, state], ["two", "bridge"]);
});

test("what became of a message stands at it, and its turn begins where it was given", () => {
  const event = (text, id, queued = false) =>
    message("agent_event", {
      session_id: "s",
      event: "UserPromptSubmit",
      payload: { prompt: text, message_id: id, queued },
    });
  const state = (id, to) =>
    message("message_state", { session_id: "s", message_id: id, state: to });
  const stream = (type, id, more) =>
    message(`stream_${type}`, { session_id: "s", message_id: id, ...more });
  const chat = foldChat(emptyChat(), [
    state("late", "given"),
    event("one", "1"),
    event("two", "2", true),
    event("late", "late", true),
    stream("chunk", "own", { content: "by itself" }),
    state("1", "queued"),
    stream("end", "own", { finish_reason: "stop" }),
  ]);
  const shown = () => chat.items.map(({ text, state: at }) => [text, at ?? ""]);
  assert.deepEqual(shown(), [
    ["two", "queued"],
    ["late", "given"],
    ["by itself", ""],
    ["one", "bridge"],
  ]);
  foldChat(chat, [state("1", "given"), state("2", "refused")]);
  assert.deepEqual(chat.items.map(({ state: at }) => at).filter(Boolean), [
    "refused",
    "given",
    "given",
  ]);
  foldChat(chat, [stream("end", "1", { finish_reason: "stop" })]);
  assert.equal(chat.items[0].text, "two"); // nothing waits any more
});

test("an older word about being away does not undo a newer one", () => {
  const presence = (away, since) => message("presence_state", { away, device: null, since });
  const back = fold([
    presence(true, "2026-01-31T12:00:00Z"),
    presence(false, "2026-01-31T12:01:00Z"),
  ]);
  assert.equal(fold([presence(true, "2026-01-31T12:00:00Z")], back).presence.away, false);
  assert.equal(fold([presence(true, "2026-01-31T12:02:00Z")], back).presence.away, true);
});

test("what waits for a time begins where it was given, and holds nothing up", () => {
  const event = (text, id, more) =>
    message("agent_event", {
      session_id: "s",
      event: "UserPromptSubmit",
      payload: { prompt: text, message_id: id, queued: true, ...more },
    });
  const state = (id, to) =>
    message("message_state", { session_id: "s", message_id: id, state: to });
  const stream = (type, id, more) =>
    message(`stream_${type}`, { session_id: "s", message_id: id, ...more });
  const chat = foldChat(emptyChat(), [
    event("for later", "1", { not_before: "2026-01-31T12:00:00.000Z" }),
    state("1", "queued"),
    event("next", "2"),
    stream("end", "0", { finish_reason: "stop" }),
    stream("chunk", "a", { content: "an answer" }),
    stream("end", "a", { finish_reason: "stop" }),
  ]);
  const shown = () =>
    chat.items.filter(({ text }) => text).map(({ text, state: at }) => [text, at ?? ""]);
  assert.deepEqual(shown(), [
    ["for later", "queued"],
    ["next", "given"],
    ["an answer", ""],
  ]);
  foldChat(chat, [stream("start", "b"), state("1", "given")]);
  assert.deepEqual(
    chat.items.slice(-2).map(({ kind, text }) => [kind, text]),
    [
      ["prompt", "for later"],
      ["answer", ""],
    ],
  );
});

test("the end of a limit is known while it is ahead", () => {
  const limit = (status, resets_at) => ({ name: status, status, resets_at });
  const [now, soon, late] = [0, 1, 2].map((hour) => new Date(hour * 3_600_000).toISOString());
  const limits = [limit("near", late), limit("reached", soon), limit("ok", late)];
  assert.equal(limitEnd({ limits }, Date.parse(now)), soon);
  assert.equal(limitEnd({ limits }, Date.parse(soon)), late);
  assert.equal(limitEnd({ limits }, Date.parse(late)), "");
  assert.equal(limitEnd(null), "");
  assert.equal(new Date(fieldTime(Date.parse(late))).toISOString(), late);
});

test("a plan is one card of its turn", () => {
  const plan = (id, ...todos) =>
    message("tool_call", {
      session_id: "s",
      tool_call_id: id,
      tool: "TodoWrite",
      params: { todos },
    });
  const done = (id) =>
    message("tool_result", {
      session_id: "s",
      tool_call_id: id,
      tool: "TodoWrite",
      result: { success: true, content: "" },
    });
  const prompt = () =>
    message("agent_event", {
      session_id: "s",
      event: "UserPromptSubmit",
      payload: { prompt: "p" },
    });
  const chat = foldChat(emptyChat(), [prompt(), plan("a", 1), done("a")]);
  const { version } = chat.items[1];
  foldChat(chat, [plan("b", 1, 2), done("b"), prompt(), plan("c", 3)]);
  const plans = chat.items.filter(({ kind }) => kind === "tool");
  assert.deepEqual(
    plans.map(({ params }) => params.todos),
    [[1, 2], [3]],
  );
  assert.ok(plans[0].version > version);
});

test("what an ended session leaves open is stopped; what no person wrote is no prompt", () => {
  const { items } = foldChat(emptyChat(), [
    message("agent_event", {
      session_id: "s",
      event: "UserPromptSubmit",
      payload: { prompt: "The job is over.", context: { synthetic: true } },
    }),
    message("stream_start", { session_id: "s", message_id: "m" }),
    message("tool_call", { session_id: "s", tool_call_id: "c", tool: "Bash", params: {} }),
    message("session_end", { session_id: "s" }),
  ]);
  const [prompt, answer, tool] = items;
  assert.deepEqual([prompt.kind, prompt.text], ["made", "The job is over."]);
  assert.deepEqual([answer.done, answer.reason], [true, "stopped"]);
  assert.deepEqual([tool.done, tool.reason], [false, "stopped"]);
});

test("a session whose context was nearly full stays known as such when it is emptied", () => {
  const using = (context_tokens) =>
    ack({ ...view("a"), usage: { context_tokens, context_window: 10 } });
  const filled = (...counts) => fold(counts.map(using)).sessions.a.filled;
  assert.deepEqual([filled(7), filled(7, 8), filled(8, 1)], [false, true, true]);
});

test("what is not in the list of open sessions has ended; the long list knows what can resume", () => {
  const before = fold([ack(view("a"), view("b"))]);
  const after = fold([ack(view("a"))], before);
  assert.equal(after.sessions.b.session_status, "closed");
  const listed = reduceSessionList(after, [
    { id: "a", status: "closed" }, // an older answer
    { id: "b", status: "closed", resumable: true },
  ]);
  assert.equal(listed.sessions.a.session_status, "active");
  assert.equal(listed.sessions.b.resumable, true);
  assert.equal(reduceSessionList(after, [{ id: "a", status: "active" }]).sessions.b, undefined);
});

test("an old idle session in a terminal that is only counted has not ended", () => {
  const works = { ...view("b"), kind: "observed", turn: "working" };
  const before = fold([ack(view("a"), works, { ...view("c"), kind: "bridge" })]);
  const counted = ack(view("a"));
  counted.payload.idle_sessions = 1;
  const after = fold([counted], before);
  assert.deepEqual([after.sessions.b.session_status, after.sessions.b.turn], ["active", "idle"]);
  assert.equal(after.sessions.c.session_status, "closed");
  const { last_activity_at: at } = after.sessions.b;
  const ended = { id: "b", status: "closed", last_activity_at: at };
  assert.equal(reduceSessionList(after, [ended]).sessions.b.session_status, "closed");
  const older = { ...ended, last_activity_at: "2020-01-01T00:00:00.000Z" };
  assert.equal(reduceSessionList(after, [older]).sessions.b.session_status, "active");
});

test("a session that works elsewhere has lost its branch, until it is told", () => {
  const ready = message("session_ready", { session_id: "a", working_directory: "/x", branch: "m" });
  const there = fold([ack(view("a")), ready]);
  assert.equal(there.sessions.a.branch, "m");
  const moved = message("session_update", { session: { ...view("a"), working_directory: "/y" } });
  assert.equal(fold([moved], there).sessions.a.branch, undefined);
});

test("a call that a hook changed shows what runs, and what it had been; a subagent's says whose", () => {
  const agent = { id: "a1b2c3d4", type: "reviewer" };
  const ids = { session_id: "s", tool_call_id: "c", tool: "Bash" };
  const { items } = foldChat(emptyChat(), [
    message("tool_call", { ...ids, params: { command: "make" }, agent }),
    message("tool_result", {
      ...ids,
      result: { success: true, content: "ok" },
      changed: true,
      params: { command: "compact -- make" },
    }),
  ]);
  const [row] = items;
  const [tool] = row.calls;
  assert.deepEqual([tool.was, tool.params], [{ command: "make" }, { command: "compact -- make" }]);
  assert.deepEqual([tool.rewritten, tool.agent], [true, agent]);
});

test("rows of a replay stand before, between and behind those that are known", () => {
  const rows = (...ids) => ids.map((id) => ({ id }));
  const places = (found) => Object.fromEntries(found.map(({ id, place }) => [id, place]));
  assert.deepEqual(places(placeRows(rows("a", "b"), new Map(), 0)), { a: 1, b: 2 });
  assert.deepEqual(places(placeRows(rows("x", "y", "a"), new Map([["a", 1]]), 1)), { x: -1, y: 0 });
  const between = places(
    placeRows(
      rows("a", "m", "b", "z"),
      new Map([
        ["a", 1],
        ["b", 2],
      ]),
      2,
    ),
  );
  assert.ok(between.m > 1 && between.m < 2 && between.z > 2);
});

test("an approval that came first stands where its time is", () => {
  const row = (id, timestamp) => ({ id, timestamp });
  const ids = (rows) => rows.map(({ id }) => id).join("");
  const came = [row("a", "1"), row("b", "2"), row("d", "4")];
  assert.equal(ids(amongRows(came, [row("c", "3")])), "abcd");
  assert.equal(ids(amongRows(came, [row("e", "5")])), "abde");
});

test("what came before is said to be gone in front of what came, not of an approval", async () => {
  const row = (id, time, type = "stream_end") => ({
    type,
    id,
    timestamp: `2026-01-31T${time}:00.000Z`,
    payload: { session_id: "s", message_id: id, finish_reason: "stop" },
  });
  const database = await openDatabase(); // in memory: Node has no other
  const add = (...rows) => database.addRows([{ session: "s", rows }], () => ({}));
  await add(row("old", "09:00"), row("older", "09:01"));
  await add(row("question", "11:59", "approval_required"));
  const messages = [row("new", "11:40"), row("newer", "11:58")];
  const payload = { session_id: "s", complete: false, messages };
  await add(...rowsOf({ ...row("replay", "12:00", "replay_buffer"), payload }));
  const ids = async () => (await database.rowsBefore("s", Infinity, 999)).map(({ row }) => row.id);
  assert.deepEqual(await ids(), ["old", "older", "gap new", "new", "newer", "question"]);
  await add(row("end", "12:09", "session_end"));
  for (let n = 0; n < 99; n += 1) await add(row(`later ${n}`, `12:0${n < 50 ? 0 : 1}`));
  await add(row("end", "12:09", "session_end"));
  const after = await ids();
  assert.deepEqual([after.length, after.at(-1), after.at(-2)], [106, "end", "later 98"]);
});

test("what every device was told is put among rows that come later, and takes no row's place", async () => {
  const row = (id, timestamp, type = "agent_event", code = "") => ({
    type,
    id,
    timestamp,
    payload: { session_id: "s", data: { code } },
  });
  const gone = row("gone", "23:00", "notification", "MESSAGES_DISCARDED");
  const stand = async (...batches) => {
    const database = await openDatabase();
    for (const rows of batches) await database.addRows([{ session: "s", rows }], () => ({}));
    const kept = await database.rowsBefore("s", Infinity, 100);
    assert.equal(new Set(kept.map(({ place }) => place)).size, kept.length);
    return kept.map((one) => one.row.id).join(" ");
  };
  const told = [row("N", "12:01", "notification"), row("end", "12:30", "session_end")];
  const came = [row("a", "12:00"), row("b", "12:02")];
  assert.equal(await stand(told, came), "a N b end");
  assert.equal(await stand(told, [gone, ...came]), "gone a N b end");
  assert.equal(await stand(told, [gone], came), "gone a N b end");
  const [first, second] = [row("x", "12:00"), row("y", "12:03")];
  const kept = [first, told[0], second, row("M", "12:02", "notification")];
  assert.equal(await stand(kept, [first, second]), "x N y M");
});

test("sessions are arranged by what they need, then by directory", () => {
  const at = (working_directory, more = {}) => ({ working_directory, ...more });
  const home = fold([
    ack(
      view("a", at("/x")),
      view("b", at("/x", { turn: "working" })),
      view("c", at("/y")),
      view("d", at("/z", { pinned: true })),
      view("e", at("/x", { archived: true })),
      view("f", at("/x", { archived: true, pinned: true, turn: "working" })),
    ),
    message("session_started", { session_id: "g" }),
    message("session_end", { session_id: "g" }),
  ]);
  const ids = (found) => found.map(({ session }) => session.session_id).join("");
  const { pinned, groups, ended, archived } = arranged(home);
  assert.deepEqual([ids(pinned), ids(ended), ids(archived)], ["fd", "g", "e"]);
  const shown = [...groups].map(([directory, found]) => [directory, ids(found)]);
  assert.deepEqual(shown, [
    ["/x", "ba"],
    ["", "c"],
  ]);
});

test("an archived session that is not listed as open has not ended", () => {
  const home = fold([ack(view("a", { archived: true })), ack()]);
  assert.equal(home.sessions.a.session_status, "active");
});

test("what has ended while nobody looked: what failed first, not what works again", () => {
  const home = fold([
    ack(...["a", "b", "c"].map((id) => view(id))),
    happened("a", "task_complete"),
    happened("b", "error"),
    happened("c", "task_complete"),
    message("session_update", { session: view("c", { turn: "working" }) }),
  ]);
  const ids = (found) => found.map(({ session_id }) => session_id).join("");
  assert.equal(ids(finishedUnseen(home)), "ba");
  assert.equal(ids(finishedUnseen(markSeen(home, "b"))), "a");
});

test("older rows come in pages into the hole that is left for them", async () => {
  const row = (number) => ({
    type: "stream_end",
    id: `r${number}`,
    timestamp: AT,
    payload: { session_id: "s", message_id: `r${number}`, finish_reason: "stop" },
  });
  const rows = (first, last) => Array.from({ length: last - first }, (_, n) => row(first + n));
  const database = await openDatabase(); // in memory: Node has no other
  const add = (group) => database.addRows([{ session: "s", ...group }], () => ({}));
  const kept = async () =>
    (await database.rowsBefore("s", Infinity, 99_999)).map((one) => one.row.id);
  await add({ rows: rows(0, 3) });
  await add({ rows: [signBefore(row(9000), "s", true), ...rows(9000, 9003)] });
  const page = async (first, last, older) => {
    const payload = { session_id: "s", complete: true, older, messages: rows(first, last + 1) };
    const came = rowsOf({ id: "p", timestamp: AT, payload }, undefined, true);
    await add({ rows: came, before: `r${last}` });
  };
  for (let last = 9000; last > 200; last -= 200) await page(last - 200, last, true);
  assert.deepEqual((await kept()).slice(0, 5), ["r0", "r1", "r2", "older r200", "r200"]);
  await page(0, 200, undefined);
  assert.deepEqual(
    await kept(),
    rows(0, 9003).map(({ id }) => id),
  );
  await page(0, 0, undefined); // of the first one nothing is older
  const payload = { session_id: "s", complete: false, messages: [row(0)] };
  for (const _ of [1, 2]) {
    const came = rowsOf({ id: crypto.randomUUID(), timestamp: AT, payload }, undefined, true);
    await add({ rows: came, before: "r0" });
  }
  assert.deepEqual((await kept()).slice(0, 2), ["gap r0", "r0"]);
});
