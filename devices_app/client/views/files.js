// Show a session's directory, and files page by page.

import { colouring, plain, SAY, wrapButton } from "../parts/diff.js";
import { button, copy, fill, h, icon, pager, row } from "../parts/dom.js";
import { bytes, counted, oneLine, visible, visibleName } from "../parts/text.js";

const LINES = 400;
const COLOURED = 5000; // lines of a file that is coloured
const ENTRIES_AT_ONCE = 200;

/**
 * Make the files tab of a session; `path`: from the address, or "" for the session's directory.
 *
 * @param {string} id
 * @param {App} _
 * @param {string} path
 */
export function filesView(id, { model, go, places }, path = "") {
  const place = h("div.scroller");
  const node = h("section.tab", {}, place);
  let wanted = true; // not read yet
  /** @type {Ask} */
  const ask = (type, payload) => model.call("ask", type, { session_id: id, ...payload });
  /** @param {string} sentence */
  const say = (sentence) => fill(place, h("p.empty", { role: "status" }, sentence));

  /** @param {string} at */
  const open = async (at) => {
    wanted = false;
    say("Reading…");
    try {
      await list(at).catch((error) => {
        if (!/^FILE_(NOT_FOUND|INVALID_PATH)$/.test(error.code)) throw error;
        return read(at);
      });
    } catch (/** @type {any} */ error) {
      wanted = error.code === undefined; // no answer: it is asked again with the connection
      if (wanted) return say("Waits for the connection.");
      fill(place, at !== "." && crumbs(at), h("p.empty", { role: "status" }, error.message));
    }
    return null;
  };

  /** @param {string} at */
  const list = async (at) => {
    const found = await ask("file_list", { path: at });
    const entries = [...found.entries].sort((a, b) =>
      a.type === b.type ? a.name.localeCompare(b.name) : a.type === "directory" ? -1 : 1,
    );
    const base = found.path.replace(/\/$/, "");
    const rows = h("ul.rows.files");
    const { more, show } = pager(ENTRIES_AT_ONCE, "entries", (to) => {
      const next = entries.slice(rows.childElementCount, to);
      rows.append(...next.map((entry) => item(entry, `${base}/${entry.name}`)));
      return entries.length;
    });
    show();
    fill(
      place,
      crumbs(found.path),
      rows,
      more,
      found.truncated &&
        h("p.note", {}, found.more ? `… and ${found.more} more` : "There are more than are shown."),
      entries.length === 0 && h("p.empty", {}, "An empty directory."),
    );
    const last = places.get(location.pathname) ?? 0;
    while (!more.hidden && place.scrollHeight < last + place.clientHeight) more.click();
    place.scrollTo(0, last);
  };

  /** @param {Wire.DirectoryEntry} _ @param {string} at */
  const item = (/** @type {any} */ { name, type, size }, at) =>
    row(go.link("file", id, at), {
      before: icon(type === "directory" ? "folder" : "file"),
      title: visibleName(name),
      after: h("span.meta", {}, size === undefined ? "" : bytes(size)),
    });

  // The way from the session's directory; of what lies elsewhere the whole path.
  /** @param {string} at */
  const crumbs = (at) => {
    const root = (model.home.sessions[id]?.working_directory ?? "").replace(/\/$/, "");
    if (!root || (at !== root && !at.startsWith(`${root}/`)))
      return h("p.path", {}, h("code", {}, visibleName(at)));
    const names = at.slice(root.length).split("/").filter(Boolean);
    const steps = [root.split("/").at(-1) ?? "", ...names].map((name, index, all) => {
      const to = [root, ...names.slice(0, index)].join("/");
      const last = index === all.length - 1;
      return [
        index > 0 && h("span", { "aria-hidden": "true" }, "/"),
        last
          ? h("span", { "aria-current": "page" }, visibleName(name))
          : h("a", go.link("file", id, to), visibleName(name)),
      ];
    });
    return h("nav.path", { "aria-label": "Path" }, steps);
  };

  /** @param {string} at */
  const read = async (at) => {
    const lines = h("ol.code.wrap", { tabindex: "0", "aria-label": oneLine(at) });
    const more = button("button.wide", () => next());
    const trouble = h("p.warn", { role: "alert" });
    let offset = 0;
    let text = "";
    /** @type {DiffText[]} */
    const shown = [];
    let whole = /** @type {Wire.Payloads["file_read_response"] | null} */ (null);
    let decoded = /** @type {string[]} */ ([]); // lines of a file that came whole
    const page = async () => {
      const found = whole ?? (await ask("file_read", { path: at, offset, limit: LINES }));
      if (found.text !== undefined && !whole) {
        whole = found;
        decoded = found.text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
      }
      if (found.encoding === "base64" && !whole) return found;
      const content = whole ? decoded.slice(offset, offset + LINES).join("") : found.content;
      text += content;
      const got = content.split(/\r?\n/);
      if (got.at(-1) === "") got.pop();
      shown.push(...got.map((content) => ({ type: /** @type {const} */ ("context"), content })));
      lines.append(...got.map((line) => h("li", {}, h("span", {}, visible(line)))));
      offset += LINES;
      if (found.lines <= COLOURED)
        colouring(({ colourLines }) => lines.about && colourLines(lines, lines.about));
      more.hidden = offset >= found.lines;
      fill(more, `Show more (${found.lines - offset} lines)`);
      return found;
    };
    const next = async () => {
      more.disabled = true;
      fill(trouble);
      try {
        await page();
      } catch (/** @type {any} */ error) {
        fill(trouble, error.message);
      }
      more.disabled = false;
    };
    const first = await page();
    const root = `${(model.home.sessions[id]?.working_directory ?? "").replace(/\/$/, "")}/`;
    const name = first.path.startsWith(root) ? first.path.slice(root.length) : first.path;
    lines.about = { path: name, file: true, start: { old: 1, new: 1 }, lines: shown };
    if (first.encoding === "base64" && !whole) {
      const sentence = `A binary file of ${bytes(first.size)}.`;
      fill(place, crumbs(first.path), h("p.empty", { role: "status" }, sentence));
      return;
    }
    const label = first.lines > LINES ? "Copy what is shown" : "Copy";
    const all = button("button.quiet", () => copy(text), icon("copy"), label);
    const about = [counted(first.lines, "line"), bytes(first.size), first.charset ?? ""];
    const size = h("span.meta", {}, about.filter(Boolean).join(", "));
    fill(
      place,
      crumbs(first.path),
      h("div.actions.reading", {}, wrapButton(lines), all, size, h("span.meta.say", {}, SAY)),
      first.lines ? lines : h("p.empty", {}, "An empty file."),
      trouble,
      more,
    );
  };

  let paintWords = plain;
  import("./words.js").then(async ({ wordsOfSession }) => {
    paintWords = await wordsOfSession(place, id, model);
  }, plain);
  const paint = () => {
    paintWords(); // the session may not have been known before
    if (wanted && model.connection.phase === "ready") open(path || ".");
  };
  paint();
  if (wanted) say("Waits for the connection.");
  // what is shown by its path stays where it is
  return { node, paint, moved: () => path || open(".") };
}
