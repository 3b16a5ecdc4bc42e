// Choose when a message goes to the agent: into its turn, at a time, when its limit ends (D71).

import { button, field, h, setText } from "../parts/dom.js";
import { openSheet } from "../parts/sheet.js";
import { clock } from "../parts/text.js";
import { DAYS, fieldTime, limitEnd } from "../store/later.js";

const HOUR = 3_600_000;
const INTO = "It is read while the agent works, not after.";

/**
 * Ask when; `send` is given it as the fields of a message.
 *
 * @param {string} id
 * @param {Model} model
 * @param {(when: { when: "now" } | { not_before: string }) => unknown} send
 */
export function askWhen(id, model, send) {
  const { usage, turn, agent } = model.home.sessions[id] ?? {};
  const now = Date.now();
  const attributes = { type: "datetime-local", id: "when", min: fieldTime(now) };
  const time = field("input", { ...attributes, max: fieldTime(now + DAYS * 24 * HOUR) });
  time.value = fieldTime(now + HOUR);
  /** @param {Parameters<typeof send>[0]} when */
  const choose = (when) => {
    sheet.dialog.close();
    send(when);
  };
  const into = button("button.wide", () => choose({ when: "now" }), "Now");
  into.disabled = true;
  const how = h("p.hint", { role: "status" }, "Asking whether it can take it now…");
  const isBusy = (turn ?? "idle") !== "idle";
  if (isBusy)
    model.call("http", "/info").then(
      ({ agents }) => {
        const { steers } =
          agents.find((/** @type {AgentEntry} */ { name }) => name === agent) ?? {};
        into.disabled = !steers;
        setText(how, steers ? INTO : "This agent takes no messages while it works.");
      },
      (error) => setText(how, error.message),
    );
  const go = button(
    "button.primary",
    () => time.reportValidity() && choose({ not_before: new Date(time.value).toISOString() }),
    "Send then",
  );
  time.required = true;
  const end = limitEnd(usage, now);
  const content = [
    isBusy && [into, how],
    h("label", { for: "when" }, "Not before"),
    time,
    h("p.hint", {}, "It waits at the bridge and is sent then."),
    end &&
      button(
        "button.wide",
        () => choose({ not_before: "limit_reset" }),
        `When the limit ends, at ${clock(end)}`,
      ),
  ];
  const sheet = openSheet("When to send", content, [go], () => {});
}
