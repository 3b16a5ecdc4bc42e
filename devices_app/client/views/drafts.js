// Keep what a person has typed and not sent: a page may go away at any moment.

import { toast } from "../parts/dom.js";

const NOT_KEPT = "The draft could not be kept: this device's storage is full or refused.";

/**
 * Keep a draft under a name, as `model.draft` reads it; none any more when the text is empty.
 *
 * @param {Model} model
 * @param {string} name
 * @param {string} text
 */
export const keepDraft = (model, name, text) =>
  model.keepDraft(name, text).catch(() => toast(NOT_KEPT, "warn"));

/**
 * Keep what is typed in a field, and put in what was kept before; done when that stands there.
 *
 * @param {Element_} area
 * @param {Model} model
 * @param {string} name
 */
export async function keepTyped(area, model, name) {
  area.addEventListener("input", () => keepDraft(model, name, area.value));
  const before = await model.draft(name);
  area.value ||= before ?? "";
}
