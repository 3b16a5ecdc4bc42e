// Collect a person's words at lines of differences and files, and send all of them at once.

import { announce, button, form, h, keyed, setText, toast } from "../parts/dom.js";
import { counted, oneLine } from "../parts/text.js";
import { isChanged, messageOf, placeOf, wordAt } from "../store/words.js";

const UNKNOWN = "Not sent: without a connection nobody knows whether the lines are still the same.";
const REASON_CHARS = 2000;

/** @param {Element_} list @returns {Element_[]} */
const linesIn = (list) =>
  /** @type {any} */ ([...list.children].filter((one) => one.matches(".line, li:not(.writing)")));

/**
 * Let a person say something of each line in `place`, and stand a bar with all words behind it.
 * They are kept as a draft until `send` has taken them.
 *
 * @param {Element_} place
 * @param {Model} model
 * @param {{ key: string; can(): boolean; go: Element_;
 *   send(words: Word[]): Promise<unknown> }} _
 */
async function collect(place, model, { key, can, go, send }) {
  /** @type {Word[]} */
  let words = JSON.parse((await model.draft(key)) || "[]");
  /** @type {{ list: Element_; from: number; to: number } | null} */
  let at = null; // what is being written about
  let busy = false;

  const keep = () =>
    model
      .keepDraft(key, words.length ? JSON.stringify(words) : "")
      .catch(() => toast("Comments could not be kept: the storage is full or refused.", "warn"));

  // -- one word
  const where = h("p.meta", { role: "status" });
  const about = { rows: "2", "aria-label": "Comment", placeholder: "What about it?" };
  const area = h("textarea", about);
  const add = h("button.primary", { type: "submit" }, "Add");
  const hint = h("p.hint", {}, "Tap another line to extend it.");
  const foot = h(
    "div.actions",
    {},
    button("button", () => leave(), "Cancel"),
    h("span.gap"),
    add,
  );
  const writing = form("word", () => take(), where, area, hint, foot);

  const present = () => {
    const { list, from, to } = /** @type {NonNullable<typeof at>} */ (at);
    return wordAt(list.about, Math.min(from, to), Math.max(from, to));
  };
  const leave = () => {
    for (const one of at ? linesIn(at.list) : []) one.classList.remove("chosen");
    const list = at?.list;
    at = null;
    area.value = "";
    (writing.closest(".writing") ?? writing).remove();
    list?.focus({ preventScroll: true });
  };
  const take = () => {
    if (!at || !area.value.trim()) return area.focus();
    words.push({ ...present(), text: area.value.trim() });
    keep();
    leave();
    announce(counted(words.length, "comment"));
    return paint();
  };
  /** @param {Element_} line */
  const choose = (line) => {
    const list = /** @type {Element_} */ (line.parentElement);
    const lines = linesIn(list);
    const index = lines.indexOf(line);
    if (at?.list === list) at.to = index;
    else if (at?.list.isConnected && area.value.trim()) {
      toast("Add what you have written, or cancel it.", "warn");
      return area.focus();
    } else {
      leave();
      at = { list, from: index, to: index };
    }
    const [from, to] = [at.from, at.to].sort((a, b) => a - b);
    for (const [i, one] of lines.entries()) one.classList.toggle("chosen", from <= i && i <= to);
    setText(where, oneLine(placeOf(present())));
    const holder = writing.closest(".writing") ?? h(list.matches("ol") ? "li" : "div");
    holder.className = "writing";
    holder.append(writing);
    lines[to].after(holder);
    area.focus({ preventScroll: true });
    return holder.scrollIntoView({ block: "nearest" });
  };
  place.addEventListener("click", ({ target }) => {
    const line = /** @type {Element_} */ (target).closest(".line, ol.code > li:not(.writing)");
    const isSelecting = !getSelection()?.isCollapsed;
    if (line?.parentElement && "about" in line.parentElement && can() && !isSelecting)
      choose(/** @type {Element_} */ (line));
  });
  // By keys: up and down in a list of lines, Enter at one of them.
  place.addEventListener("keydown", (event) => {
    const list = /** @type {Element_} */ (event.target);
    const step = { ArrowDown: 1, ArrowUp: -1, Enter: 0 }[event.key];
    if (!("about" in list) || step === undefined || !can()) return;
    event.preventDefault();
    const lines = linesIn(list);
    const last = lines.findIndex((one) => one.classList.contains("here"));
    const index = Math.max(0, Math.min(lines.length - 1, last + step));
    lines[last]?.classList.remove("here");
    lines[index].classList.add("here");
    lines[index].scrollIntoView({ block: "nearest" });
    if (step) announce(lines[index].textContent ?? "");
    else choose(lines[index]);
  });

  // -- all words
  const summary = h("summary");
  const list = h("ul");
  const bar = h("div.words", {}, h("details", {}, summary, list), go);
  /** @param {Word} word */
  const item = (word) => {
    const named = oneLine(placeOf(word));
    const text = h("textarea", { rows: "2", "aria-label": `Comment on ${named}` });
    text.value = word.text;
    text.addEventListener("input", () => {
      word.text = text.value;
      keep();
    });
    const remove = () => {
      words = words.filter((one) => one !== word);
      keep();
      paint();
    };
    const gone = button("button.quiet", remove, "Remove");
    return h("li", {}, h("p.meta", {}, named), text, gone);
  };
  const names = new Map(); // word → its key in the list
  const paint = () => {
    bar.hidden = !words.length || !can();
    place.classList.toggle("takes-words", can());
    setText(summary, counted(words.length, "comment"));
    const name = (/** @type {Word} */ word) =>
      names.get(word) ?? names.set(word, String(names.size)).get(word);
    keyed(list, words, { key: name, make: item });
    go.disabled = busy;
  };
  const sendAll = async () => {
    busy = true;
    paint();
    try {
      const said = words.filter(({ text }) => text.trim());
      const all = words;
      if (said.length) await send(said);
      words = words.filter((one) => !all.includes(one));
      await keep();
    } catch (/** @type {any} */ error) {
      toast(error.message, "warn");
    }
    busy = false;
    paint();
  };
  go.addEventListener("click", sendAll);
  place.after(bar);
  paint();
  return paint;
}

