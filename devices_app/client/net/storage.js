// Ask the browser to keep what is stored here, and know again whose it was when it did not: a
// cookie, which browsers do not delete with the rest, has the device's name and nothing secret.

const NOTE = `bridge-device-${location.port}`; // cookies know no ports: a host may have two bridges
const NOTE_SECONDS = 400 * 24 * 3600; // the longest that browsers keep one

/** @returns {Lost | null} */
export function lostDevice() {
  const found = document.cookie.split("; ").find((one) => one.startsWith(`${NOTE}=`));
  try {
    return found ? JSON.parse(decodeURIComponent(found.slice(NOTE.length + 1))) : null;
  } catch {
    return null; // not written here
  }
}

/** @param {string} value @param {number} seconds */
function writeNote(value, seconds) {
  // biome-ignore lint/suspicious/noDocumentCookie: Safari 17 and Firefox 125 have no other way.
  document.cookie = `${NOTE}=${value}; max-age=${seconds}; path=/app/; secure; samesite=strict`;
}

/** Forget the device on purpose: nothing is missed here. */
export const forgetDevice = () => writeNote("", 0);

/**
 * Return the device whose data was lost before this one was paired, or null.
 *
 * @param {Model} model @returns {Promise<Lost | null>}
 */
export async function lossOf(model) {
  // Not asked yet: the note is still of the device before.
  if (!(await model.db.get("persist"))) await model.db.set("lost", lostDevice());
  return model.db.get("lost");
}

/**
 * Note the device's name at each connection; ask for lasting storage once, after pairing.
 *
 * @param {Model} model
 */
export async function keepStorage(model) {
  await lossOf(model);
  const asked = await model.db.get("persist");
  await model.db.set("persist", "asked");
  const note = () => {
    const { device: name } = model.home;
    const about = { name, at: new Date().toISOString() };
    if (name && model.identity) writeNote(encodeURIComponent(JSON.stringify(about)), NOTE_SECONDS);
  };
  note();
  model.follow(({ connection }) => connection?.phase === "ready" && note());
  if (model.db.lasting && !asked) await navigator.storage?.persist?.();
}
