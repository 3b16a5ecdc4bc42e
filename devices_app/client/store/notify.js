// Go by what this device has chosen to be told (D74), for what the page says itself.

/**
 * Tell whether something may be said now, by the choices that the bridge keeps for this device.
 *
 * @param {Wire.Notify | undefined} chosen none: an older bridge
 * @param {Wire.Notify["kinds"][number]} kind
 * @param {string} session
 * @param {string} [risk]
 */
export function mayTell(chosen, kind, session, risk = "", now = new Date()) {
  if (!chosen) return true;
  if (!chosen.kinds.includes(kind)) return false;
  if (kind === "approval_required" && (risk === "high" || risk === "critical")) return true;
  return !chosen.muted.includes(session) && !isQuiet(chosen.quiet, now);
}

/**
 * Tell whether the clock of the zone shows a time of the quiet hours.
 *
 * @param {Wire.QuietHours | null} quiet
 * @param {Date} now
 */
function isQuiet(quiet, now) {
  if (!quiet) return false;
  const { from, to, zone: timeZone } = quiet;
  /** @type {Intl.DateTimeFormatOptions} */
  const like = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone };
  const shows = now.toLocaleTimeString("en-GB", like);
  return from < to ? from <= shows && shows < to : shows >= from || shows < to;
}
