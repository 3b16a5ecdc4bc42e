// Show what a session has used as a line in its head, and in numbers on a sheet (D72).

import { button, factsOf, fill, h, setText } from "../parts/dom.js";
import { openSheet } from "../parts/sheet.js";
import { isPressing, usageFacts, usageWords } from "../parts/usage.js";

const ABOUT =
  "As far as its agent says. With a full context it shortens what was said before, or stops.";

/**
 * Make the line, whose sheet is kept true while it is open.
 *
 * @param {string} id
 * @param {Pick<App, "model">} _
 */
export function usageMark(id, { model }) {
  const facts = h("dl.facts");
  let shown = "";
  const node = button("button.quiet.small", () => {
    openSheet("What it has used", [facts, h("p.meta", {}, ABOUT)], [], () => {});
  });
  const paint = () => {
    const usage = model.home.sessions[id]?.usage;
    setText(node, usageWords(usage));
    node.hidden = !node.textContent;
    node.classList.toggle("warn", isPressing(usage));
    const now = usageFacts(usage);
    if (JSON.stringify(now) === shown) return;
    shown = JSON.stringify(now);
    fill(facts, factsOf(Object.fromEntries(now)));
  };
  paint();
  return { node, paint };
}
