// Show the changes in a session's repository, and commit chosen files.

import { diffLines, plain, SAY, wrapButton } from "../parts/diff.js";
import { button, fill, form, h, keyed, pager, setText, showFailure } from "../parts/dom.js";
import { counted, dotted, oneLine, visible, visibleName } from "../parts/text.js";
import { keepDraft, keepTyped } from "./drafts.js";
import { openPush } from "./push.js";
import { askTrust } from "./trust.js";

const STATUS = { modified: "M", added: "A", deleted: "D", untracked: "N", renamed: "R" };
/** @type {Record<string, string>} */
const STATES = {
  merge: "A merge is not finished",
  rebase: "A rebase is not finished",
  am: "Patches are being applied (git am)",
  "cherry-pick": "A cherry-pick is not finished",
  revert: "A revert is not finished",
  bisect: "A bisect is going on",
};
const FILES_AT_ONCE = 200;
const drafts = new Map(); // session → its message and the chosen files, while this page lives
/** @param {Free} _ */
const isEnd = ({ type, payload }) => type === "stream_end" || payload.event === "Stop";

/**
 * Make the changes tab of a session.
 *
 * @param {string} id
 * @param {App} _
 */
export function changesView(id, { model }) {
  const head = h("div.branch", {});
  const refresh = button("button.quiet", () => load(), "Refresh");
  const all = button("button.quiet", () => chooseAll());
  const push = button("button.quiet", () => openPush(ask, seen, outcome, load), "Push…");
  const top = h("p.note", { hidden: true });
  const state = h("p.empty", { role: "status" }, "Reading the repository…");
  const files = h("ul.rows.files");
  const cut = h("p.note", { hidden: true }, "There are more changes than are shown.");
  const outcome = h("div.outcome", { role: "status" });
  const label = "Commit message";
  const area = h("textarea", { rows: "2", "aria-label": label, placeholder: label });
  const { message, chosen } = drafts.get(id) ?? { message: area, chosen: new Set() };
  const commit = h("button.primary", { type: "submit", disabled: true }, "Commit");
  const bottom = form("commit", () => send(""), message, commit);
  bottom.addEventListener("input", () => check());
  const bar = h("div.branch-bar", {}, head, push, all, refresh);
  const scroller = h("div.scroller", {}, bar, top, outcome, state, files);
  const node = h("section.tab", {}, scroller, bottom);
  if (!drafts.has(id)) keepTyped(message, model, `commit:${id}`).then(() => check());
  drafts.set(id, { message, chosen });
  /** @type {Wire.GitChange[]} */
  let changes = [];
  /** @type {Partial<Wire.Payloads["git_status_response"]>} */
  let seen = {}; // the status that is shown: a commit of anything else is refused
  let wanted = true; // it was not read yet, or the connection was lost meanwhile
  let busy = false;

  /** @type {Ask} */
  const ask = (type, payload) => model.call("ask", type, { session_id: id, ...payload });

  const load = async () => {
    if (busy) return;
    busy = refresh.disabled = true;
    wanted = false;
    try {
      show(await ask("git_status_request", {}));
    } catch (/** @type {any} */ error) {
      wanted = error.code === undefined; // no answer: it is asked again with the connection
      if (changes.length && wanted) return;
      changes = [];
      showFiles();
      bottom.hidden = all.hidden = push.hidden = top.hidden = true;
      state.hidden = false;
      setText(state, wanted ? "Waits for the connection." : error.message);
    } finally {
      busy = refresh.disabled = false;
    }
  };

  /** @param {Wire.Payloads["git_status_response"]} status */
  const show = (status) => {
    const { ahead, behind } = status;
    const distance = dotted(ahead > 0 && `${ahead} ahead`, behind > 0 && `${behind} behind`);
    changes = status.changes;
    seen = status;
    const { upstream } = status;
    const gone =
      upstream?.gone && `${oneLine(upstream.remote)}/${oneLine(upstream.branch)} is not there`;
    const about = dotted(distance, gone, STATES[status.state ?? ""]);
    fill(head, h("strong", {}, oneLine(status.branch)), about && h("span.meta", {}, about));
    top.hidden = status.repository === model.home.sessions[id]?.working_directory;
    fill(top, "The repository is ", h("code", {}, visible(status.repository)));
    push.hidden = !status.head || Boolean(status.state || (upstream && !(gone || ahead > 0)));
    const paths = new Set(changes.map(({ path }) => path));
    for (const path of chosen) if (!paths.has(path)) chosen.delete(path);
    // What is the same keeps its place and its open difference.
    showFiles();
    state.hidden = changes.length > 0;
    setText(state, "Nothing has changed.");
    cut.hidden = !status.truncated;
    all.hidden = changes.length === 0;
    check();
  };

  const { more, show: showFiles } = pager(FILES_AT_ONCE, "files", (to) => {
    keyed(files, changes.slice(0, to), { key: (one) => JSON.stringify(one), make: row });
    return changes.length;
  });

  /** @param {Wire.GitChange} _ */
  const row = ({ path, status, additions, deletions, ...more }) => {
    const box = h("input", { type: "checkbox", "aria-label": `Commit ${oneLine(path)}` });
    box.checked = chosen.has(path);
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(path);
      else chosen.delete(path);
      check();
    });
    const place = h("div.file-diff");
    const name = status === "untracked" ? "new" : status;
    const letter = h("span", { "aria-hidden": "true" }, STATUS[status] ?? "·");
    const spoken = h("span.unseen", {}, `${name}: `);
    const signs = [h("span.plus", {}, `+${additions}`), " ", h("span.minus", {}, `−${deletions}`)];
    const counts = h("span.counts", { hidden: additions + deletions === 0 }, signs);
    const mark = more.conflicted ? "in conflict" : more.filtered ? "unchanged? (git filter)" : "";
    const kind = h(`span.status.${status}`, { title: name }, letter, spoken);
    const details = h(
      "details",
      {},
      h("summary", {}, kind, pathOf(path), mark && h("span.meta", {}, mark), counts),
      place,
    );
    details.addEventListener("toggle", () => {
      if (details.open && !place.childElementCount) diff(path, place);
    });
    return h("li.file", {}, h("label.pick", {}, box), details);
  };

  // What is staged and what is not are two differences of one file.
  /** @param {string} path @param {Element_} place */
  const diff = async (path, place) => {
    fill(place, h("p.meta", {}, "Reading…"));
    try {
      const loose = (await ask("git_diff", { files: [path], cached: false })).files;
      const staged = (await ask("git_diff", { files: [path], cached: true })).files;
      const both = loose.length > 0 && staged.length > 0;
      const several = loose.length + staged.length > 1;
      fill(
        place,
        both && h("h3.part", {}, "Staged"),
        staged.map((file) => oneFile(file, several && !both)),
        both && h("h3.part", {}, "Not staged"),
        loose.map((file) => oneFile(file, several && !both)),
        !several && !loose.length && !staged.length && h("p.meta", {}, "The diff is empty."),
      );
    } catch (/** @type {any} */ error) {
      const again = button("button", () => diff(path, place), "Try again");
      fill(place, h("p.warn", { role: "alert" }, error.message), again);
    }
  };

  /** @param {string} trust */
  const send = async (trust) => {
    commit.disabled = true;
    setText(commit, "Committing…");
    fill(outcome);
    try {
      const status = await ask("git_commit", {
        message: message.value,
        files: [...chosen],
        repository: seen.repository,
        head: seen.head ?? "",
        ...(trust && { trust }),
      });
      message.value = "";
      keepDraft(model, `commit:${id}`, "");
      chosen.clear();
      fill(files); // their boxes are empty again
      files.nodesByKey?.clear();
      show(status);
      const {
        hash,
        summary,
        files_changed: count,
        also = [],
        note,
      } = /** @type {Wire.GitCommitSummary} */ (status.commit);
      const what = `Committed ${counted(count, "file")} as `;
      const short = h("code", {}, hash.slice(0, 8));
      const more = also?.length ? `Went in too: ${also.map(oneLine).join(", ")}` : "";
      fill(
        outcome,
        h("p.finding.good", {}, what, short, `: ${oneLine(summary)}`),
        more && h("p.note", {}, more),
        note && h("p.note", {}, visible(note)),
      );
    } catch (/** @type {any} */ error) {
      if (error.code === "GIT_TRUST_REQUIRED") {
        askTrust(error, "commit", send);
        check();
        return;
      }
      showFailure(outcome, "Not committed.", error, "the changes");
      check();
    }
  };

  const chooseAll = () => {
    const known = changes.filter(({ filtered }) => !filtered);
    const every = chosen.size < known.length;
    chosen.clear();
    if (every) for (const { path } of known) chosen.add(path);
    fill(files); // their boxes are made anew
    files.nodesByKey?.clear();
    showFiles();
    check();
  };

  const check = () => {
    bottom.hidden = chosen.size === 0 && !message.value.trim();
    commit.disabled = chosen.size === 0 || !message.value.trim();
    setText(commit, chosen.size ? `Commit ${counted(chosen.size, "file")}` : "Choose files");
    const known = changes.filter(({ filtered }) => !filtered);
    const every = chosen.size && chosen.size >= known.length;
    setText(all, every ? "Choose none" : "Choose all");
  };

  let paintWords = plain;
  /** @param {News[]} news */
  const paint = (news = []) => {
    paintWords(); // the session may not have been known before
    const rows = news.flatMap((one) => (one.session === id && one.rows) || []);
    if (rows.some(isEnd)) wanted = true; // the agent may have changed files
    if (wanted && model.connection.phase === "ready") load();
  };
  all.hidden = bottom.hidden = more.hidden = push.hidden = true;
  scroller.append(more, cut);
  import("./words.js").then(async ({ wordsOfSession }) => {
    paintWords = await wordsOfSession(scroller, id, model);
  }, plain);
  paint();
  if (wanted) setText(state, "Waits for the connection.");
  const moved = () => {
    chosen.clear(); // these were files of another directory
    wanted = true;
    paint();
  };
  return { node, paint, moved };
}

