// Name a session, pin it, mute it, put it into the archive or take it out, or end it.

import { announce, button, form, h, setText } from "../parts/dom.js";
import { openSheet, twoSteps } from "../parts/sheet.js";
import { oneLine } from "../parts/text.js";

const TITLE_CHARS = 120; // as many as the bridge takes

/**
 * Open the sheet; return what paints it.
 *
 * @param {string} id
 * @param {App} _
 * @param {() => void} closed
 */
export function openEditor(id, { model }, closed) {
  const session = () => model.home.sessions[id];
  const title = h("input", { id: "title", type: "text", maxlength: TITLE_CHARS });
  const save = h("button.primary", { type: "submit" }, "Rename");
  const said = h("p.warn", { role: "status" });
  let shown = ""; // as the bridge has it

  /** @param {Free} changes @param {string} done */
  const edit = async (changes, done) => {
    setText(said, "");
    try {
      await model.call("ask", "session_edit", { session_id: id, ...changes });
      sheet.dialog.close();
      announce(done);
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
    }
  };
  const rename = () => {
    const text = title.value.trim();
    if (text) edit({ title: text }, "Renamed.");
  };
  const pin = button("button.wide", () => {
    const { pinned } = session();
    edit({ pinned: !pinned }, pinned ? "Not pinned any more." : "Pinned: it stands first.");
  });
  const archive = button("button.wide", () => {
    const { archived } = session();
    edit({ archived: !archived }, archived ? "Back in the list." : "Archived.");
  });
  const muted = () => model.connection.acked?.notify?.muted ?? [];
  const mute = button("button.wide", async () => {
    const [others, was] = [muted().filter((one) => one !== id), muted().includes(id)];
    setText(said, "");
    try {
      await model.call("ask", "notify_set", { muted: was ? others : [...others, id] });
      sheet.dialog.close();
      announce(was ? "Not muted any more." : "Muted: only high risks are told.");
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
    }
  });
  const finish = async () => {
    setText(said, "");
    try {
      await model.call("send", "session_end", { session_id: id, reason: "user_request" });
      sheet.dialog.close();
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
    }
  };
  const end = twoSteps("End session", "Yes, end it", finish, "wide").node;
  const endHint = h("p.hint", {}, "What was said in it can be read then, and it does not go on.");
  const hint = "An archived session is moved to “Archived”, except while it waits for you, ";
  const content = [
    form("form", rename, h("label", { for: "title" }, "Title"), title, save),
    said,
    pin,
    archive,
    mute,
    h("p.hint", {}, `${hint}works, or has something new. It can be found by searching.`),
    end,
    endHint,
  ];
  const sheet = openSheet("This session", content, [], closed);
  const paint = () => {
    const { title: now, pinned, archived, kind, session_status: status } = session() ?? {};
    // What another device has named meanwhile, unless a person is writing here.
    if (title.value === shown) title.value = oneLine(now);
    shown = oneLine(now);
    setText(pin, pinned ? "Unpin" : "Pin");
    // one that rests has it below its words
    end.hidden = endHint.hidden = kind !== "bridge" || status !== "active";
    mute.hidden = !model.connection.acked?.notify;
    setText(mute, muted().includes(id) ? "Unmute" : "Mute on this device");
    setText(archive, archived ? "Take out of the archive" : "Archive");
  };
  paint();
  return paint;
}
