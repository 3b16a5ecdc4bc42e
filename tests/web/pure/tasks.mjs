// An agent's tasks and its subagents: rows in, what is shown out.

import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyChat, foldChat } from "./store/chat.js";

let count = 0;
const row = (type, payload) => ({
  type,
  id: `row ${++count}`,
  timestamp: "2026-01-31T12:00:00Z",
  payload: { session_id: "s", ...payload },
});
const prompt = () => row("agent_event", { event: "UserPromptSubmit", payload: { prompt: "p" } });
const call = (id, tool, params, agent) =>
  row("tool_call", { tool_call_id: id, tool, params, description: tool, agent });
const result = (id, tool, content = "", more = {}) =>
  row("tool_result", { tool_call_id: id, tool, result: { success: true, content, ...more } });
const create = (id, subject, more = {}) => [
  call(`c${id}`, "TaskCreate", { subject, description: "in full", ...more }),
  result(`c${id}`, "TaskCreate", `Task #${id} created successfully: ${subject}`),
];
const set = (id, params) => {
  const key = `u${++count}`;
  return [call(key, "TaskUpdate", { taskId: id, ...params }), result(key, "TaskUpdate")];
};
const start = (id, description, type = "reviewer") =>
  call(id, "Agent", { description, prompt: "in full", subagent_type: type });
const bash = (id, agent, type = "reviewer") =>
  call(id, "Bash", { command: id }, { id: agent, type });
const stop = (agent) =>
  row("agent_event", { event: "SubagentStop", payload: { context: { agent_id: agent } } });
const launched = (id, agent) =>
  result(id, "Agent", "It works.", { metadata: { agent_id: agent, background: true } });

const refused = row("tool_result", {
  tool_call_id: "r",
  tool: "TaskCreate",
  result: { success: false, content: "", error: "No such tool" },
});

// What is shown: of a plan its steps, of a subagent its end and calls, of a call its name.
const shown = (item) => {
  if (item.steps) return item.steps.map(({ text, status }) => `${status} ${text}`);
  if (item.kind !== "tool") return item.text;
  const job = item.params.description ?? `(${item.agent?.type} ${item.agent?.id})`;
  if (item.calls) return { [job]: item.done ? "over" : "runs", calls: item.calls.map(shown) };
  return item.tool === "Bash" ? item.params.command : item.tool;
};
const fold = (...rows) => foldChat(emptyChat(), rows.flat(3));

const TASKS = {
  "tasks are one card": [
    [create(1, "Find"), create(2, "Mend"), set("1", { status: "completed" })],
    [["completed Find", "pending Mend"]],
  ],
  "what is done now is said in the agent's words for it": [
    [create(1, "Find", { activeForm: "Finding" }), set("1", { status: "in_progress" })],
    [["in_progress Finding"]],
  ],
  "one is renamed, one is deleted": [
    [
      create(1, "Find"),
      create(2, "Mend"),
      set("1", { status: "deleted" }),
      set("2", { subject: "Test" }),
    ],
    [["pending Test"]],
  ],
  "one that began before what is kept here": [
    [set("7", { status: "completed" })],
    [["completed Task #7"]],
  ],
  "a call that failed stays one, and changes nothing": [
    [create(1, "Find"), call("r", "TaskCreate", { subject: "Mend" }), refused],
    [["pending Find"], "TaskCreate"],
  ],
  "a turn has a card of its own, without what was done before": [
    [
      create(1, "Find"),
      create(2, "Mend"),
      set("1", { status: "completed" }),
      prompt(),
      set("2", { status: "in_progress" }),
    ],
    [["completed Find", "pending Mend"], "p", ["in_progress Mend"]],
  ],
  "a list that is written whole": [
    [
      call("a", "TodoWrite", { todos: [{ content: "Find", status: "pending" }, "odd"] }),
      call("b", "TodoWrite", { todos: [{ content: "Find", status: "completed" }] }),
    ],
    [["completed Find"]],
  ],
};

const SUBAGENTS = {
  "of a session of the bridge: named by the call that started it": [
    [
      start("t1", "One"),
      start("t2", "Two"),
      bash("a", "t2"),
      bash("b", "t1"),
      result("t1", "Agent"),
    ],
    [
      { One: "over", calls: ["b"] },
      { Two: "runs", calls: ["a"] },
    ],
  ],
  "one in another": [
    [
      start("t1", "One"),
      call("t2", "Agent", { description: "Two" }, { id: "t1", type: "reviewer" }),
      bash("a", "t2"),
    ],
    [{ One: "runs", calls: [{ Two: "runs", calls: ["a"] }] }],
  ],
  "at the machine: the one of its type that starts": [
    [start("t1", "One"), start("t2", "Two", "tester"), bash("a", "x"), bash("b", "y", "tester")],
    [
      { One: "runs", calls: ["a"] },
      { Two: "runs", calls: ["b"] },
    ],
  ],
  "two of a type: a row of its own until the call says which it started": [
    [start("t1", "One"), start("t2", "Two"), bash("a", "x")],
    [
      { One: "runs", calls: [] },
      { Two: "runs", calls: [] },
      { "(reviewer x)": "runs", calls: ["a"] },
    ],
  ],
  "two of a type, and it has said so": [
    [
      start("t1", "One"),
      start("t2", "Two"),
      bash("a", "x"),
      result("t2", "Agent", "Done.", { metadata: { agent_id: "x" } }),
    ],
    [
      { One: "runs", calls: [] },
      { Two: "over", calls: ["a"] },
    ],
  ],
  "in the background: it ends later": [
    [start("t1", "One"), launched("t1", "x"), bash("a", "x")],
    [{ One: "runs", calls: ["a"] }],
  ],
  "in the background: it has ended, and nothing else is said of that": [
    [start("t1", "One"), launched("t1", "x"), bash("a", "x"), stop("x")],
    [{ One: "over", calls: ["a"] }],
  ],
  "in the background: it goes on": [
    [start("t1", "One"), launched("t1", "x"), stop("x"), bash("a", "x")],
    [{ One: "runs", calls: ["a"] }],
  ],
  "in the background: its first call and its end come before its start is over": [
    [start("t1", "One"), start("t2", "Two"), bash("a", "x"), stop("x"), launched("t2", "x")],
    [
      { One: "runs", calls: [] },
      { Two: "over", calls: ["a"] },
    ],
  ],
  "one of which nothing is known": [[stop("x")], ["A subagent finished."]],
  "its plan stands in its row": [
    [
      start("t1", "One"),
      call("a", "TodoWrite", { todos: [{ content: "Find", status: "pending" }] }, { id: "t1" }),
    ],
    [{ One: "runs", calls: [["pending Find"]] }],
  ],
};

for (const [name, [rows, wanted]] of Object.entries({ ...TASKS, ...SUBAGENTS }))
  test(name, () => {
    assert.deepEqual(fold(...rows).items.map(shown), wanted);
    const [live, all] = [emptyChat(), rows.flat(3)];
    for (const one of all) foldChat(live, [one]);
    assert.deepEqual(foldChat(live, all).items.map(shown), wanted);
  });

test("a row is painted again when a call in it changes", () => {
  const chat = fold(start("t1", "One"), bash("a", "t1"));
  const { version } = chat.items[0];
  foldChat(chat, [result("a", "Bash")]);
  assert.ok(chat.items[0].version > version);
  foldChat(chat, [row("session_end", { reason: "user_request" })]);
  assert.equal(chat.items[0].reason, "stopped");
});
