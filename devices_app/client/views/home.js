// Show home: approvals of all sessions, then the sessions that need attention first.

import {
  button,
  connectionSign,
  h,
  icon,
  keyed,
  pager,
  row,
  screen,
  setPart,
  setText,
  toast,
} from "../parts/dom.js";
import {
  agentName,
  ago,
  clock,
  doingWords,
  dotted,
  oneLine,
  QUIET,
  shortPath,
  stateWords,
  titleOf,
} from "../parts/text.js";
import { asksHere } from "../store/approvals.js";
import { arranged, finishedUnseen, NEEDS_YOU } from "../store/home.js";
import { showCards } from "./approvals.js";

const SHOWN = 20; // of the sessions of a directory, of ended and of archived ones, at first
const AWAY =
  "Away: agents in terminals wait for your answer here. Over in 12 hours, or when you write there.";

/**
 * Make the list of sessions.
 *
 * @param {App} _
 */
export function homeView({ model, go }) {
  const cards = h("div.cards");
  const waitingTitle = h("h2.section", {}, "Waiting for you");
  const waiting = h("section.waits", { "aria-label": "Waiting for you" }, waitingTitle, cards);
  const find = h("a.button.find", go.link("search"), icon("search"), "Search");
  const done = button("button.wide.done", () => {
    const [next] = finishedUnseen(model.home);
    if (next) go.open("session", next.session_id);
  });
  const pinned = h("ul.rows");
  const pinnedTitle = h("h2.section", {}, "Pinned");
  const groups = h("div.groups");
  /** @type {Keyed<Listed>} */
  const rows = {
    key: ({ session }) => session.session_id,
    make: (item) => sessionRow(item, go, model),
    update: (node, item) => paintRow(node, item, model),
  };
  let all = arranged(model.home);
  /** @param {() => Listed[]} found */
  const paged = (found) => {
    const list = h("ul.rows");
    const pages = pager(SHOWN, "sessions", (count) => {
      const all = found();
      keyed(list, all.slice(0, count), rows);
      return all.length;
    });
    return { ...pages, list };
  };
  const ended = paged(() => all.ended);
  const endedTitle = h("h2.section", {}, "Ended");
  const archived = paged(() => (opener.ariaExpanded === "true" ? all.archived : []));
  const opener = foldButton(() => {
    opener.ariaExpanded = String(opener.ariaExpanded !== "true");
    archived.show();
  });
  opener.ariaExpanded = "false";
  const empty = h(
    "div.empty",
    {},
    h("p", {}, "No session yet. To see those of your agent, run “make hooks” at the machine."),
    h("a.button.primary", go.link("new"), "Start a session here"),
  );
  const connection = connectionSign({ model, go });
  const away = awaySwitch(model);
  const why = h("p", { role: "status" });
  const help = h("a.button", go.link("wrong"), "What to do");
  const stopped = h("div.finding.bad", {}, why, help);
  const start = { ...go.link("new"), "aria-label": "New session" };
  const node = screen(
    "Sessions",
    { behind: [connection.node, away.node, h("a.button.round", start, icon("plus"))] },
    h(
      "div.scroller",
      {},
      [stopped, done, waiting, find, pinnedTitle, pinned, groups, empty],
      [endedTitle, ended.list, ended.more, opener, archived.list, archived.more],
    ),
  );
  // The sessions of a directory, which can be folded on this phone.
  /** @param {[string, Listed[]]} item */
  const groupOf = (item) => {
    const [directory] = item;
    const head = foldButton(() => {
      model.fold(directory).catch(() => {}); // then until the page is closed
      paint();
    });
    setPart(head, ".title", shortPath(directory) || "Others");
    /** @type {Listed[]} */
    let found = [];
    const { list, more, show } = paged(() => found);
    const node = h("section", { "aria-label": oneLine(directory) || "Others" }, head, list, more);
    /** @param {Listed[]} sessions */
    node.paint = (sessions) => {
      head.hidden = all.groups.size === 1 && all.pinned.length === 0;
      const isFolded = !head.hidden && model.folded.has(directory);
      head.ariaExpanded = String(!isFolded);
      const working = sessions.filter(({ state }) => state === "working").length;
      const words = dotted(String(sessions.length), working > 0 && `${working} working`);
      setPart(head, ".meta", words);
      found = isFolded ? sessions.filter(({ state }) => NEEDS_YOU.has(state)) : sessions;
      show();
    };
    node.paint(item[1]);
    return node;
  };
  const paint = () => {
    showCards(cards, model, go);
    waiting.hidden = cards.childElementCount === 0;
    all = arranged(model.home);
    setText(done, doneWords(finishedUnseen(model.home)));
    done.hidden = done.textContent === "";
    keyed(pinned, all.pinned, rows);
    pinnedTitle.hidden = all.pinned.length === 0;
    keyed(groups, [...all.groups], {
      key: ([directory]) => directory,
      make: groupOf,
      update: (node, [, sessions]) => node.paint(sessions),
    });
    ended.show();
    opener.hidden = all.archived.length === 0;
    setPart(opener, ".title", `Archived (${all.archived.length})`);
    archived.show();
    const { phase, fault } = model.connection;
    stopped.hidden = phase !== "stopped";
    setText(why, phase === "stopped" ? (fault?.message ?? "") : "");
    const isEmpty = Object.keys(model.home.sessions).length === 0;
    empty.hidden = !isEmpty || phase !== "ready";
    find.hidden = isEmpty;
    endedTitle.hidden = all.ended.length === 0;
    connection.paint();
    away.paint();
  };
  paint();
  return { node, paint };
}

