// Show what a call does: its command or file, its changes as differences, and all else by name.

import { memberOf, written } from "../protocol/exact.js";
import { compareTexts, diffLines } from "./diff.js";
import { copyButton, h } from "./dom.js";
import { hasOdd, visibleCode, visibleName } from "./text.js";

// The names that agents give a text before and after.
const TEXTS = [
  ["old_string", "new_string"],
  ["oldString", "newString"],
  ["old_str", "new_str"],
  ["old_text", "new_text"],
  ["oldText", "newText"],
];
const FIRST = ["command", "file_path"];

/** @param {Free} params */
const fileOf = (params) => params.file_path ?? params.filePath ?? params.path;

/** @param {Free} params */
const textsOf = (params) =>
  TEXTS.find((names) => names.every((name) => typeof params[name] === "string"));

// Several changes of one call: an agent's own list, or those that the bridge adds (`more`).
/** @param {Free} params */
const listsOf = (params) =>
  ["edits", "more"].filter(
    (name) =>
      Array.isArray(params[name]) &&
      params[name].length &&
      params[name].every((/** @type {any} */ one) => one && typeof one === "object"),
  );

/**
 * Tell whether a call says what it changes, so that differences show it.
 *
 * @param {Free} params @returns {boolean}
 */
export const hasEdits = (params) =>
  Boolean(textsOf(params)) || listsOf(params).some((name) => params[name].some(hasEdits));

/**
 * Make the parts of a call that show the whole of it; `text`: its parameters as JSON.
 *
 * @param {Free} params
 * @returns {Child[]}
 */
export function callParts(params, text = JSON.stringify(params), file = fileOf(params)) {
  const first = FIRST.filter((name) => typeof params[name] === "string" && params[name]);
  const [before, after] = textsOf(params) ?? [];
  const lists = listsOf(params);
  const shown = new Set([...first, before, after, ...lists]);
  const rest = Object.keys(params).filter((name) => !shown.has(name));
  /** @param {string} name */
  const named = (name) => {
    const value = params[name];
    const content = typeof value === "string" ? value : written(memberOf(text, name));
    const block = content ? codeBlock(content, name) : h("p.meta", {}, "An empty text.");
    return [h("h2", {}, visibleName(name)), block];
  };
  /** @param {string} list */
  const changes = (list) =>
    params[list].map((/** @type {Free} */ one, /** @type {number} */ at) => [
      h(
        "h2",
        {},
        `${list === "edits" ? "Edit" : "Another change,"} ${at + 1} of `,
        params[list].length,
      ),
      callParts(one, memberOf(text, list, String(at)), fileOf(one) ?? file),
    ]);
  return [
    ...first.map((name) => codeBlock(params[name], name)),
    ...(before && after
      ? [
          diffLines(compareTexts(params[before], params[after]), {
            path: String(file ?? "The edit"),
          }),
        ]
      : []),
    ...lists.flatMap(changes),
    ...rest.flatMap(named),
  ];
}

/** @param {string} text @param {string} name */
export function codeBlock(text, name) {
  return h(
    "div.whole",
    {},
    h("pre.wrapped", { "aria-label": name }, visibleCode(text)),
    (text.length > 60 || name === "command") && copyButton(text),
    hasOdd(text) &&
      h("p.warn", {}, "There are characters in it that cannot be seen; they are named above."),
  );
}
