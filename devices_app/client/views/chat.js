// Show the conversation of one session.

import { button, guard, h, setText } from "../parts/dom.js";
import { WindowedList } from "../parts/window.js";
import { emptyChat, foldChat } from "../store/chat.js";
import { makeItem, updateItem } from "./chat_items.js";
import { composer } from "./composer.js";

const LOADED = 600; // rows of a session that are read when it is opened
const places = new Map(); // session → what was read there last, while this page lives

/**
 * Make the chat tab of a session.
 *
 * @param {string} id
 * @param {App} app
 */
export function chatView(id, app) {
  const { model, go } = app;
  /** @type {Placed[]} */
  let rows = [];
  let first = Infinity; // place of the first row that is loaded
  let whole = false; // nothing earlier is kept here
  let asked = false; // the bridge was asked for what is earlier
  let standing = "Reading…"; // how it is with what is earlier, in words
  let started = false;
  let chat = emptyChat();

  const newer = button("button.newer", () => list.follow());
  newer.hidden = true;
  const list = new WindowedList({
    make: (item) =>
      makeItem(item, { model, go, id, edit: (text, before) => bottom.edit(text, before) }),
    update: updateItem,
    earlier: () => loadEarlier(),
    unread: (count) => {
      newer.hidden = list.following && !count;
      setText(newer, count ? `${count} new` : "Newest");
    },
  });
  const bottom = composer(id, app, () => list.follow());
  const empty = h("p.empty", { role: "status" });
  list.node.prepend(empty);
  const node = h("section.chat", {}, list.node, newer, bottom.node);

  /** @param {Placed[]} found */
  const show = (found) => {
    const top = chat.items[0]?.key;
    rows = found;
    first = rows[0]?.place ?? Infinity;
    const said = rows.map(({ row }) => row);
    chat = foldChat(emptyChat(), said);
    // how many items are new above what a person may be reading
    const above = chat.items.findIndex(({ key }) => key === top);
    list.show(chat.items, Math.max(0, above));
    for (const card of cards()) guard(card); // it may have moved
  };

  const sayStanding = () => {
    empty.hidden = chat.items.length > 0;
    setText(empty, model.connection.phase === "ready" ? standing : "Waits for the connection.");
  };

  // What came while the storage was read, or could not be stored, stays at the end.
  /** @param {number} place @param {number} count */
  const read = async (place, count) => {
    const found = await model.rowsBefore(id, place, count);
    if (found.length < count) whole = true;
    const known = new Set(found.map(({ row }) => row.id));
    /** @param {Placed} one */
    const isLate = (one) => one.place === Infinity && !known.has(one.row.id);
    show([...found, ...(place === Infinity ? rows.filter(isLate) : rows)]);
    return found.length;
  };

  const loadEarlier = async () => {
    if (!whole && (await read(first, LOADED)) > 0) return;
    if (asked || model.connection.phase !== "ready") return;
    asked = true;
    try {
      await model.call("replay", id);
      standing = "Nothing has been said here yet.";
    } catch (/** @type {any} */ error) {
      asked = error.code !== undefined; // what was not answered is asked again
      standing = error.message;
    }
    sayStanding();
  };

  /** @param {Row[]} fresh */
  const live = (fresh) => {
    rows.push(...fresh.map((row) => ({ place: Infinity, row })));
    foldChat(chat, fresh);
    list.show(chat.items);
  };

  /** @returns {Element_[]} */
  const cards = () => /** @type {any} */ ([...list.node.querySelectorAll(".deciding, .decide")]);
  /** @param {Element} card */
  const topOf = (card) => card.getBoundingClientRect().top;
  /** @param {News[]} news */
  const paint = (news = []) => {
    const tops = new Map(cards().map((card) => [card, topOf(card)]));
    for (const card of cards()) card.paint?.(); // first: the list stays while one waits
    const mine = news.filter((one) => one.news === "rows" && one.session === id);
    const [between, fresh] = [true, false].map((earlier) =>
      mine.filter((one) => one.earlier === earlier).flatMap((one) => one.rows ?? []),
    );
    if (fresh.length) live(fresh);
    // Rows that belong between those that are here: what is shown is read again.
    if (between.length) read(Infinity, Math.max(rows.length + between.length, LOADED));
    sayStanding();
    for (const card of cards()) if (Math.abs(topOf(card) - (tops.get(card) ?? 0)) > 8) guard(card);
    if (started && whole && !asked) loadEarlier(); // for which there was no connection before
    bottom.paint();
  };

  read(Infinity, LOADED).then(() => {
    started = true;
    sayStanding(); // it may take room above what is read
    if (!list.goTo(places.get(id))) list.follow();
    paint();
  });
  paint();
  const close = () => {
    places.set(id, list.place());
    list.close();
  };
  return { node, paint, close };
}
