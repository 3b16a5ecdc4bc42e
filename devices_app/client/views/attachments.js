// Show pictures and files of a conversation: a picture by its bytes, anything else to be saved.

import { button, fill, h, icon } from "../parts/dom.js";
import { HEAD_BYTES, pictureOf } from "../parts/picture.js";
import { openSheet } from "../parts/sheet.js";
import { bytes, dotted, oneLine, visibleName } from "../parts/text.js";

const KEPT = 20; // of those that were fetched, for when they are shown again
const SAVED_MS = 60_000; // a browser may begin to save a moment later
/** @type {Map<string, Promise<Blob>>} */
const fetched = new Map();

/** @param {string} session @param {string} id @param {Model} model */
function fetchOnce(session, id, model) {
  const coming = fetched.get(id) ?? model.call("attachment", session, id);
  fetched.delete(id);
  fetched.set(id, coming);
  coming.catch(() => fetched.delete(id));
  if (fetched.size > KEPT) fetched.delete(/** @type {string} */ (fetched.keys().next().value));
  return coming;
}

/**
 * Make the list of what is attached.
 *
 * @param {Attached[]} attached @param {ItemApp} app
 */
export const attachmentsOf = (attached, app) =>
  h(
    "ul.attached",
    {},
    attached.map((one) => item(one, app)),
  );

/** @param {Model} model @param {() => unknown} act once it is connected again */
function whenReady(model, act) {
  const leave = model.follow(({ connection }) => {
    if (connection?.phase !== "ready") return;
    leave();
    act();
  });
}

/** @param {Attached} one @param {ItemApp} _ */
function item(one, { model, id }) {
  const node = h("li");
  const get = () => fetchOnce(id, one.attachment_id, model);
  const name = one.name ? visibleName(one.name) : "Picture";
  const label = one.name ? oneLine(one.name) : `Picture, ${bytes(one.size)}`;
  const given = one.given === null && `not given to the agent: ${oneLine(one.reason ?? "")}`;
  /** @param {string} trouble @param {Child} act */
  const file = (trouble, act) =>
    fill(
      node,
      h(
        "div.attached-file",
        {},
        icon("file"),
        h("span.row-main", {}, name, h("span.meta", {}, dotted(bytes(one.size), given, trouble))),
        act,
      ),
    );
  const save = button("button", () => saving(), "Save");
  const saving = () =>
    get().then(
      (blob) => saveAs(blob, one.name || "picture"),
      (error) => file(error.message, save),
    );
  const show = async () => {
    file("", null);
    try {
      const blob = await get();
      const found = pictureOf(new Uint8Array(await blob.slice(0, HEAD_BYTES).arrayBuffer()));
      if (!found) return file("", save);
      const typed = new Blob([blob], { type: found.type });
      const image = imageOf(typed, label, () => file("It cannot be shown.", save));
      image.width = found.width; // its room, before it is drawn
      image.height = found.height;
      const open = button("button.attached-picture", () => openWhole(typed, label, save), image);
      fill(node, open, given && h("p.meta", {}, given));
    } catch (/** @type {any} */ error) {
      const again = button("button", show, "Try again");
      file(error.message, again);
      if (model.connection.phase !== "ready") whenReady(model, () => again.isConnected && show());
    }
  };
  if (one.type.startsWith("image/")) show();
  else file("", save);
  return node;
}

// An image keeps what it has drawn: its address is needed until then only.
/** @param {Blob} blob @param {string} alt */
function imageOf(blob, alt, failed = () => {}) {
  const url = URL.createObjectURL(blob);
  const done = () => URL.revokeObjectURL(url);
  const error = () => {
    done();
    failed();
  };
  return h("img", { alt, src: url, on: { load: done, error } });
}

/** @param {Blob} blob @param {string} label @param {Element_} save */
function openWhole(blob, label, save) {
  const again = button("button", () => save.click(), "Save");
  openSheet(label, h("div.whole-picture", {}, imageOf(blob, label)), again, () => {});
}

/** @param {Blob} blob @param {string} name */
function saveAs(blob, name) {
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), SAVED_MS);
}
