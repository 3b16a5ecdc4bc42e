// Take files for a message: by the paper clip, from the clipboard, by a drop, from another app.

import { button, h, icon, toast } from "../parts/dom.js";

/** The bridge takes no message without words: the names are.
 *  @param {string} text @param {Attaching[]} files */
export const wordsOf = (text, files) => text || files.map(({ name }) => name).join(", ");

/**
 * Let files be attached to what is written in `area`; `changed` is called when they are others.
 *
 * @param {Element_} area @param {() => void} changed
 */
export function clipFor(area, changed) {
  const place = h("div.attaching");
  const choose = /** @type {any} */ (h("input", { type: "file", multiple: true, hidden: true }));
  const clip = button("button.round.quiet", () => choose.click(), icon("clip"));
  clip.setAttribute("aria-label", "Attach pictures or files");
  // Loaded with the first file.
  /** @type {ReturnType<typeof import("./attaching.js").attaching> | null} */
  let chips = null;
  const load = async () => {
    const { attaching, attachedBefore } = await import("./attaching.js");
    if (!chips) place.append((chips = attaching(changed)).node);
    return { chips, attachedBefore };
  };
  /** @param {Iterable<File>} files */
  const add = async (files) => {
    const given = [...files]; // the browser takes its list back
    try {
      if (given.length) await (await load()).chips.add(given);
    } catch (/** @type {any} */ error) {
      toast(error.message, "warn");
    }
  };
  choose.addEventListener("change", () => {
    add(choose.files);
    choose.value = "";
  });
  area.addEventListener("paste", (/** @type {ClipboardEvent} */ event) => {
    const { files, types } = /** @type {DataTransfer} */ (event.clipboardData);
    if (!files.length || types.includes("text/plain")) return;
    event.preventDefault();
    add(files);
  });
  for (const kind of ["dragover", "drop"])
    area.addEventListener(kind, (/** @type {any} */ event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      add(event.dataTransfer.files); // none before it is dropped
    });

  return {
    parts: [clip, choose],
    /** Where the chips stand. */
    place,
    add,
    /** Whether they may be sent: nothing is being read any more. */
    get isReady() {
      return chips?.isReady !== false;
    },
    get files() {
      return chips?.files ?? [];
    },
    clear: () => chips?.clear(),
    /** @param {Attaching[]} files */
    put: (files) => chips?.put(files),
    /** @param {Attached[]} before */
    putBefore: (before) =>
      before.length &&
      load().then(({ chips, attachedBefore }) => chips.put(attachedBefore(before))),
    /** Take what another app has shared, and where that goes to is chosen; returns its words.
     *  @param {App} app */
    async takeShared(app) {
      const { text = "", files = [] } = app.shared ?? {};
      if (!app.shared) return "";
      app.shared = null;
      await add(files);
      return text;
    },
  };
}
