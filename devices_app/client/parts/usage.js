// Say what a session has used: of its context, of its agent's limits, and what it has cost (D72).

import { contextShare, FULL } from "../store/home.js";
import { clock, dotted, oneLine } from "./text.js";

const RANKS = { ok: 0, near: 1, reached: 2 };

/** @param {number} share */
const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

/** @param {Wire.UsageLimit} _ @param {number} now */
const until = ({ resets_at: at }, now) => (at ? clock(at, now) : "");

// Those that have not ended, the one that is felt first at the front.
/** @param {Wire.Usage | null | undefined} usage @param {number} now */
const standing = (usage, now) =>
  (usage?.limits ?? [])
    .filter(({ resets_at: at }) => !at || Date.parse(at) > now)
    .sort((a, b) => RANKS[b.status] - RANKS[a.status] || (b.used ?? 0) - (a.used ?? 0));

/** @param {Wire.UsageLimit} _ */
const degree = ({ status, used }) =>
  status === "reached"
    ? "reached"
    : used !== undefined
      ? percent(used)
      : status === "near"
        ? "nearly reached"
        : "";

/**
 * Say it in one line: "62 % of its context · limit 80 %, until 14:00"; or nothing.
 *
 * @param {Wire.Usage | null | undefined} usage
 */
export function usageWords(usage, now = Date.now()) {
  const { context_tokens: tokens = 0, cost_usd: cost = 0 } = usage ?? {};
  const share = contextShare(usage);
  const thousands = `${Math.round(tokens / 1000)}k tokens of context`;
  const limit = standing(usage, now).find(degree);
  const end = limit && until(limit, now);
  return (
    dotted(
      tokens > 0 && (share === null ? thousands : `${percent(share)} of its context`),
      limit && `limit ${degree(limit)}${end && `, until ${end}`}`,
    ) || (cost > 0 ? `$${cost.toFixed(2)}` : "")
  );
}

/**
 * Tell whether a person should look: the context is nearly full, or a limit near or reached.
 *
 * @param {Wire.Usage | null | undefined} usage
 */
export const isPressing = (usage, now = Date.now()) =>
  (contextShare(usage) ?? 0) >= FULL || standing(usage, now).some(({ status }) => status !== "ok");

/**
 * The same in numbers, as terms and descriptions.
 *
 * @param {Wire.Usage | null | undefined} usage
 * @returns {[string, string][]}
 */
export function usageFacts(usage, now = Date.now()) {
  const { context_tokens: tokens = 0, context_window: all = 0, cost_usd: cost = 0 } = usage ?? {};
  const share = contextShare(usage);
  const of = all > 0 ? ` of ${all.toLocaleString()}` : "";
  return /** @type {[string, string][]} */ (
    [
      ["Context", tokens > 0 && `${tokens.toLocaleString()}${of} tokens`],
      ["Part used", share !== null && tokens > 0 && percent(share)],
      ["Cost", cost > 0 && `$${cost.toFixed(2)}`],
      ...standing(usage, now).map((limit) => [
        `Limit: ${oneLine(limit.name).replaceAll("_", " ")}`,
        dotted(
          degree(limit) || "not near",
          limit.status === "near" && limit.used !== undefined && "nearly reached",
          limit.status === "reached" && limit.used !== undefined && `${percent(limit.used)} used`,
          until(limit, now) && `until ${until(limit, now)}`,
        ),
      ]),
    ].filter(([, fact]) => fact)
  );
}
