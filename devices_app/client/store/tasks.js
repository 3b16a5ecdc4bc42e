// Fold what an agent plans into one card of its turn, and what its subagents do into one row for
// each. Pure.

const STARTS = ["Agent", "Task"]; // the tools that start a subagent
const DEFAULT = "general-purpose"; // where a call names no type
const WRITES = ["TaskCreate", "TaskUpdate"]; // those that write the agent's list of tasks

/**
 * Change an item, so that a view knows, and the rows that it stands in.
 *
 * @template T
 * @param {T & { version: number; row?: Tool }} item @param {Partial<T>} fields
 */
export function change(item, fields = {}) {
  Object.assign(item, fields);
  for (let one = /** @type {any} */ (item); one; one = one.row) one.version += 1;
}

/** @param {unknown} one @returns {one is Free} */
const isObject = (one) => one instanceof Object;

/**
 * Return the card on which a call's plan stands already in this turn.
 *
 * @param {Chat} chat @param {ToolNews} _
 */
export const planOf = (chat, { tool, agent }) =>
  tool === "TodoWrite" ? chat.plans.get(agent?.id ?? "") : undefined;

/**
 * Show a call of TodoWrite as the plan of its turn.
 *
 * @param {Chat} chat @param {Tool} item @param {ToolNews} _
 */
export function takePlan(chat, item, { tool, agent, params }) {
  if (tool !== "TodoWrite") return;
  chat.plans.set(agent?.id ?? "", item);
  if (Array.isArray(params?.todos)) item.steps = params.todos.filter(isObject).map(stepOf);
}

/** @param {Free} _ @returns {PlanStep} */
const stepOf = ({ content, status, activeForm }) => ({
  text: String(status === "in_progress" && activeForm ? activeForm : content),
  status: String(status),
});

/**
 * Note what a call has changed in the list of tasks, and show the list on the card of this turn.
 * One that failed stays a call.
 *
 * @param {Chat} chat @param {Tool} item of the call, which has ended
 */
export function takeTask(chat, item) {
  if (!WRITES.includes(item.tool) || !item.ok) return;
  const { taskId, subject, activeForm, status } = item.params;
  const id = taskId ?? /^Task #(\S+) created/.exec(item.output)?.[1];
  if (id === undefined) return;
  const known = chat.tasks.get(String(id)) ?? { content: `Task #${id}`, status: "pending" };
  const news = { content: subject, activeForm, status };
  const given = Object.entries(news).filter(([, value]) => typeof value === "string" && value);
  chat.tasks.set(String(id), { ...known, past: false, ...Object.fromEntries(given) });
  const card = chat.plans.get("tasks");
  if (card && card !== item) {
    drop(item.row?.calls ?? chat.items, item);
    chat.byKey.set(item.key, card);
    if (item.row) change(item.row);
  }
  chat.plans.set("tasks", card ?? item);
  const tasks = [...chat.tasks.values()];
  const steps = tasks.filter((one) => !one.past && one.status !== "deleted").map(stepOf);
  change(card ?? item, { steps });
}

/**
 * Begin a turn: it has plans of its own, and what was done before is past.
 *
 * @param {Chat} chat
 */
export function beginPlans(chat) {
  chat.plans.clear();
  for (const one of chat.tasks.values()) one.past = one.status === "completed";
}

/** @template T @param {T[]} list @param {T} one */
const drop = (list, one) => list.splice(list.indexOf(one), 1);

/** @param {Tool} item */
export const isSubagent = ({ tool }) => STARTS.includes(tool);

/**
 * Find the row of the subagent whose call it is: the call that started it. Its id is the subagent's
 * in a session of the bridge; one at the machine is known by its type while one of that type
 * starts, and when the call that started it says which it was. `make` makes a row until then.
 *
 * @param {Chat} chat @param {Wire.SubAgent} agent @param {() => Tool} make @returns {Tool}
 */
export function rowOf(chat, { id, type }, make) {
  let row = chat.subagents.get(id) ?? chat.byKey.get(`t:${id}`);
  if (!row) {
    const taken = new Set(chat.subagents.values());
    const open = [...chat.byKey.values()].filter(
      (one) =>
        one.kind === "tool" &&
        isSubagent(one) &&
        !one.done &&
        !taken.has(one) &&
        (one.params.subagent_type ?? DEFAULT) === type,
    );
    row = open.length === 1 ? open[0] : make();
  }
  chat.subagents.set(id, row);
  row.calls ??= [];
  if (row.background || !row.callId) row.done = false; // it was sent on
  return row;
}

/**
 * Note which subagent a call has started, as its result says.
 *
 * @param {Chat} chat @param {Tool} item @param {Free | null} [metadata]
 */
export function takeSubagent(chat, item, metadata) {
  const id = metadata?.agent_id;
  if (!isSubagent(item) || typeof id !== "string") return;
  const known = chat.subagents.get(id);
  item.background = metadata?.background === true;
  item.calls ??= [];
  if (known && !known.callId) {
    for (const one of known.calls ?? []) one.row = item;
    item.calls.push(...(known.calls ?? []));
    drop(chat.items, known);
    chat.byKey.delete(known.key);
  }
  chat.subagents.set(id, item);
  if (item.background) change(item, { done: known?.done ?? false });
}

/**
 * End a subagent at the machine; tells whether it has a row.
 *
 * @param {Chat} chat @param {unknown} id
 */
export function endSubagent(chat, id) {
  const row = chat.subagents.get(String(id));
  if (row && (row.background || !row.callId)) change(row, { done: true });
  return row !== undefined;
}
