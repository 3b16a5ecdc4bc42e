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

  /** @param {Shared} shared @param {ScreenName} name @param {string[]} values */
  const give = async (shared, name, ...values) => {
    app.shared = shared;
    await model.dropShared();
    go.open(name, ...values);
  };
  const drop = async () => {
    await model.dropShared();
    go.open("home");
  };

  /** @param {Shared} shared */
  const show = (shared) => {
    const { text, files } = shared;
    const sessions = Object.values(model.home.sessions)
      .filter(({ kind, session_status: status, resumable }) => {
        return kind === "bridge" && (status !== "closed" || resumable);
      })
      .sort((a, b) => b.last_activity_at.localeCompare(a.last_activity_at));
    const row = (/** @type {Session} */ session) => {
      const { session_id: id, agent, working_directory: path } = session;
      const about = h("span.meta", {}, dotted(oneLine(shortPath(path)), oneLine(agent)));
      const words = h("span.row-main", {}, h("span.title", {}, titleOf(session, id)), about);
      const choose = () => give(shared, "session", id);
      return h("li", {}, button("button.row-link", choose, icon("sessions"), words));
    };
    fill(
      place,
      h(
        "ul.attached",
        { "aria-label": "Shared" },
        files.map(({ name, size }) =>
          h(
            "li.attached-file",
            {},
            icon("file"),
            h("span", {}, name ? visibleName(name) : "file", " ", h("span.meta", {}, bytes(size))),
          ),
        ),
      ),
      text && h("p", {}, visible(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text)),
      button("button.primary.wide", () => give(shared, "new"), "New session"),
      h("ul.rows", { "aria-label": "Sessions" }, sessions.map(row)),
      button("button.quiet", drop, "Discard"),
    );
  };

  model.shared().then(
    (shared) => (shared ? show(shared) : fill(place, h("p.empty", {}, NOTHING))),
    (error) => fill(place, h("p.empty", {}, error.message)),
  );
  return { node, paint: () => {} };
}