/** @param {() => unknown} act */
const foldButton = (act) =>
  button("button.fold", act, icon("more"), h("span.title"), h("span.meta"));

// "3 done, 1 failed since 11:20".
/** @param {Session[]} sessions */
function doneWords(sessions) {
  if (!sessions.length) return "";
  const failed = sessions.filter((one) => one.failed).length;
  const done = sessions.length - failed;
  const counts = [done && `${done} done`, failed && `${failed} failed`].filter(Boolean).join(", ");
  return `${counts} since ${clock(sessions.map((one) => one.last_activity_at).sort()[0])}`;
}

// While its owner is away a terminal waits for an answer from here also where it shows no dialog.
/** @param {Model} model */
function awaySwitch(model) {
  const isAway = () => model.home.presence?.away === true;
  const node = button(
    "button.small.away",
    async () => {
      try {
        const { away } = await model.call("ask", "presence_set", { away: !isAway() });
        toast(away ? AWAY : "You are back: terminals ask at the machine.");
      } catch (/** @type {any} */ error) {
        toast(error.message, "warn");
      }
    },
    "Away",
  );
  const paint = () => (node.ariaPressed = String(isAway()));
  return { node, paint };
}

/** @param {Listed} item @param {Go} go @param {Model} model */
function sessionRow(item, go, model) {
  const node = row(go.link("session", item.session.session_id), {
    before: h("span.dot", { "aria-hidden": "true" }),
    title: "",
    meta: "",
    after: h("span.row-side", {}, h("span.state"), h("time")),
  });
  node.querySelector(".row-main")?.append(h("span.meta.now"));
  paintRow(node, item, model);
  return node;
}

/** @param {Element_} node @param {Listed} _ @param {Model} _ */
function paintRow(node, { session, state }, { home, viewed }) {
  node.dataset.state = state;
  node.children[0].ariaCurrent = viewed === session.session_id ? "page" : null;
  setPart(node, ".title", titleOf(session, session.session_id));
  const place = dotted(shortPath(session.working_directory), oneLine(session.branch));
  setPart(node, ".meta", dotted(place, agentName(session.agent)));
  const words = stateWords(session, state, asksHere(home, session.session_id));
  const doing = state === "approval" ? "" : doingWords(session, state); // its card says it
  const quiet = words.startsWith(QUIET);
  setPart(node, ".now", state === "error" ? oneLine(session.trouble) : quiet ? words : doing);
  setPart(node, ".state", quiet ? QUIET : words);
  setPart(node, "time", ago(session.last_activity_at));
}
