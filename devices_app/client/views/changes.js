// Changes: what differs in the session's repository, and committing chosen files.

import { fill, h, icon, toast } from "../parts/dom.js";
import { diffLines } from "../parts/diff.js";
import { oneLine, visible } from "../parts/text.js";

const STATUS = { modified: "M", added: "A", deleted: "D", untracked: "?", renamed: "R" };

/** The changes tab of a session. */
export function changesView(id, { model }) {
  const head = h("div.branch", {});
  const files = h("ul.rows.files");
  const state = h("p.empty", { role: "status" }, "Reading the repository…");
  const message = h("textarea", {
    rows: "2",
    "aria-label": "Commit message",
    placeholder: "Commit message",
  });
  const commit = h("button.primary", { type: "submit", disabled: true }, "Commit");
  const form = h(
    "form.commit",
    {
      hidden: true,
      on: {
        submit: (event) => {
          event.preventDefault();
          send();
        },
        input: () => check(),
      },
    },
    message,
    commit,
  );
  const refresh = h("button.quiet", { type: "button", on: { click: () => load() } }, "Refresh");
  const node = h(
    "section.tab",
    {},
    h("div.scroller", {}, h("div.branch-bar", {}, head, refresh), state, files),
    form,
  );
  const chosen = new Set();

  const load = async () => {
    refresh.disabled = true;
    try {
      show(await model.call("ask", "git_status_request", { session_id: id }));
    } catch (error) {
      fill(files);
      form.hidden = true;
      state.hidden = false;
      state.textContent = error.message;
    } finally {
      refresh.disabled = false;
    }
  };

  const show = (status) => {
    const apart = [
      status.ahead && `${status.ahead} ahead`,
      status.behind && `${status.behind} behind`,
    ]
      .filter(Boolean)
      .join(", ");
    fill(head, h("strong", {}, oneLine(status.branch)), apart && h("span.meta", {}, apart));
    for (const path of chosen)
      if (!status.changes.some((change) => change.path === path)) chosen.delete(path);
    fill(files, status.changes.map(change));
    state.hidden = !status.is_clean && status.changes.length > 0;
    state.textContent = "Nothing has changed.";
    if (status.truncated) files.append(h("li.note", {}, "There are more changes than are shown."));
    form.hidden = status.changes.length === 0;
    check();
  };

  const change = ({ path, status, additions, deletions }) => {
    const box = h("input", { type: "checkbox", "aria-label": `Commit ${oneLine(path)}` });
    box.checked = chosen.has(path);
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(path);
      else chosen.delete(path);
      check();
    });
    const place = h("div.file-diff");
    const details = h(
      "details",
      {},
      h(
        "summary",
        {},
        h(`span.status.${status}`, { title: status }, STATUS[status] ?? "·"),
        h("span.title", {}, visible(path)),
        h(
          "span.counts",
          {},
          h("span.plus", {}, `+${additions}`),
          " ",
          h("span.minus", {}, `−${deletions}`),
        ),
      ),
      place,
    );
    details.addEventListener(
      "toggle",
      () => details.open && !place.childElementCount && diff(path, place),
    );
    return h("li.file", {}, h("label.pick", {}, box), details);
  };

  const diff = async (path, place) => {
    fill(place, h("p.meta", {}, "Reading…"));
    try {
      const { files: found } = await model.call("ask", "git_diff", {
        session_id: id,
        files: [path],
        cached: false,
      });
      const staged = found.length
        ? found
        : (await model.call("ask", "git_diff", { session_id: id, files: [path], cached: true }))
            .files;
      fill(
        place,
        staged.length
          ? staged.map(oneFile)
          : h("p.meta", {}, "Nothing to compare: the file is new or its content is the same."),
      );
    } catch (error) {
      fill(place, h("p.warn", {}, error.message));
    }
  };

  const oneFile = (file) => {
    if (file.binary) return h("p.meta", {}, "A binary file.");
    if (file.truncated && !file.hunks.length) return h("p.meta", {}, "Too large to be shown here.");
    const wrap = h(
      "button.quiet",
      { type: "button", "aria-pressed": "true" },
      icon("wrap"),
      "Wrap",
    );
    const hunks = h(
      "div.hunks.wrap",
      {},
      file.hunks.map((hunk) => [h("p.hunk", {}, hunk.header), diffLines(hunk.lines)]),
    );
    wrap.addEventListener("click", () =>
      wrap.setAttribute("aria-pressed", String(hunks.classList.toggle("wrap"))),
    );
    return [
      wrap,
      hunks,
      file.truncated && h("p.meta", {}, "The rest is too large to be shown here."),
    ];
  };

  const check = () => {
    commit.disabled = chosen.size === 0 || !message.value.trim();
    commit.textContent = chosen.size
      ? `Commit ${chosen.size} ${chosen.size === 1 ? "file" : "files"}`
      : "Choose files";
  };

  const send = async () => {
    commit.disabled = true;
    try {
      const status = await model.call(
        "ask",
        "git_commit",
        { session_id: id, message: message.value, files: [...chosen] },
        { timeout: 60_000 },
      );
      message.value = "";
      chosen.clear();
      show(status);
      const { hash, files_changed: count } = status.commit;
      toast(`Committed ${count} ${count === 1 ? "file" : "files"} as ${hash.slice(0, 8)}.`);
    } catch (error) {
      toast(error.message, "warn");
      check();
    }
  };

  load();
  return { node, paint: () => {} };
}
