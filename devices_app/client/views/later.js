// Choose when a message goes to the agent: at a time, or when its limit ends (D71).

import { button, field, h } from "../parts/dom.js";
import { openSheet } from "../parts/sheet.js";
import { DAYS, fieldTime, limitEnd, moment } from "../store/later.js";

const HOUR = 3_600_000;

/**
 * Ask for the time; `send` is given it as `not_before`.
 *
 * @param {Wire.Usage | null | undefined} usage
 * @param {(when: string) => unknown} send
 */
export function askWhen(usage, send) {
  const now = Date.now();
  const attributes = { type: "datetime-local", id: "when", min: fieldTime(now) };
  const time = field("input", { ...attributes, max: fieldTime(now + DAYS * 24 * HOUR) });
  time.value = fieldTime(now + HOUR);
  /** @param {string} when */
  const choose = (when) => {
    sheet.dialog.close();
    send(when);
  };
  const go = button(
    "button.primary",
    () => time.reportValidity() && choose(new Date(time.value).toISOString()),
    "Send then",
  );
  time.required = true;
  const end = limitEnd(usage, now);
  const content = [
    h("label", { for: "when" }, "Not before"),
    time,
    h("p.hint", {}, "It waits at the bridge, and goes on with the session then."),
    end &&
      button("button.wide", () => choose("limit_reset"), `When the limit ends, at ${moment(end)}`),
  ];
  const sheet = openSheet("Send later", content, [go], () => {});
}
