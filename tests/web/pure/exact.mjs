// What *Change…* sends back equals what came, but for what was edited.

import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf, memberOf, membersOf, typedOf, withValues, written } from "./protocol/exact.js";
import { make, read, write } from "./protocol/messages.js";

// A generator of one sequence for one seed, so that a failure comes again.
const random = (seed) => () => {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return seed / 2147483648;
};
const NUMBERS =
  "0 -0 -0.0 1.0 1e400 -1e-400 1E+2 9007199254740993 12345678901234567890 0.1234567890123456789";
const STRINGS = [
  '""',
  '"x"',
  '"\\u00e9\\ud83d\\ude00"',
  '"}],:{[\\""',
  '"\\\\"',
  '" \\n"',
  '"9e9"',
];
const NAMES = ['"a"', '"2"', '"1"', '"__proto__"', '"\\u0061"', '"\\"}"', '"note"'];

function anyJson(next, depth = 0) {
  const pick = (list) => list[Math.floor(next() * list.length)];
  const several = (make) => Array.from({ length: Math.floor(next() * 4) }, make);
  const space = () => pick(["", "", " ", "\n\t "]);
  const spaced = (items) => `${space()}${items.join(`${space()},${space()}`)}${space()}`;
  const member = () => `${pick(NAMES)}${space()}:${space()}${anyJson(next, depth + 1)}`;
  const kind = depth === 0 ? 0 : depth > 3 ? 2 : Math.floor(next() * 4);
  if (kind === 0) return `{${spaced(several(member))}}`;
  if (kind === 1) return `[${spaced(several(() => anyJson(next, depth + 1)))}]`;
  return pick([...NUMBERS.split(" "), ...STRINGS, "true", "null", "1".repeat(10_000)]);
}

test("only what is edited differs", () => {
  for (let seed = 1; seed <= 3000; seed += 1) {
    const text = anyJson(random(seed));
    const members = membersOf(text);
    assert.deepEqual(
      [...new Set(members.map(({ name }) => name))].sort(),
      Object.getOwnPropertyNames(JSON.parse(text)).sort(),
      text,
    );
    assert.equal(withValues(text, new Map()), text);
    const same = new Map(members.map(({ name }) => [name, memberOf(text, name)]));
    for (const [name, json] of same) {
      const typed = typedOf(json);
      if (typed !== null) assert.equal(jsonOf(json, typed), json);
      const made = withValues(text, new Map([[name, '"edited"']]));
      for (const [other, before] of same)
        assert.equal(
          memberOf(made, other),
          other === name ? '"edited"' : before,
          `${seed} ${text}`,
        );
      assert.equal(membersOf(made).length, members.length);
    }
    const added = withValues(text, new Map([["answers", "1e400"]]));
    assert.deepEqual(JSON.parse(added).answers, Infinity, added);
    for (const [name, before] of same) assert.equal(memberOf(added, name), before);
    const lines = written(text);
    assert.deepEqual(JSON.parse(lines), JSON.parse(text));
    assert.equal(lines, written(lines));
    for (const digits of text.match(/(?<=[:[,]\s*)-?\d[\d.eE+-]*/g) ?? [])
      assert.ok(lines.includes(digits), digits);
  }
});

test("members of a list have numbers", () => {
  const text = ' [1.0, {"a": [-0, 2]} , [] ]';
  assert.deepEqual(
    ["0", "1", "2"].map((name) => memberOf(text, name)),
    ["1.0", '{"a": [-0, 2]}', "[]"],
  );
  assert.equal(memberOf(text, "1", "a", "0"), "-0");
  assert.deepEqual(membersOf("[]"), []);
});

test("written as JSON is usually", () => {
  for (const value of [
    {},
    [],
    { a: [] },
    { a: [1, { b: "é\n" }], c: {}, d: null },
    "x",
    [[[]], {}],
  ])
    assert.equal(written(JSON.stringify(value)), JSON.stringify(value, null, 2));
});

test("a number is edited by its digits, and stays a number", () => {
  assert.equal(typedOf("9007199254740993"), "9007199254740993");
  assert.equal(jsonOf("9007199254740993", " 9007199254740995"), "9007199254740995");
  for (const typed of ["", "1e", "0x1", "01", "NaN", "Infinity", "1, 2", '"1"'])
    assert.equal(jsonOf("1", typed), null, typed);
  assert.equal(jsonOf('"1"', "2"), '"2"');
  for (const json of ["{}", "[1]", "true", "null", '"a\\r\\n"']) assert.equal(typedOf(json), null);
});

const asked = (params) =>
  `{"type":"approval_required","id":"1","timestamp":"2026-01-01T00:00:00Z","payload":{` +
  `"session_id":"s","tool_call_id":"c","tool":"T","params":${params},"risk_level":"low",` +
  `"source":"agent_sdk"}}`;

test("parameters are kept as JSON where JavaScript holds other numbers", () => {
  const replay = (rows) =>
    `{"type":"replay_buffer","id":"2","timestamp":"2026-01-01T00:00:00Z","payload":{` +
    `"session_id":"s","complete":true,"messages":[{"type":"tool_call","n":1.0},${rows}]}}`;
  for (const number of NUMBERS.split(" ").slice(1)) {
    const params = `{"n":[${number},"${number}","\\"${number}"]}`;
    assert.equal(read(asked(params)).message.exact, params);
    const [, one, other] = read(replay(`${asked(params)},${asked('{"n":1}')}`)).message.payload
      .messages;
    assert.deepEqual([one.exact, other.exact], [params, undefined]);
  }
  for (const params of ["{}", '{"a": 1, "b": [1.5, "\\u00e9", "1.0"], "__proto__": {}}'])
    assert.equal(read(asked(params)).message.exact, undefined);
});

test("what was changed goes out as it was written", () => {
  const payload = { session_id: '"modifications":"x"', tool_call_id: "$&", decision: "modified" };
  const message = make("approval_response", { ...payload, modifications: '{"a":1e400,"b":"$&"}' });
  const sent = write(message);
  assert.equal(memberOf(sent, "payload", "modifications"), '{"a":1e400,"b":"$&"}');
  assert.equal(JSON.parse(sent).payload.session_id, payload.session_id);
  for (const modifications of [null, { a: "x" }])
    assert.equal(
      write({ ...message, payload: { ...payload, modifications } }),
      JSON.stringify({ ...message, payload: { ...payload, modifications } }),
    );
});
