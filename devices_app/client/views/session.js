// Show a session: its title and its three tabs.

import { backLink, button, connectionSign, h, icon, setText } from "../parts/dom.js";
import { doingWords, dotted, oneLine, shortPath, stateWords, titleOf } from "../parts/text.js";
import { asksHere, openApprovals } from "../store/approvals.js";
import { attention } from "../store/home.js";
import { changesView } from "./changes.js";
import { chatView } from "./chat.js";
import { filesView } from "./files.js";
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

/** @type {Record<string, [string, (id: string, app: App, path: string) => View]>} */
const TABS = {
  chat: ["Chat", chatView],
  changes: ["Changes", changesView],
  files: ["Files", filesView],
};

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
  const connection = connectionSign(app);
  const count = h("span");
  const others = h("a.badge", { ...go.link("approvals"), hidden: true }, icon("approvals"), count);
  const tabs = h(
    "nav.tabs",
    { "aria-label": "Parts of the session" },
    Object.entries(TABS).map(([name, [label]]) =>
      h("a", { ...go.link("session", id, name), "aria-current": name === tab && "page" }, label),
    ),
  );
  const content = TABS[tab][1](id, app, path);
  const node = h(
    "section.screen.session",
    { "aria-labelledby": "session-title" },
    h(
      "header.bar",
      {},
      backLink(go, "home", "Back to the sessions"),
      heading,
      connection.node,
      others,
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
        oneLine(session?.agent),
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
