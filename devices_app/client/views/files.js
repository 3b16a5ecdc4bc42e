// Files: the session's directory, and a viewer that reads a file by pages.

import { copy, fill, h, icon } from "../parts/dom.js";
import { bytes, oneLine, visible } from "../parts/text.js";

const LINES = 400;

/** The files tab of a session; `path` is what the address names, or "" for the session's directory. */
export function filesView(id, { model, go }, path = "") {
  const place = h("div.scroller");
  const node = h("section.tab", {}, place);
  open(path || ".");
  return { node, paint: () => {} };

  async function open(at) {
    fill(place, h("p.empty", { role: "status" }, "Reading…"));
    try {
      await list(at);
    } catch (error) {
      if (["FILE_NOT_FOUND", "FILE_INVALID_PATH"].includes(error.code))
        await read(at).catch(failed);
      else failed(error);
    }
  }

  function failed(error) {
    fill(place, h("p.empty", { role: "status" }, error.message));
  }

  async function list(at) {
    const found = await model.call("ask", "file_list", { session_id: id, path: at });
    const entries = [...found.entries].sort((a, b) =>
      a.type === b.type ? a.name.localeCompare(b.name) : a.type === "directory" ? -1 : 1,
    );
    const base = found.path.replace(/\/$/, "");
    const root = model.home.sessions[id]?.working_directory ?? "";
    fill(
      place,
      crumbs(found.path),
      h(
        "ul.rows.files",
        {},
        base !== root &&
          at !== "." &&
          item({ name: "..", type: "directory" }, base.split("/").slice(0, -1).join("/") || "/"),
        entries.map((entry) => item(entry, `${base}/${entry.name}`)),
      ),
      found.truncated && h("p.note", {}, "There are more entries than are shown."),
      entries.length === 0 && h("p.empty", {}, "Empty."),
    );
  }

  function item(/** @type {any} */ { name, type, size }, at) {
    return h(
      "li.row",
      {},
      h(
        "a.row-link",
        { href: go.to("file", id, at), on: { click: go.follow } },
        icon(type === "directory" ? "folder" : "file"),
        h("span.row-main", {}, h("span.title", {}, visible(name))),
        h("span.meta", {}, size === undefined ? "" : bytes(size)),
      ),
    );
  }

  function crumbs(at) {
    return h("p.path", {}, h("code", {}, visible(at)));
  }

  async function read(at) {
    const lines = h("ol.code.wrap", { tabindex: "0", "aria-label": oneLine(at) });
    const wrap = h(
      "button.quiet",
      {
        type: "button",
        "aria-pressed": "true",
        on: {
          click: () => wrap.setAttribute("aria-pressed", String(lines.classList.toggle("wrap"))),
        },
      },
      icon("wrap"),
      "Wrap",
    );
    const more = h("button.quiet", { type: "button", on: { click: () => page() } }, "Show more");
    let offset = 0;
    let text = "";
    const page = async () => {
      more.disabled = true;
      const found = await model.call("ask", "file_read", {
        session_id: id,
        path: at,
        offset,
        limit: LINES,
      });
      if (found.encoding === "base64") {
        fill(place, crumbs(at), h("p.empty", {}, `A binary file of ${bytes(found.size)}.`));
        return found;
      }
      text += found.content;
      const got = found.content.split("\n");
      if (got.at(-1) === "") got.pop();
      lines.append(...got.map((line) => h("li", {}, visible(line))));
      offset += LINES;
      more.hidden = offset >= found.lines;
      more.disabled = false;
      return found;
    };
    const first = await page();
    if (first.encoding === "base64") return;
    fill(
      place,
      crumbs(first.path),
      h(
        "div.actions",
        {},
        wrap,
        h(
          "button.quiet",
          { type: "button", on: { click: () => copy(text) } },
          icon("copy"),
          "Copy",
        ),
        h("span.meta", {}, `${first.lines} lines, ${bytes(first.size)}`),
      ),
      lines,
      more,
    );
  }
}
