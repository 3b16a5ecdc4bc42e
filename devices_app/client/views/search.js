// Find sessions and what was said in them: at the bridge, or without it in what is kept here.

import { backLink, button, connectionSign, field, fill, h, screen, setText } from "../parts/dom.js";
import { ago, counted, dotted, shortPath, titleOf, visible } from "../parts/text.js";
import { emptyChat, foldChat, keyOf } from "../store/chat.js";

const SHOWN = 20; // at once
const TYPED_MS = 250; // without a key, then it is looked for
const QUERY_CHARS = 1000; // as many as the bridge takes
const ROWS = 600; // of a session that are read at once
const HINT = "In titles and directories, in what you have asked and in what agents have answered.";
/** @type {Record<string, string>} */
const WHERE = { title: "Title", directory: "Directory", prompt: "Asked", answer: "Answered" };

/** @typedef {{ hits: Wire.SearchHit[]; more: boolean }} Page */
/** @type {Page & { query: string; said: string; isHere: boolean }} */
let last = { query: "", hits: [], more: false, said: "", isHere: false }; // for "back"

/** @param {string} text */
const folded = (text) => text.normalize("NFKC").toLowerCase();
/** @param {string} query */
const wordsOf = (query) => folded(query).split(/\s+/).filter(Boolean);

/**
 * Make the screen.
 *
 * @param {App} app
 */
export function searchView({ model, go }) {
  const box = field("input", {
    id: "search",
    type: "text",
    enterkeyhint: "search",
    maxlength: QUERY_CHARS,
    "aria-label": "Search",
    placeholder: "Search",
  });
  const said = h("p.meta", { role: "status" });
  const list = h("ul.rows.hits");
  const more = button("button.wide", () => look(true), "Show more");
  const again = button("button.wide", () => look(), "Try again");
  const connection = connectionSign({ model, go });
  const node = screen(
    "Search",
    { before: backLink(go, "home", "Back to the sessions"), behind: connection.node },
    h("div.scroller", {}, h("search", {}, box), said, list, more, again),
  );
  let number = 0; // of the newest question: an older one's answer comes too late
  let timer = 0;
  /** @type {AsyncGenerator<Wire.SearchHit> | null} */
  let here = null; // the search of what is kept here, while there is no connection

  const isReady = () => model.connection.phase === "ready";
  /** @param {string} words @param {boolean} isMore */
  const say = (words, isMore = false) => {
    setText(said, words);
    more.hidden = !isMore;
    again.hidden = true;
  };

  // Several hits of one moment may stand on both sides of a page's end.
  /** @param {string} query @param {Wire.SearchHit[]} known @returns {Promise<Page>} */
  const ask = async (query, known) => {
    const keys = new Set(known.map(keyOfHit));
    for (const later of [1, 0]) {
      const at = known.at(-1)?.at;
      const before = at && new Date(Date.parse(at) + later).toISOString();
      const asked = { query, limit: SHOWN, ...(before && { before }) };
      /** @type {Page} */
      const { hits, more } = await model.call("ask", "session_search", asked);
      const fresh = hits.filter((one) => !keys.has(keyOfHit(one)));
      if (fresh.length || !more || !before) return { hits: fresh, more };
    }
    return { hits: [], more: false };
  };

  /** @param {string} query @param {boolean} isMore @returns {Promise<Page>} */
  const askHere = async (query, isMore) => {
    if (!isMore || !here) here = keptHits(model, query);
    const hits = [];
    while (hits.length < SHOWN) {
      const { value, done } = await here.next();
      if (done) return { hits, more: false };
      hits.push(value);
    }
    return { hits, more: true };
  };

  const look = async (isMore = false) => {
    const query = box.value.slice(0, QUERY_CHARS).trim();
    const mine = ++number;
    history.replaceState({ ...history.state, query }, "");
    if (!query) {
      last = { query, hits: [], more: false, said: HINT, isHere: false };
      return show();
    }
    const known = isMore ? last.hits : [];
    const isHere = !isReady() || (isMore && Boolean(here));
    say(isHere ? "Looking at what is kept on this phone…" : "Looking…");
    try {
      if (!isHere) here = null;
      const found = await (isHere ? askHere(query, isMore) : ask(query, known));
      if (mine !== number) return;
      const hits = [...known, ...found.hits];
      const count = `${counted(hits.length, "result")}${found.more ? ", and more" : ""}`;
      const words = hits.length ? count : "Nothing was found.";
      const kept = isHere && "Offline: only what is kept on this phone was searched.";
      const said = [kept, words].filter(Boolean).join(" ");
      last = { query, hits, more: found.more, said, isHere };
      show();
    } catch (/** @type {any} */ error) {
      if (mine !== number) return;
      say(error.message);
      again.hidden = false;
    }
  };

  const show = () => {
    const words = wordsOf(last.query);
    fill(
      list,
      last.hits.map((hit) => rowOf(hit, words)),
    );
    say(last.said, last.more);
  };

  /** @param {Wire.SearchHit} hit @param {string[]} words */
  const rowOf = (hit, words) => {
    const { session_id: id, message_id: row, where, at, title, excerpt } = hit;
    const session = model.home.sessions[id];
    const named = titleOf(session ?? /** @type {any} */ ({ title }), id);
    const place = where !== "directory" && shortPath(session?.working_directory);
    return h(
      "li.row",
      {},
      h(
        "a.row-link",
        row ? go.link("found", id, row) : go.link("session", id),
        h(
          "span.row-main",
          {},
          h("span.title", {}, named),
          where !== "title" && h("span.excerpt", {}, marked(excerpt, words)),
          h("span.meta", {}, dotted(WHERE[where], ago(at), place)),
        ),
      ),
    );
  };

  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, TYPED_MS);
  });
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ { key, isComposing }) => {
    if (key !== "Enter" || isComposing) return;
    clearTimeout(timer);
    look();
  });
  box.value = history.state?.query ?? "";
  if (box.value && box.value === last.query && !(last.isHere && isReady())) show();
  else look();
  let wasReady = isReady();
  const paint = () => {
    connection.paint();
    if (isReady() && !wasReady && last.isHere) look(); // all of it can be searched now
    wasReady = isReady();
  };
  paint();
  if (!box.value) setTimeout(() => box.focus()); // once the screen is there
  return { node, paint, close: () => clearTimeout(timer) };
}

