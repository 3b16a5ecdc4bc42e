// Show a session: its title and its three tabs.

import { backLink, button, connectionSign, fill, h, icon, setText } from "../parts/dom.js";
import {
  agentName,
  doingWords,
  dotted,
  oneLine,
  shortPath,
  stateWords,
  titleOf,
} from "../parts/text.js";
import { asksHere, openApprovals } from "../store/approvals.js";
import { attention } from "../store/home.js";
import { chatView } from "./chat.js";
import { openRules, rulesWords } from "./rules.js";

// What is chosen, in few words: "Sonnet · High · plan first".
/** @param {Wire.SessionOption[]} [options] */
const chosenWords = (options = []) =>
  dotted(
    ...options.map(({ kind, value, choices, name }) =>
      kind === "plan"
        ? value === "on" && "plans first"
        : oneLine(choices.find((one) => one.value === value)?.name ?? (kind === "model" && name)),
    ),
  ) || "Options";

/** @type {Record<string, string>} */
const TABS = { chat: "Chat", changes: "Changes", files: "Files" };

// Loaded when a session is opened: then they are there also when the network goes.
/** @type {Record<string, () => Promise<(id: string, app: App, path: string) => View>>} */
const LOADERS = {
  changes: async () => (await import("./changes.js")).changesView,
  files: async () => (await import("./files.js")).filesView,
};

/**
 * Make a tab that is shown once it is loaded.
 *
 * @param {string} tab @param {string} id @param {App} app @param {string} path
 * @returns {View}
 */
function laterTab(tab, id, app, path) {
  const node = h("div.later-tab");
  /** @type {View | undefined} */
  let view;
  let closed = false;
  LOADERS[tab]().then(
    (make) => {
      if (closed) return;
      view = make(id, app, path);
      fill(node, view.node);
      view.paint();
    },
    (error) => fill(node, h("p.empty", {}, `This tab could not be loaded: ${error.message}`)),
  );
  return {
    node,
    paint: (news) => view?.paint(news),
    moved: () => view?.moved?.(),
    close: () => {
      closed = true;
      view?.close?.();
    },
  };
}

/**
 * Make a session's screen, with the tab and, for files, the path in the address.
 *
 * @param {App} app
 * @param {At} _
 */
export function sessionView(app, { id, tab, path }) {
  const { model, go } = app;
  const title = h("h1", { id: "session-title", tabindex: "-1" });
  const state = h("p.meta.doing", { role: "status" });
  const place = h("p.meta");
  const rules = button("button.quiet.small", () => {
    paintRules = openRules(id, app, () => (paintRules = () => {}));
  });
  let paintRules = () => {};
  const offers = button("button.quiet.small", async () => {
    const { openOffers } = await import("./offers.js");
    paintOffers = openOffers(id, app, () => (paintOffers = () => {}));
  });
  let paintOffers = () => {};
  const heading = h("div.heading", {}, title, state, place, offers, rules);
  // Loaded when there is something to say.
  const loadUsage = async () => {
    if (!model.home.sessions[id]?.usage) return;
    paintUsage = () => {};
    const { usageMark } = await import("./usage.js");
    const mark = usageMark(id, app);
    heading.append(mark.node);
    paintUsage = mark.paint;
  };
  /** @type {() => unknown} */
  let paintUsage = loadUsage;
  const editor = button(
    "button.quiet.round",
    async () => {
      const { openEditor } = await import("./naming.js");
      paintEditor = openEditor(id, app, () => (paintEditor = () => {}));
    },
    icon("dots"),
  );
  editor.ariaLabel = "Rename, pin, mute, archive or end";
  let paintEditor = () => {};
  const connection = connectionSign(app);
  const count = h("span");
  const others = h("a.badge", { ...go.link("approvals"), hidden: true }, icon("approvals"), count);
  const tabs = h(
    "nav.tabs",
    { "aria-label": "Parts of the session" },
    Object.entries(TABS).map(([name, label]) =>
      h("a", { ...go.link("session", id, name), "aria-current": name === tab && "page" }, label),
    ),
  );
  /** @type {View} */
  const content = tab === "chat" ? chatView(id, app, path) : laterTab(tab, id, app, path);
  for (const load of Object.values(LOADERS)) load().catch(() => {}); // said when it is needed
  const node = h(
    "section.screen.session",
    { "aria-labelledby": "session-title" },
    h(
      "header.bar",
      {},
      history.state?.origin === go.to("search")
        ? backLink(go, "search", "Back to the search")
        : backLink(go, "home", "Back to the sessions"),
      heading,
      connection.node,
      others,
      editor,
    ),
    tabs,
    content.node,
  );
  let at = model.home.sessions[id]?.working_directory; // where the agent works
  /** @param {News[]} news */
  const paint = (news = []) => {
    const session = model.home.sessions[id];
    setText(title, titleOf(session, id));
    const now = session ? attention(model.home, session) : "";
    state.dataset.state = now;
    const words = session && stateWords(session, now, asksHere(model.home, id));
    setText(state, session ? dotted(words ?? "", doingWords(session, now)) : "");
    if (session && at !== undefined && at !== session.working_directory) content.moved?.();
    at = session?.working_directory ?? at;
    setText(
      place,
      dotted(
        session?.shared && "also at the desk",
        session?.asks === false && "does not ask before it acts",
        shortPath(session?.working_directory),
        agentName(session?.agent),
        session?.branch && oneLine(session.branch),
      ),
    );
    setText(rules, rulesWords(session));
    rules.hidden = !session?.rules?.length;
    paintRules();
    setText(offers, chosenWords(session?.options));
    offers.hidden = !session?.options?.length || session.session_status !== "active";
    paintOffers();
    paintUsage();
    editor.hidden = !session;
    paintEditor();
    const waiting = openApprovals(model.home).length;
    others.hidden = waiting === 0 || model.connection.phase !== "ready"; // there is room for one
    setText(count, String(waiting));
    others.setAttribute("aria-label", `Approvals that wait: ${waiting}`);
    connection.paint();
    content.paint(news);
  };
  model.view(id);
  paint();
  return {
    node,
    paint,
    close: () => {
      model.view(null);
      content.close?.();
    },
  };
}
