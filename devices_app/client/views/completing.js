// Complete what is typed: commands of the agent after `/`, files after `@`. The list is above the
// field, where the focus stays: a combobox of several lines, which is a text box by its role.

import { fill, h } from "../parts/dom.js";
import { visible } from "../parts/text.js";

const LIST = "completions";
const ROW = {
  display: "grid",
  alignContent: "center",
  minHeight: "var(--tap)",
  padding: "0.375rem 0.75rem",
  overflowWrap: "anywhere",
};
const SHOWN = 50;
const QUIET_MS = 150; // without a key, then files are asked for

/**
 * Find what the caret stands behind: a command at the beginning, or a file's letters.
 *
 * @param {string} text
 * @param {number} caret
 * @returns {{ kind: "/" | "@"; from: number; query: string } | null}
 */
export function wordAt(text, caret) {
  const before = text.slice(0, caret);
  const command = /^\s*\/(\S*)$/.exec(before);
  if (command) return { kind: "/", from: caret - command[1].length, query: command[1] };
  const file = /(?:^|\s)@(\S*)$/.exec(before);
  return file && { kind: "@", from: caret - file[1].length, query: file[1] };
}

/**
 * Choose the commands for what was typed: those that begin so, then those that have it within.
 *
 * @param {Wire.SessionCommand[]} commands
 * @param {string} query
 */
export function matching(commands, query) {
  const wanted = query.toLowerCase();
  /** @param {Wire.SessionCommand} _ */
  const at = ({ name }) => name.toLowerCase().indexOf(wanted);
  return commands
    .filter((one) => at(one) >= 0)
    .sort((a, b) => Number(at(a) > 0) - Number(at(b) > 0))
    .slice(0, SHOWN);
}

/**
 * Complete what is typed into a field; returns the list's element.
 *
 * @param {Element_} area
 * @param {string} id of the session
 * @param {Model} model
 */
export function completing(area, id, model) {
  const list = h("ul.completions", { id: LIST, role: "listbox", "aria-label": "Suggestions" });
  // Here, and not in the stylesheet, which is part of the first load.
  const frame = { border: "1px solid var(--line)", borderRadius: "var(--radius)" };
  Object.assign(list.style, frame, { maxHeight: "40vh", overflowY: "auto" });
  const said = h("p.unseen", { role: "status" });
  const node = h("div.completing", {}, list, said);
  /** @type {{ text: string; about: string }[]} */
  let found = [];
  let at = 0;
  let asked = 0;
  let timer = 0;

  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-haspopup", "listbox");
  area.setAttribute("aria-controls", LIST);

  /** @param {number} index */
  const mark = (index) => {
    at = (index + found.length) % Math.max(1, found.length);
    [...list.children].forEach((one, number) => {
      one.setAttribute("aria-selected", String(number === at));
      const background = number === at ? "var(--accent-soft)" : "";
      Object.assign(/** @type {Element_} */ (one).style, ROW, { background });
      if (number === at) one.scrollIntoView({ block: "nearest" });
    });
    if (found.length) area.setAttribute("aria-activedescendant", `${LIST}-${at}`);
    else area.removeAttribute("aria-activedescendant");
  };

  /** @param {{ text: string; about: string }[]} next */
  const show = (next) => {
    found = next;
    list.hidden = !found.length;
    fill(
      list,
      found.map(({ text, about }, index) => {
        const choose = (/** @type {Event} */ event) => {
          event.preventDefault(); // the field keeps the focus, and a phone its keyboard
          take(index);
        };
        return h(
          "li",
          { id: `${LIST}-${index}`, role: "option", on: { pointerdown: hold, click: choose } },
          h("div.title", {}, visible(text)),
          about && h("div.meta", {}, visible(about)),
        );
      }),
    );
    mark(0);
    said.textContent = found.length ? `${found.length} suggestions` : "";
  };
  const hold = (/** @type {Event} */ event) => event.preventDefault();
  const close = () => {
    clearTimeout(timer);
    asked += 1;
    show([]);
  };

  let dismissed = ""; // the text for which a person has closed the list
  const dismiss = () => {
    dismissed = area.value;
    close();
  };

  /** @param {number} index */
  const take = (index) => {
    const word = wordAt(area.value, area.selectionStart);
    const one = found[index];
    if (!word || !one) return close();
    area.setRangeText(`${one.text} `, word.from, area.selectionStart, "end");
    close();
    area.dispatchEvent(new Event("input"));
    area.focus();
  };

  /** @param {string} query */
  const askFiles = async (query) => {
    const mine = ++asked;
    try {
      const { paths } = await model.call("ask", "file_search", { session_id: id, query });
      if (mine === asked) show(paths.map((/** @type {string} */ text) => ({ text, about: "" })));
    } catch {
      if (mine === asked) show([]); // offline it is plain text
    }
  };

  const look = () => {
    clearTimeout(timer);
    const word =
      area.selectionStart === area.selectionEnd && wordAt(area.value, area.selectionStart);
    if (!word) return found.length ? close() : undefined;
    if (word.kind === "@") {
      if (model.connection.phase !== "ready") return close();
      timer = setTimeout(() => askFiles(word.query), QUIET_MS);
      return undefined;
    }
    asked += 1;
    const commands = model.home.sessions[id]?.commands ?? [];
    const about = (/** @type {Wire.SessionCommand} */ { hint, description }) =>
      [hint, description].filter(Boolean).join(" · ");
    show(matching(commands, word.query).map((one) => ({ text: one.name, about: about(one) })));
    return undefined;
  };

  area.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (!found.length || event.isComposing || event.ctrlKey || event.metaKey || event.altKey)
      return;
    const steps = /** @type {Record<string, () => unknown>} */ ({
      ArrowDown: () => mark(at + 1),
      ArrowUp: () => mark(at - 1),
      Enter: () => take(at),
      Tab: () => take(at),
      Escape: dismiss,
    });
    if (!steps[event.key] || event.shiftKey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    steps[event.key]();
  });
  // Commands, or the connection, may come after what was typed.
  const state = () => `${model.connection.phase} ${model.home.sessions[id]?.commands?.length}`;
  let known = state();
  const leave = model.follow(() => {
    if (!node.isConnected) return leave();
    if (state() === known) return undefined;
    known = state();
    const waits = !found.length && area.value !== dismissed && document.activeElement === area;
    return waits && look();
  });

  area.addEventListener("input", look);
  area.addEventListener("blur", dismiss);
  show([]);
  look();
  return node;
}