/** @param {Wire.SearchHit} _ */
const keyOfHit = ({ session_id: id, message_id: row, where }) => `${id} ${row ?? ""} ${where}`;

// The words that were looked for, as far as they are written so.
/** @param {string} text @param {string[]} words */
function marked(text, words) {
  const any = words.map((word) => word.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")).join("|");
  const parts = text.split(new RegExp(`(${any})`, "iu"));
  return parts.map((part, at) => (at % 2 ? h("mark", {}, visible(part)) : visible(part)));
}

/**
 * Yield the hits in what is kept on this device: sessions, then what was said, newest first.
 *
 * @param {Pick<Model, "home" | "rowsBefore">} model
 * @param {string} query
 * @returns {AsyncGenerator<Wire.SearchHit>}
 */
async function* keptHits(model, query) {
  const words = wordsOf(query);
  const hasAll = (/** @type {string} */ text) => words.every((word) => folded(text).includes(word));
  const sessions = Object.values(model.home.sessions).sort((a, b) =>
    a.last_activity_at < b.last_activity_at ? 1 : -1,
  );
  for (const { session_id, title, working_directory: directory, last_activity_at: at } of sessions)
    if (hasAll(title)) yield { session_id, title, at, where: "title", excerpt: title };
    else if (hasAll(directory))
      yield { session_id, title, at, where: "directory", excerpt: directory };
  for (const { session_id, title } of sessions)
    for (let place = Infinity, rows = /** @type {Placed[]} */ ([]); ; place = rows[0].place) {
      rows = await model.rowsBefore(session_id, place, ROWS);
      const said = rows.map(({ row }) => row);
      const chat = foldChat(emptyChat(), said);
      for (const row of said.reverse()) {
        if (row.type !== "agent_event" && row.type !== "stream_end") continue;
        const item = chat.byKey.get(keyOf(chat, row) ?? "");
        const where = item?.kind;
        if ((where === "prompt" || where === "answer") && hasAll(item.text))
          yield {
            ...{ session_id, title, message_id: row.id, at: row.timestamp, where },
            excerpt: excerptOf(item.text, words),
          };
      }
      if (rows.length < ROWS) break;
    }
}

/** @param {string} text @param {string[]} words */
function excerptOf(text, words) {
  const from = Math.max(0, folded(text).indexOf(words[0]) - 40);
  const part = text.slice(from, from + 160).replace(/\s+/g, " ");
  return `${from ? "…" : ""}${part}${from + 160 < text.length ? "…" : ""}`;
}
