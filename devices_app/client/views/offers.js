// Show what an agent lets a person choose for its session, and set it.

import { fill, h, toast } from "../parts/dom.js";
import { openSheet } from "../parts/sheet.js";
import { visible } from "../parts/text.js";

/**
 * Make the fields of options: a box for one that is on or off, else a list.
 *
 * @param {Wire.SessionOption[]} options
 * @param {(option: Wire.SessionOption, value: string) => unknown} choose
 */
export const optionFields = (options, choose) =>
  options.map((option) => {
    const id = `option-${option.id}`;
    const chosen = option.choices.find(({ value }) => value === option.value);
    if (option.kind === "plan") {
      const change = (/** @type {any} */ { target }) =>
        choose(option, target.checked ? "on" : "off");
      const box = h("input", { id, type: "checkbox", on: { change } });
      box.checked = option.value === "on";
      const about = option.choices.find(({ value }) => value === "on")?.description;
      const name = h("label.check", {}, box, h("span", {}, visible(option.name)));
      return h("div.form", {}, name, h("p.hint", {}, visible(about ?? "")));
    }
    const name = h("label", { for: id }, visible(option.name));
    const change = (/** @type {any} */ { target }) => choose(option, target.value);
    const select = h(
      "select",
      { id, on: { change } },
      !chosen && h("option", { value: "", disabled: true, selected: true }, "Agent's default"),
      option.choices.map(({ value, name: words }) =>
        h("option", { value, selected: value === option.value }, visible(words)),
      ),
    );
    return h("div.form", {}, name, select, h("p.hint", {}, visible(chosen?.description ?? "")));
  });

/**
 * Open the sheet of a session's options; return what paints it.
 *
 * @param {string} id
 * @param {App} _
 * @param {() => void} closed
 */
export function openOffers(id, { model }, closed) {
  const fields = h("div.form");
  const said = h("p.status", { role: "status" });
  let shown = "";
  let busy = false;
  /** @param {Wire.SessionOption} option @param {string} value */
  const choose = async (option, value) => {
    busy = true;
    const all = fields.querySelectorAll("input, select");
    for (const one of /** @type {Iterable<Element_>} */ (all)) one.disabled = true;
    said.textContent = `${option.name}…`;
    try {
      const payload = { session_id: id, option_id: option.id, value };
      await model.call("ask", "session_set", payload);
      said.textContent = "It holds from the agent's next step on.";
    } catch (/** @type {any} */ error) {
      said.textContent = "";
      toast(error.message, "warn");
    }
    busy = false;
    shown = "";
    paint();
    document.getElementById(`option-${option.id}`)?.focus();
  };
  const paint = () => {
    const options = model.home.sessions[id]?.options ?? [];
    const text = JSON.stringify(options);
    if (busy || text === shown) return;
    shown = text;
    fill(fields, optionFields(options, choose));
  };
  openSheet("The agent", [fields, said], [], closed);
  paint();
  return paint;
}