// The name first, for it is what a person looks for; then where it lies.
/** @param {string} path */
function pathOf(path) {
  const at = path.replace(/\/$/, "").lastIndexOf("/") + 1;
  const directory = at > 0 && h("span.meta", {}, " ", visibleName(path.slice(0, at)));
  return h("span.title", {}, visibleName(path.slice(at)), directory);
}

/** @param {Wire.DiffFile} file @param {boolean} named */
function oneFile(file, named) {
  const name =
    file.status === "renamed"
      ? h("p.meta", {}, "Renamed from ", visibleName(file.old_path))
      : named && h("p.meta", {}, visibleName(file.path));
  const mode =
    file.old_mode && file.new_mode && file.old_mode !== file.new_mode
      ? h("p.meta", {}, `Mode ${file.old_mode} → ${file.new_mode}`)
      : null;
  if (file.binary) return [name, mode, h("p.meta", {}, "A binary file.")];
  if (!file.hunks.length) {
    const same = mode || file.status === "renamed" ? "Its content is the same." : "An empty file.";
    const other = file.status === "modified" && !mode ? "In conflict, or a submodule." : same;
    return [name, mode, h("p.meta", {}, file.truncated ? "Too large to be shown here." : other)];
  }
  const crlf = file.hunks.every(({ lines }) => lines.every((one) => one.content.endsWith("\r")));
  /** @param {Wire.DiffLine} line */
  const plain = (line) => (crlf ? { ...line, content: line.content.slice(0, -1) } : line);
  /** @param {Wire.DiffHunk} _ */
  const shown = ({ header, lines, old_start, new_start }) => [
    h("p.hunk", {}, visible(header)),
    diffLines(lines.map(plain), { path: file.path, start: { old: old_start, new: new_start } }),
  ];
  const hunks = h("div.hunks.wrap", {}, ...file.hunks.map(shown));
  return [
    name,
    mode,
    file.charset && h("p.meta", {}, `Decoded from ${file.charset}`),
    h("div.actions.reading", {}, wrapButton(hunks), h("span.meta.say", {}, SAY)),
    hunks,
    file.truncated && h("p.meta", {}, "The rest is too large to be shown here."),
  ];
}
