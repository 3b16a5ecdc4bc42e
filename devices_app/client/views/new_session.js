// Start a session: agent, directory, first prompt.

import {
  backLink,
  button,
  field,
  fill,
  form,
  h,
  icon,
  screen,
  setText,
  toast,
} from "../parts/dom.js";
import { oneLine, shortPath, visible } from "../parts/text.js";
import { clipFor, wordsOf } from "./clip.js";
import { keepDraft, keepTyped } from "./drafts.js";
import { askTrust } from "./trust.js";

const DRAFT = "new"; // its first message

/**
 * Make the screen that starts a session.
 *
 * @param {App} app
 */
export function newSessionView(app) {
  const { model, go } = app;
  const select = h("select", { id: "agent" });
  const others = h("details.browse", { hidden: true });
  const recent = [
    ...new Set(
      Object.values(model.home.sessions)
        .filter(({ kind }) => kind === "bridge") // an agent may start there
        .sort((a, b) => b.last_activity_at.localeCompare(a.last_activity_at))
        .map(({ working_directory: path }) => path)
        .filter(Boolean),
    ),
  ].slice(0, 5);
  const about = { id: "directory", type: "text", list: "recent", required: true };
  const directory = field("input", about);
  directory.value = recent[0] ?? "";
  const tree = h("div.tree");
  const past = h("div");
  const options = h("div.form");
  /** @type {Record<string, string>} */
  let choices = {};
  /** @type {AgentEntry[]} */
  let known = [];
  const placeholder = "What should the agent do?";
  const worktree = field("input", { id: "worktree", type: "text" });
  const prompt = h("textarea", { id: "prompt", rows: "4", placeholder });
  const clip = clipFor(prompt, () => paint());
  const start = h("button.primary.wide", { type: "submit" }, "Start");
  const said = h("p.status", { role: "status" });
  const content = form(
    "form",
    () => begin(""),
    h("label", { for: "agent" }, "Agent"),
    select,
    others,
    options,
    h("label", { for: "directory" }, "Directory at the machine"),
    directory,
    h("datalist", { id: "recent" }, ...recent.map((path) => h("option", { value: path }))),
    recent.length > 1 &&
      h(
        "div.chips",
        {},
        recent.map((path) => button("button.chip", () => choose(path), oneLine(shortPath(path)))),
      ),
    h(
      "details.browse",
      { on: { toggle: (/** @type {any} */ event) => event.target.open && browse("") } },
      h("summary", {}, "Browse"),
      tree,
    ),
    h(
      "details.browse",
      {},
      h("summary", {}, "More"),
      h("label", { for: "worktree" }, "In a new work tree, of the branch"),
      worktree,
      h("p.hint", {}, "The agent works on a branch of its own, beside what you have open there."),
    ),
    h(
      "details.browse",
      { on: { toggle: (/** @type {any} */ event) => event.target.open && showPast() } },
      h("summary", {}, "Past sessions"),
      past,
    ),
    h("label", { for: "prompt" }, "First message"),
    prompt,
    clip.place,
    h("div.actions", {}, clip.parts),
    start,
    said,
  );
  const before = backLink(go, "home", "Back to the sessions");
  const node = screen("New session", { before }, h("div.scroller", {}, content));

  let starting = false;
  let listing = false;
  let top = null; // the first directory that is shown: above it nothing may be opened
  /** @param {string} path */
  const choose = (path) => (directory.value = path);

  // Of the directory above; those that the agent keeps at the machine, whoever ran them.
  const showPast = async () => {
    const { pastView } = await import("./past.js");
    const chosen = () => ({
      agent: select.value,
      directory: directory.value.trim(),
      history: known.find(({ name }) => name === select.value)?.history,
    });
    const { node: content, look } = pastView({ model, go }, chosen);
    fill(past, content);
    select.onchange = directory.onchange = look;
    look();
  };

  /** @param {string} path @param {Child} name */
  const step = (path, name) =>
    h(
      "li",
      {},
      button("button.row-link", () => browse(path), icon("folder"), h("span", {}, name)),
    );

  /** @param {string} path */
  const browse = async (path) => {
    fill(tree, h("p.meta", {}, "Reading…"));
    try {
      const at = encodeURIComponent(path || ".");
      /** @type {Wire.FileTree} */
      const found = await model.call("http", `/files/tree?depth=1&path=${at}`);
      const base = found.path.replace(/\/$/, "");
      top ??= found.path;
      if (path || !directory.value) choose(found.path);
      fill(
        tree,
        h(
          "ul.rows.files",
          {},
          found.path !== top && step(base.split("/").slice(0, -1).join("/") || "/", ".."),
          found.entries
            .filter(({ type }) => type === "directory")
            .map(({ name }) => step(`${base}/${name}`, visible(name))),
        ),
      );
    } catch (/** @type {any} */ error) {
      fill(tree, h("p.meta", {}, error.message));
    }
  };

  /** @param {string} trust */
  const begin = async (trust) => {
    starting = start.disabled = true;
    setText(said, "Starting the agent…");
    try {
      const id = crypto.randomUUID();
      const [where, text] = [directory, prompt].map(({ value }) => value.trim());
      const { files } = clip;
      const draft = prompt.value;
      const words = wordsOf(text, files);
      const branch = worktree.value.trim();
      const more = { ...(branch && { worktree: branch }), ...(trust && { trust }) };
      const chosen = Object.entries(choices);
      // what is chosen comes before the first message, which is a draft until then
      if (chosen.length) await model.keepDraft(id, text);
      const first = chosen.length ? "" : words;
      await model.call("startSession", id, select.value, where, first, more, first ? files : []);
      if ((await model.draft(DRAFT)) === draft) keepDraft(model, DRAFT, "");
      for (const [option_id, value] of chosen) {
        const payload = { session_id: id, option_id, value };
        const failed = await model.call("ask", "session_set", payload).catch((error) => error);
        if (!(failed instanceof Error)) continue;
        toast(`Not sent yet, for not all was set: ${failed.message}`, "warn");
        const given = files.map(({ blob, name }) => new File(blob ? [blob] : [], name));
        app.shared = { text: "", files: given };
        return go.open("session", id);
      }
      if (chosen.length && words) await model.call("say", id, words, {}, files);
      if (chosen.length) await model.keepDraft(id, "");
      if (node.isConnected) go.open("session", id);
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
      if (error.code === "GIT_TRUST_REQUIRED") askTrust(error, "start", begin);
      said.scrollIntoView({ block: "nearest" });
      starting = start.disabled = false;
    }
  };

  // As far as they are known: from the newest session of this agent.
  const showOptions = async () => {
    const newest = Object.values(model.home.sessions)
      .filter(({ agent, options: known }) => agent === select.value && known?.length)
      .sort((a, b) => b.last_activity_at.localeCompare(a.last_activity_at))[0];
    // a new session begins with what the agent has by itself
    const fresh = (newest?.options ?? [])
      .filter(({ kind }) => kind !== "other")
      .map((one) => ({ ...one, value: "" }));
    const text = `${select.value} ${JSON.stringify(fresh)}`;
    if (options.dataset.shown === text) return;
    options.dataset.shown = text;
    choices = {};
    fill(options);
    if (!fresh.length) return;
    const { optionFields } = await import("./offers.js");
    if (options.dataset.shown !== text) return;
    const choose = (/** @type {Wire.SessionOption} */ { id }, /** @type {string} */ value) => {
      choices = { ...choices, [id]: value };
    };
    fill(options, optionFields(fresh, choose));
  };
  select.addEventListener("change", showOptions);

  /** Those that start come first; of the others, and of what was wrong, a fold says why.
   *  @param {AgentEntry[]} agents */
  const showAgents = (agents) => {
    known = agents;
    const chosen = select.value;
    const able = agents.filter(({ can_start: can }) => can);
    able.sort((a, b) => Number(!!a.reason) - Number(!!b.reason));
    fill(
      select,
      ...able.map(({ name, version }) => {
        const text = version ? `${oneLine(name)} ${oneLine(version)}` : oneLine(name);
        return h("option", { value: name, selected: name === chosen }, text);
      }),
    );
    showOptions();
    const rest = agents.filter(({ reason }) => reason);
    others.hidden = !rest.length;
    fill(
      others,
      h("summary", {}, `Other agents (${rest.length})`),
      h(
        "ul.hint",
        {},
        rest.map(({ name, reason }) =>
          h("li", {}, h("b", {}, oneLine(name)), ` ${oneLine(reason)}`),
        ),
      ),
    );
  };

  const listAgents = async () => {
    listing = true;
    const able = model.connection.acked?.supported_agents ?? [];
    showAgents(able.map((name) => ({ name, can_start: true })));
    // which may take seconds: the bridge asks them for their versions
    const { agents } = await model.call("http", "/info").catch(() => ({ agents: null }));
    if (agents) showAgents(agents);
  };

  const paint = () => {
    const ready = model.connection.phase === "ready";
    if (ready && !listing) listAgents();
    showOptions();
    start.disabled = starting || !ready || !clip.isReady;
    if (ready && !directory.value && !tree.firstChild) browse(""); // proposes the first
    if (!ready) setText(said, "A session can be started when the connection is back.");
    else if (said.textContent.startsWith("A session can")) setText(said, "");
  };
  paint();
  keepTyped(prompt, model, DRAFT).then(async () => {
    const shared = await clip.takeShared(app);
    if (!shared) return;
    prompt.value = [shared, prompt.value].filter(Boolean).join("\n");
    keepDraft(model, DRAFT, prompt.value);
  });
  return { node, paint };
}
