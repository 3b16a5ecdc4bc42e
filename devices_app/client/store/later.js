// Read and write the times that messages wait for. Pure.

export const DAYS = 7; // as long as the bridge lets one wait

/**
 * Return when the agent's limit ends, as far as it has said: one that is reached, else one near.
 *
 * @param {Wire.Usage | null | undefined} usage
 */
export function limitEnd(usage, now = Date.now()) {
  for (const wanted of ["reached", "near"]) {
    const ends = (usage?.limits ?? []).map(({ status, resets_at: at }) =>
      status === wanted ? Date.parse(at ?? "") : 0,
    );
    const last = Math.max(0, ...ends.filter((at) => at > now));
    if (last) return new Date(last).toISOString();
  }
  return "";
}

/**
 * Write a moment as a field for date and time takes it: by this device's clock.
 *
 * @param {number} at
 */
export const fieldTime = (at) =>
  new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
