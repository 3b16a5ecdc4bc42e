// Show the conversation of one session.

import { button, fill, guard, h, setText, toast } from "../parts/dom.js";
import { WindowedList } from "../parts/window.js";
import { emptyChat, foldChat, keyOf } from "../store/chat.js";
import { makeItem, updateItem } from "./chat_items.js";
import { composer } from "./composer.js";

const LOADED = 600; // rows of a session that are read when it is opened
const FOUND_AT = 80; // pixels from the top of the screen at which what was looked for is shown
const places = new Map(); // session → what was read there last, while this page lives

/**
 * Make the chat tab of a session; `target` is a row to go to.
 *
 * @param {string} id
 * @param {App} app
 */
export function chatView(id, app, target = "") {
  const { model, go } = app;
  /** @type {Placed[]} */
  let rows = [];
  let first = Infinity; // place of the first row that is loaded
  let whole = false; // nothing earlier is kept here
  let ended = false; // nor at the bridge
  /** @type {Promise<boolean> | null} */
  let asking = null; // the bridge is asked for what is earlier
  let looking = target !== ""; // for a row; nothing else moves the list
  let trouble = "";
  let started = false;
  let closed = false;
  let chat = emptyChat();

  const newer = button("button.newer", () => list.follow());
  newer.hidden = true;
  const list = new WindowedList({
    make: (item) =>
      makeItem(item, {
        model,
        go,
        id,
        between: async (row) => {
          const next = rows.find((one) => one.row.id === row)?.row;
          if (next) await load(next);
        },
        edit: (text, before) => bottom.edit(text, before),
      }),
    update: updateItem,
    earlier: () => loadEarlier(),
    unread: (count) => {
      newer.hidden = list.following && !count;
      setText(newer, count ? `${count} new` : "Newest");
    },
  });
  const bottom = composer(id, app, () => list.follow());
  const words = h("p", { role: "status" });
  const more = button("button.quiet", () => again());
  fill(list.head, h("span.spinner", { "aria-hidden": "true" }), words, more);
  const node = h("section.chat", {}, list.node, newer, bottom.node);

  const isReady = () => model.connection.phase === "ready";
  // Of rows that begin with the sign that there are older ones it is no item: the head says so.
  const isSigned = () => whole && rows[0]?.row.type === "gap" && "older" in rows[0].row.payload;

  /** @param {Placed[]} found */
  const show = (found) => {
    const read = list.readKey;
    const at = chat.items.findIndex(({ key }) => key === read);
    rows = found;
    first = rows[0]?.place ?? Infinity;
    const said = rows.slice(isSigned() ? 1 : 0).map(({ row }) => row);
    chat = foldChat(emptyChat(), said);
    // how many items are new above what a person is reading
    const above = chat.items.findIndex(({ key }) => key === read) - at;
    list.show(chat.items, Math.max(0, above), false);
    for (const card of cards()) guard(card); // it may have moved
  };

  const isGone = () => whole && rows[0]?.row.type === "gap" && !isSigned(); // an item says so
  const sayStanding = () => {
    const isOver = whole && ended;
    const beginning = chat.items.length ? "The beginning" : "Nothing has been said here yet.";
    list.head.dataset.state = asking || !started ? "loading" : isOver ? "over" : "";
    const wait = "Older messages, if there are any, wait for the connection.";
    const state = trouble || (whole && !isOver && !isReady() ? wait : "");
    if (!started) setText(words, "Reading…");
    else if (asking) setText(words, looking ? "Looking for it…" : "Loading older messages…");
    else if (isGone()) setText(words, "");
    else setText(words, isOver ? beginning : state);
    more.hidden = !started || asking !== null || isOver || isGone() || (whole && !isReady());
    setText(more, trouble ? "Try again" : "Load older messages");
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

  /**
   * Ask the bridge for the page before a row; tells whether anything came.
   *
   * @param {Row} [anchor]
   */
  const load = (anchor) => {
    asking ??= ask(anchor).finally(() => {
      asking = null;
      sayStanding();
    });
    trouble = "";
    sayStanding();
    return asking;
  };

  /** @param {Row} [anchor] */
  const ask = async (anchor) => {
    const known = new Set(rows.map(({ row }) => row.id)); // some stand there twice
    const isNew = () => rows.some(({ row }) => row.type !== "gap" && !known.has(row.id));
    const isFirst = !anchor || anchor.id === (rows[isSigned() ? 1 : 0]?.row.id ?? "");
    try {
      const isMore = await model.call("older", id, anchor);
      if (isFirst) ended = !isMore;
      await read(Infinity, rows.length + 2 * LOADED);
      if (isMore && isFirst && !isNew()) trouble = "This device could not keep them.";
    } catch (/** @type {any} */ error) {
      if (isFirst) trouble = error.message;
      else toast(error.message, "warn");
    }
    return isNew();
  };

  // Tells whether anything came.
  const loadEarlier = async () => {
    if (!whole && (await read(first, LOADED)) > 0) return true;
    sayStanding();
    if (asking) return asking;
    if (isGone() || ended || trouble || !isReady()) return false;
    return load(rows[isSigned() ? 1 : 0]?.row);
  };
  const again = () => {
    trouble = "";
    return list.up();
  };

  // Go to the row that was looked for, loading what is older until it is there.
  const find = async () => {
    const isHere = () => rows.find(({ row }) => row.id === target);
    while (!closed && !isHere()) {
      // what is missing between comes first
      const sign = rows.findLastIndex(({ row }) => "older" in row.payload && row.type === "gap");
      const next = sign > 0 || (sign === 0 && !whole) ? rows[sign + 1]?.row : undefined;
      if (!(next && isReady() ? await load(next) : await loadEarlier())) break;
    }
    looking = false;
    const found = isHere();
    const key = found && keyOf(chat, found.row);
    if (key && list.goTo({ key, offset: FOUND_AT })) {
      const item = /** @type {Element_} */ (list.nodes.get(key).node);
      item.classList.add("found");
      item.tabIndex = -1;
      item.focus({ preventScroll: true });
    } else if (!closed) {
      list.follow();
      const why = isReady() ? "is not kept any more" : "waits for the connection: it is not here";
      toast(`The message that was found ${why}.`, "warn");
    }
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
    if (between.length && !asking) read(Infinity, Math.max(rows.length + between.length, LOADED));
    if (!isReady()) trouble = ""; // it is tried again
    sayStanding();
    for (const card of cards()) if (Math.abs(topOf(card) - (tops.get(card) ?? 0)) > 8) guard(card);
    if (started && !looking && list.atTop) list.up(); // for which there was no connection before
    bottom.paint();
  };

  read(Infinity, LOADED).then(async () => {
    started = true;
    sayStanding(); // it may take room above what is read
    if (!looking && !list.goTo(places.get(id))) list.follow();
    if (looking) await find();
    paint();
  });
  paint();
  const close = () => {
    closed = true;
    places.set(id, list.place());
    list.close();
  };
  return { node, paint, close };
}
