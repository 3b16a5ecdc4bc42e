// Show the calls of a subagent below its row: all of them once it was tapped, before that those
// that wait for somebody.

import { h, keyed, pager } from "../parts/dom.js";
import { callLine, oneLine, subagentOf } from "../parts/text.js";

const CALLS = 50; // of a subagent, the newest, at first

/** @param {Tool} _ @returns {boolean} */
const waits = ({ asked, decision, done, calls }) =>
  (asked && !decision && !done) || (calls ?? []).some(waits);

/**
 * Name a subagent by its job, else by its type.
 *
 * @param {Tool} _
 */
export const jobOf = ({ params, agent, callId }) =>
  callId
    ? `Subagent: ${oneLine(params.description || params.subagent_type || params.prompt)}`
    : subagentOf(agent).replace(/^s/, "S").replace(" ", ": ");

/**
 * Say what a subagent does now, or did last.
 *
 * @param {Tool} _
 */
export function nowOf({ calls = [], done }) {
  const last = calls.findLast(({ tool }) => tool !== "TodoWrite");
  return last && !done ? callLine(last.tool, last.params, last.description) : "";
}

/**
 * Show its calls in the node of its row.
 *
 * @param {Element_} node @param {Tool} item
 * @param {Omit<Keyed<Tool>, "key">} _ makes and updates the node of a call
 */
export function showCalls(node, item, { make, update }) {
  node.calls ??= h("ol.calls", { "aria-label": "Calls of the subagent" });
  node.pager ??= pager(CALLS, "earlier calls", (to) => {
    const isOpen = node.querySelector("details")?.open;
    const all = node.item.calls;
    const shown = isOpen ? all.slice(-to) : all.filter(waits);
    keyed(node.calls, shown, { key: ({ key }) => key, make, update });
    node.calls.hidden = !shown.length;
    return isOpen ? all.length : 0;
  });
  node.item = item;
  if (!node.calls.isConnected) node.append(node.pager.more, node.calls);
  node.pager.show();
}
