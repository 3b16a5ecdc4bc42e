// Read the pairing link of the bridge's QR code: https://HOST/pair#v=1&token=…&url=wss://…&pin=…

/** @type {Record<string, RegExp>} */
const FORMS = {
  v: /^1$/,
  token: /^bridge_device_[A-Za-z0-9_-]{43}$/,
  url: /^wss:\/\/[^\s"'<>\\]+$/,
  pin: /^[0-9a-f]{64}$/,
};
/** @type {Record<string, string>} */
const NAMES = { v: "version", token: "token", url: "address", pin: "pin" };

/**
 * Read a pairing link, or only what follows its `#`.
 *
 * @param {string} text a whole link or its fragment
 * @param {string} host the host that served this client, with its port
 * @returns {{token: string, url: string, pin: string}}
 * @throws {Error} in words for a person, when the link is damaged or leads to another bridge
 */
export function readPairingLink(text, host) {
  const fragment = text.trim().split("#").at(-1) ?? "";
  if (!fragment.includes("=")) {
    throw new Error("This is no pairing link. Scan the code that “make qr” shows.");
  }
  // Split by hand: URLSearchParams would turn a "+" into a space.
  const found = Object.fromEntries(
    fragment.split("&").map((pair) => {
      const at = pair.indexOf("=");
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
  const wrong = Object.keys(FORMS).filter((key) => !FORMS[key].test(found[key] ?? ""));
  if (wrong.length) {
    const names = wrong.map((key) => NAMES[key]).join(", ");
    throw new Error(`The pairing code is damaged (${names}). Scan the whole code again.`);
  }
  const other = URL.canParse(found.url) ? new URL(found.url).host : "an unknown place";
  if (other !== host) {
    throw new Error(
      `This code belongs to the bridge at ${other}; this page came from ${host}. Open it there.`,
    );
  }
  return { token: found.token, url: found.url, pin: found.pin };
}
