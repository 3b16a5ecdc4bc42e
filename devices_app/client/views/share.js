// Choose where goes what another app has shared; nothing is sent before a person sends it there.

import { backLink, button, fill, h, icon, screen } from "../parts/dom.js";
import { bytes, dotted, oneLine, shortPath, titleOf, visible, visibleName } from "../parts/text.js";

const NOTHING = "Nothing has come, or this device had no room for it. Share it once more.";
const SHOWN = 300; // characters

/**
 * Make the screen to which the system's share sheet leads.
 *
 * @param {App} app
 */
export function shareView(app) {
  const { model, go } = app;
  const place = h("div.form", {}, h("p.meta", {}, "Reading…"));
  const before = backLink(go, "home", "Back to the sessions");
  const node = screen("Send to", { before }, h("div.scroller", {}, place));

  const list = h("ul.rows", { "aria-label": "Sessions" });
  /** @type {Shared | null} */
  let shared = null;
  let listed = ""; // what the list shows

  /** @param {ScreenName} name @param {string[]} values */
  const give = async (name, ...values) => {
    app.shared = shared;
    await model.dropShared();
    go.open(name, ...values);
  };
  const drop = async () => {
    await model.dropShared();
    go.open("home");
  };

  const paint = () => {
    const sessions = Object.values(model.home.sessions)
      .filter(({ kind, session_status: status, resumable }) => {
        return kind === "bridge" && (status !== "closed" || resumable);
      })
      .sort((a, b) => b.last_activity_at.localeCompare(a.last_activity_at))
      .map((session) => {
        const { session_id: id, agent, working_directory: path } = session;
        const about = dotted(oneLine(shortPath(path)), oneLine(agent));
        return { id, title: titleOf(session, id), about };
      });
    if (listed === JSON.stringify(sessions)) return;
    listed = JSON.stringify(sessions);
    fill(
      list,
      sessions.map(({ id, title, about }) => {
        const words = [h("span.title", {}, title), h("span.meta", {}, about)];
        const choose = () => give("session", id);
        const content = h("span.row-main", {}, words);
        return h("li", {}, button("button.row-link", choose, icon("sessions"), content));
      }),
    );
  };

  /** @param {Shared} found */
  const show = (found) => {
    shared = found;
    const { text, files } = found;
    const row = (/** @type {File} */ { name, size }) => {
      const about = [name ? visibleName(name) : "file", " ", h("span.meta", {}, bytes(size))];
      return h("li.attached-file", {}, icon("file"), h("span", {}, about));
    };
    fill(
      place,
      h("ul.attached", { "aria-label": "Shared" }, files.map(row)),
      text && h("p", {}, visible(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text)),
      button("button.primary.wide", () => give("new"), "New session"),
      list,
      button("button.quiet", drop, "Discard"),
    );
  };

  model.shared().then(
    (found) => (found ? show(found) : fill(place, h("p.empty", {}, NOTHING))),
    (error) => fill(place, h("p.empty", {}, error.message)),
  );
  paint();
  return { node, paint };
}
