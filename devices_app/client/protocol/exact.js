// Edit JSON as text: whatever is not edited stays as it came, digit for digit. Pure.

const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}:,]|[^\s[\]{}:,"]+/g;
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * Return the members of an object, or of a list by their numbers, in the order in which they came,
 * with where each value stands.
 *
 * @param {string} text
 */
export function membersOf(text) {
  const found = [];
  const isList = text.trimStart().startsWith("[");
  let [depth, name, from, to] = [0, "", -1, 0]; // from 0: the next token begins a value
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    const isEnd = token === "]" || token === "}";
    if (depth === 0) {
      if (isList) from = 0;
    } else if (depth === 1 && (token === "," || isEnd)) {
      if (from > 0) found.push({ name: isList ? String(found.length) : name, from, to });
      from = isList ? 0 : -1;
    } else if (depth === 1 && token === ":") {
      from = 0;
    } else if (from < 0) {
      name = JSON.parse(token);
    } else if (from === 0) {
      from = index;
    }
    depth += isEnd ? -1 : Number(token === "{" || token === "[");
    to = index + token.length;
  }
  return found;
}

/**
 * Return the text of a member, the last of that name, of a member of that, and so on.
 *
 * @param {string} text @param {...string} names @returns {string}
 */
export const memberOf = (text, ...names) =>
  names.reduce((inside, name) => {
    const found = membersOf(inside).findLast((one) => one.name === name);
    return found ? inside.slice(found.from, found.to) : "{}";
  }, text);

/**
 * Return an object's text with other values, given as JSON; one that it lacks is added.
 *
 * @param {string} text @param {Map<string, string>} values
 */
export function withValues(text, values) {
  const members = membersOf(text);
  let [made, at] = ["", 0];
  for (const { name, from, to } of members) {
    made += text.slice(at, from) + (values.get(name) ?? text.slice(from, to));
    at = to;
  }
  const added = [...values]
    .filter(([name]) => !members.some((one) => one.name === name))
    .map(([name, value]) => `${JSON.stringify(name)}:${value}`);
  const [end] = /\s*}\s*$/.exec(text) ?? [""];
  made += text.slice(at, text.length - end.length) + (members.length && added.length ? "," : "");
  return (members.length ? made : text.slice(0, -end.length)) + added.join(",") + end;
}

/**
 * Return what a person edits of a value: a text as it reads, a number by its digits; null for what
 * is not edited.
 *
 * @param {string} json
 */
export function typedOf(json) {
  if (NUMBER.test(json)) return json;
  // A field would take the CR out of line ends.
  const text = json.startsWith('"') && JSON.parse(json);
  return typeof text === "string" && !text.includes("\r") ? text : null;
}

/**
 * Return as JSON what a person has made of a value; null where it is none of its kind.
 *
 * @param {string} json @param {string} typed
 */
export function jsonOf(json, typed) {
  if (typed === typedOf(json)) return json;
  if (json.startsWith('"')) return JSON.stringify(typed);
  return NUMBER.test(typed.trim()) ? typed.trim() : null;
}

/**
 * Write a value for a person, in lines, with each number as it came.
 *
 * @param {string} json
 */
export function written(json) {
  let [made, depth, empty] = ["", 0, false];
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of json.matchAll(TOKENS)) {
    const isEnd = token === "]" || token === "}";
    if (isEnd) depth -= 1;
    if (isEnd ? !empty : empty) made += line();
    empty = token === "{" || token === "[";
    if (empty) depth += 1;
    if (token.startsWith('"')) made += JSON.stringify(JSON.parse(token));
    else made += token === ":" ? ": " : token;
    if (token === ",") made += line();
  }
  return made;
}
