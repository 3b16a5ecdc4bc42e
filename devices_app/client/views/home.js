// Show home: approvals of all sessions, then the sessions that need attention first.

import {
  button,
  connectionSign,
  h,
  icon,
  keyed,
  row,
  screen,
  setPart,
  setText,
  toast,
} from "../parts/dom.js";
import {
  ago,
  counted,
  doingWords,
  dotted,
  oneLine,
  QUIET,
  shortPath,
  stateWords,
  titleOf,
} from "../parts/text.js";
import { asksHere } from "../store/approvals.js";
import { sortedSessions } from "../store/home.js";
import { showCards } from "./approvals.js";

const ENDED_SHOWN = 20;
const OLD_MS = 3_600_000;
const AWAY =
  "Away: agents in terminals wait for your answer here. Over in 12 hours, or when you write there.";
const OLD_SHOWN = 20; // of idle sessions in terminals that are older, until a person asks for all

/**
 * Make the list of sessions.
 *
 * @param {App} _
 */
export function homeView({ model, go }) {
  const cards = h("div.cards");
  const waitingTitle = h("h2.section", {}, "Waiting for you");
  const waiting = h("section", { "aria-label": "Waiting for you" }, waitingTitle, cards);
  const list = h("ul.rows");
  let everything = false;
  const more = button("button.wide", () => {
    everything = true;
    paint();
  });
  const ended = h("ul.rows");
  const endedTitle = h("h2.section", {}, "Ended");
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
    h("div.scroller", {}, stopped, waiting, list, more, empty, endedTitle, ended),
  );
  const paint = () => {
    showCards(cards, model, go);
    waiting.hidden = cards.childElementCount === 0;
    const all = sortedSessions(model.home);
    const open = all.filter(({ state }) => state !== "ended");
    const closed = all.filter(({ state }) => state === "ended").slice(0, ENDED_SHOWN);
    /** @type {Keyed<Listed>} */
    const rows = {
      key: ({ session }) => session.session_id,
      make: (item) => sessionRow(item, go, model),
      update: (node, item) => paintRow(node, item, model),
    };
    const old = open.filter(isOld).slice(OLD_SHOWN);
    const folded = new Set(everything ? [] : old);
    keyed(
      list,
      open.filter((item) => !folded.has(item)),
      rows,
    );
    more.hidden = folded.size === 0;
    setText(more, `Show ${counted(folded.size, "older idle session")}`);
    keyed(ended, closed, rows);
    const { phase, fault } = model.connection;
    stopped.hidden = phase !== "stopped";
    setText(why, phase === "stopped" ? (fault?.message ?? "") : "");
    empty.hidden = all.length > 0 || phase !== "ready";
    endedTitle.hidden = closed.length === 0;
    connection.paint();
    away.paint();
  };
  paint();
  return { node, paint };
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

/** @param {Listed} _ */
const isOld = ({ session, state }) =>
  state === "idle" &&
  session.kind === "observed" &&
  Date.now() - Date.parse(session.last_activity_at) > OLD_MS;

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
  setPart(node, ".meta", dotted(place, oneLine(session.agent)));
  const words = stateWords(session, state, asksHere(home, session.session_id));
  const doing = state === "approval" ? "" : doingWords(session, state); // its card says it
  const quiet = words.startsWith(QUIET);
  setPart(node, ".now", state === "error" ? oneLine(session.trouble) : quiet ? words : doing);
  setPart(node, ".state", quiet ? QUIET : words);
  setPart(node, "time", ago(session.last_activity_at));
}
