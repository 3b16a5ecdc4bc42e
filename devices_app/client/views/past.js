// List the sessions that an agent keeps at the machine, and continue one.

import { button, field, fill, h, toast } from "../parts/dom.js";
import { ago, dotted, oneLine, shortPath } from "../parts/text.js";
import { askContinue } from "./continuing.js";

const SHOWN = 20; // at once
const TYPED_MS = 250; // without a key, then it is looked for

/**
 * Make the list of past sessions; `chosen` gives the agent and the directory of the form.
 *
 * @param {Pick<App, "model" | "go">} _
 * @param {() => { agent: string; directory: string; history: string | undefined }} chosen
 */
export function pastView({ model, go }, chosen) {
  const search = field("input", { id: "past-search", type: "text", placeholder: "Title" });
  const everywhere = h("input", { id: "past-everywhere", type: "checkbox" });
  const list = h("ul.rows");
  const said = h("p.meta", { role: "status" });
  const more = button("button.wide", () => look(last), "Show older ones");
  more.hidden = true;
  const asks = h(
    "div",
    {},
    h("label", { for: "past-search" }, "Search"),
    search,
    h("label.check", {}, everywhere, h("span", {}, "All directories")),
  );
  const node = h("div.past", {}, asks, said, list, more);
  let last = ""; // time of the oldest that is shown
  let number = 0; // of the newest question: an older one's answer comes too late
  let timer = 0;

  const look = async (before = "") => {
    const { agent, directory, history } = chosen();
    const mine = ++number;
    asks.hidden = Boolean(history);
    if (!before) fill(list);
    more.hidden = true;
    said.textContent = history ? `Not listed. ${oneLine(history)}` : "Reading…";
    if (history) return;
    const query = search.value.trim();
    try {
      /** @type {Wire.Payloads["history_list_response"]} */
      const found = await model.call("ask", "history_list", {
        agent,
        limit: SHOWN,
        ...(!everywhere.checked && directory && { directory }),
        ...(query && { query }),
        ...(before && { before }),
      });
      if (mine !== number) return;
      list.append(...found.sessions.map((one) => rowOf(one, found.note)));
      last = found.sessions.at(-1)?.last_activity_at ?? last;
      more.hidden = !found.more;
      said.textContent = list.childElementCount ? "" : "None was found.";
    } catch (/** @type {any} */ error) {
      if (mine === number) said.textContent = error.message;
    }
  };

  /** @param {Wire.PastSession} one @param {string | undefined} note */
  const rowOf = (one, note) => {
    const known = model.home.sessions[one.session_id];
    const running = one.shared ? "also at the desk" : one.live && "its program runs at the machine";
    const state = known ? "in the list" : running;
    const act = known
      ? () => go.open("session", one.session_id)
      : () => (one.shared ? begin() : askContinue(false, begin, note));
    const begin = async () => {
      said.textContent = "Starting the agent…";
      try {
        const about = { agent: one.agent, working_directory: one.working_directory };
        go.open("session", await model.call("resume", one.session_id, about));
      } catch (/** @type {any} */ error) {
        said.textContent = "";
        toast(error.message, "warn");
      }
    };
    const meta = dotted(state, ago(one.last_activity_at), shortPath(one.working_directory));
    const open = button(
      "button.row-link",
      act,
      h("span.row-main", {}, h("span.title", {}, oneLine(one.title)), h("span.meta", {}, meta)),
    );
    open.disabled = !known && one.live; // it cannot be continued beside its program
    return h("li", {}, open);
  };

  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, TYPED_MS);
  });
  search.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") event.preventDefault(); // it is no part of the form
  });
  everywhere.addEventListener("change", () => look());
  return { node, look: () => look() };
}
