// Choose what this device is told, and when (D74).

import { button, field, fill, h, setText } from "../parts/dom.js";
import { counted } from "../parts/text.js";

/** @typedef {Wire.Notify["kinds"][number]} Kind */
/** @type {[Kind, string][]} */
const KINDS = [
  ["approval_required", "An agent needs you"],
  ["task_complete", "An agent is done"],
  ["error", "Something failed"],
  ["agent_idle", "An agent waits for your next message"],
  ["agent_notification", "Other news from agents"],
  ["approval_decided", "What was decided, here or elsewhere"],
];
const MINUTES = [0, 5, 10, 15, 30, 60];
const PASSES = "Approvals of high or critical risk are always announced.";
const NIGHT = { from: "22:00", to: "07:00" };

/**
 * Make the choices of the settings.
 *
 * @param {Model} model
 */
export function tellingSection(model) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const chosen = () => model.connection.acked?.notify;
  const said = h("p.status", { role: "alert" });
  /** @param {Wire.Requests["notify_set"]} changes */
  const set = async (changes) => {
    setText(said, "");
    try {
      await model.call("ask", "notify_set", changes);
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
    }
    paint();
  };
  const kinds = KINDS.map(([kind, label]) => {
    const box = h("input", { type: "checkbox", value: kind });
    box.addEventListener("change", () =>
      set({ kinds: KINDS.map(([one]) => one).filter((_, at) => kinds[at].box.checked) }),
    );
    return { box, node: h("label.choice", {}, box, label) };
  });
  const reminder = h("select", { id: "reminder" });
  reminder.addEventListener("change", () => set({ reminder_minutes: Number(reminder.value) }));
  const isQuiet = h("input", { type: "checkbox" });
  const from = field("input", { id: "quiet-from", type: "time", required: true });
  const to = field("input", { id: "quiet-to", type: "time", required: true });
  const setQuiet = () => {
    if (!isQuiet.checked) return set({ quiet: null });
    if (!from.value || !to.value) return null;
    return set({ quiet: { from: from.value, to: to.value, zone: here } });
  };
  for (const one of [isQuiet, from, to]) one.addEventListener("change", setQuiet);
  const zone = h("p.hint");
  const hours = h(
    "div",
    {},
    h("label", { for: "quiet-from" }, "From"),
    from,
    h("label", { for: "quiet-to" }, "To"),
    to,
  );
  const muted = h("span");
  const unmute = button("button.quiet", () => set({ muted: [] }), "Unmute all");
  const mutes = h("div.beside", {}, muted, unmute);
  const node = h(
    "fieldset.form.question",
    {},
    h("legend", {}, "What this device is told"),
    kinds.map((one) => one.node),
    h("label", { for: "reminder" }, "Remind me of a waiting approval"),
    reminder,
    h("label.choice", {}, isQuiet, "Quiet hours"),
    hours,
    zone,
    mutes,
    h("p.hint", {}, PASSES),
    said,
  );
  const paint = () => {
    const now = chosen();
    node.hidden = !now;
    if (!now) return;
    node.disabled = model.connection.phase !== "ready";
    KINDS.forEach(([kind], at) => (kinds[at].box.checked = now.kinds.includes(kind)));
    const minutes = [...new Set([...MINUTES, now.reminder_minutes])].sort((a, b) => a - b);
    fill(
      reminder,
      minutes.map((one) =>
        h(
          "option",
          { value: one, selected: one === now.reminder_minutes },
          one ? `After ${one} minutes, three times at most` : "Never",
        ),
      ),
    );
    isQuiet.checked = Boolean(now.quiet);
    hours.hidden = zone.hidden = !now.quiet;
    // not under the fingers of somebody who sets one
    if (!hours.contains(document.activeElement))
      [from.value, to.value] = [now.quiet?.from ?? NIGHT.from, now.quiet?.to ?? NIGHT.to];
    const elsewhere = now.quiet && now.quiet.zone !== here ? `; this device is in ${here}` : "";
    setText(zone, `By the clock of ${now.quiet?.zone ?? here}${elsewhere}.`);
    setText(muted, `${counted(now.muted.length, "session")} muted`);
    mutes.hidden = !now.muted.length;
  };
  paint();
  return { node, paint };
}
