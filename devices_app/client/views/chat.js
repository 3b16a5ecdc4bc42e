// The conversation of one session.

import { h, onFrame, setText } from "../parts/dom.js";
import { WindowedList } from "../parts/window.js";
import { emptyChat, foldChat } from "../store/chat.js";
import { makeItem, updateItem } from "./chat_items.js";
import { composer, paintOutgoing } from "./composer.js";

const LOADED = 600; // rows of a session that are read when it is opened
const DAY_MS = 24 * 60 * 60 * 1000;

/** The chat tab of a session. */
export function chatView(id, { model, go }) {
  let rows = [];
  let first = Infinity; // place of the first row that is loaded
  let whole = false; // nothing earlier is kept here
  let asked = false; // the bridge was asked for what is earlier
  let reading = 0; // how often the storage is being read
  let meanwhile = []; // what came live since
  let started = false;
  let chat = emptyChat();

  const newer = h("button.newer", {
    type: "button",
    hidden: true,
    on: { click: () => list.follow() },
  });
  const list = new WindowedList({
    make: (item) => makeItem(item, { model, go, id }),
    update: updateItem,
    earlier: () => loadEarlier(),
    unread: (count) => {
      newer.hidden = count === 0;
      setText(newer, `${count} new`);
    },
  });
  const waiting = h("ul.outgoing");
  const bottom = composer(id, { model });
  const node = h("section.chat", {}, list.node, newer, waiting, bottom.node);

  const show = (found) => {
    const top = chat.items[0]?.key;
    rows = found;
    first = rows[0]?.place ?? Infinity;
    chat = foldChat(
      emptyChat(),
      rows.map(({ row }) => row),
    );
    // how many items are new above what a person may be reading
    list.show(
      chat.items,
      Math.max(
        0,
        chat.items.findIndex(({ key }) => key === top),
      ),
    );
  };

  // Rows that come while the storage is read are added to what it gives.
  const read = async (place, count) => {
    reading += 1;
    const found = await model.rowsBefore(id, place, count);
    reading -= 1;
    if (found.length < count) whole = true;
    const rest = place === Infinity ? meanwhile : rows;
    if (reading === 0) meanwhile = [];
    show([...found, ...rest]);
    return found.length;
  };

  const loadEarlier = async () => {
    if (!whole && (await read(first, LOADED)) > 0) return;
    if (asked || model.connection.phase !== "ready") return;
    asked = true;
    try {
      await model.call("replay", id, new Date(Date.now() - DAY_MS).toISOString());
    } catch (error) {
      asked = error.code !== undefined; // what was not answered is asked again
    }
  };

  const live = (fresh) => {
    const placed = fresh.map((row) => ({ place: Infinity, row }));
    rows.push(...placed);
    if (reading) meanwhile.push(...placed);
    foldChat(chat, fresh);
    repaint();
  };

  const repaint = onFrame(() => list.show(chat.items));

  const paint = (news) => {
    if (news?.news === "rows" && news.session === id) {
      // Rows that belong between those that are here: what is shown is read again.
      if (news.earlier) read(Infinity, Math.max(rows.length + news.rows.length, LOADED));
      else live(news.rows);
    }
    if (started && whole && !asked) loadEarlier(); // for which there was no connection before
    paintOutgoing(waiting, id, model);
    bottom.paint();
  };

  read(Infinity, LOADED).then(() => {
    started = true;
    list.follow();
    paint();
  });
  paint();
  return {
    node,
    paint,
    close: () => {
      list.close();
      repaint.cancel();
      bottom.close();
    },
  };
}