/**
 * Collect words in a session's changes or files; they become one message to its agent.
 *
 * @param {Element_} place
 * @param {string} id
 * @param {Model} model
 */
export function wordsOfSession(place, id, model) {
  const can = () => {
    const { kind, session_status: status, resumable } = model.home.sessions[id] ?? {};
    return kind === "bridge" && (status !== "closed" || Boolean(resumable));
  };
  /** @type {Ask} */
  const ask = (type, payload) => model.call("ask", type, { session_id: id, ...payload });
  // What is there now of the lines of a word; nothing where it cannot be read any more.
  /** @param {Word} word @returns {Promise<Lines[]>} */
  const read = async ({ path, file, first, last }) => {
    if (file) {
      const limit = last - first + 1;
      const found = await ask("file_read", { path, offset: first - 1, limit });
      const text =
        found.text
          ?.split("\n")
          .slice(first - 1, last)
          .join("\n") ?? found.content;
      return [linesOfFile(path, text, first)];
    }
    const both = [false, true].map((cached) => ask("git_diff", { files: [path], cached }));
    const files = (await Promise.all(both)).flatMap((one) => one.files);
    return files.flatMap(({ path: name, hunks }) =>
      hunks.map(({ lines, old_start, new_start }) => ({
        path: name,
        lines,
        start: { old: old_start, new: new_start },
      })),
    );
  };
  /** @param {Word[]} words */
  const send = async (words) => {
    /** @type {Set<Word>} */
    const changed = new Set();
    for (const word of words) {
      const present = await read(word).catch((error) => {
        if (error.code === undefined) throw new Error(UNKNOWN);
        return [];
      });
      if (isChanged(word, present)) changed.add(word);
    }
    await model.call("say", id, messageOf(words, changed));
    toast("Sent. The answer stands in the chat.");
  };
  return collect(place, model, {
    ...{ key: `words:${id}`, can, send },
    go: h("button.primary", { type: "button" }, "Send"),
  });
}

/**
 * Collect words at the edit of an approval; they become the reason of its rejection.
 *
 * @param {Element_} place
 * @param {string} key
 * @param {Model} model
 * @param {{ can(): boolean; reject(reason: string): Promise<unknown> }} _
 */
export const wordsOfApproval = (place, key, model, { can, reject }) =>
  collect(place, model, {
    key: `words:${key}`,
    can,
    go: h("button.reject", { type: "button" }, "Reject and say why"),
    send: async (words) => {
      const reason = messageOf(words);
      const over = reason.length - REASON_CHARS;
      if (over > 0) throw new Error(`A reason is shorter by ${counted(over, "character")}.`);
      await reject(reason);
    },
  });

/**
 * Lines of a file, as those of a difference are.
 *
 * @param {string} path
 * @param {string} text
 * @param {number} first the number of its first line
 * @returns {Lines}
 */
export function linesOfFile(path, text, first = 1) {
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return {
    ...{ path, file: true, start: { old: first, new: first } },
    lines: lines.map((content) => ({ type: "context", content })),
  };
}
