// Pair a new browser: its first screen, which takes a pairing link.

import { isIOS } from "../net/requests.js";
import { lostDevice } from "../net/storage.js";
import { button, field, form, h, icon, setText } from "../parts/dom.js";
import { oneLine } from "../parts/text.js";
import { readPairingLink } from "../protocol/pairing.js";

const HOME_SCREEN =
  "An app on the Home Screen keeps its own storage. To use one, add this page first " +
  "(Share, Add to Home Screen), open it from there, and paste the link in it.";

/**
 * Ask for a pairing link: pasted, or scanned where the browser can; then call `paired`.
 *
 * @param {Model} model
 * @param {() => void} paired
 */
export function welcomeView(model, paired, problem = "") {
  const said = h("p.status", { role: "alert" }, problem);
  const lost = model.identity ? null : lostDevice();
  const like = { id: "link", type: "text", placeholder: "https://…/pair#v=1&token=…" };
  const input = field("input", like);
  /** @param {string} link */
  const use = async (link) => {
    try {
      await model.pair(readPairingLink(link, location.host));
    } catch (/** @type {any} */ error) {
      setText(said, error.message);
      return;
    }
    paired();
  };
  const paste = async () => {
    try {
      input.value = await navigator.clipboard.readText();
    } catch {
      setText(said, "This browser lets no page read the clipboard. Paste the link into the field.");
      input.focus();
      return;
    }
    await use(input.value);
  };
  return {
    node: h(
      "main.welcome",
      {},
      h("h1", { tabindex: "-1" }, lost ? "Pair this device again" : "Pair this device"),
      lost && lostText(lost),
      h("p", {}, "Scan the QR code that “make qr” shows, or paste its link here."),
      isIOS && !matchMedia("(display-mode: standalone)").matches && h("p.meta", {}, HOME_SCREEN),
      form(
        "form",
        () => use(input.value),
        button("button.primary.wide", paste, icon("copy"), "Paste pairing link"),
        scanner(use, said),
        h("label", { for: "link" }, "Or type or paste it here"),
        input,
        h("button.wide", { type: "submit" }, "Pair"),
        said,
      ),
    ),
  };
}

/** @param {Lost} lost */
const lostText = ({ name, at }) => [
  h(
    "p.warn",
    {},
    `This browser has deleted what it kept of the bridge: the pairing of “${oneLine(name)}”, what ` +
      "was received, and messages that were not sent yet. It was here last on " +
      `${new Date(at).toLocaleString()}.`,
  ),
  h(
    "p.meta",
    {},
    "At the bridge nothing is lost. It still knows that device: when you have paired anew, revoke " +
      "the old one on the admin site.",
  ),
];

// A button that reads the code with the camera, where the browser can read codes.
/** @param {(link: string) => Promise<void>} use @param {Element_} said */
function scanner(use, said) {
  if (!("BarcodeDetector" in window) || !navigator.mediaDevices) return null;
  const video = h("video", { playsinline: true, muted: true, hidden: true });
  const scan = async () => {
    try {
      const link = await readCode(video);
      if (link) await use(link);
    } catch (/** @type {any} */ error) {
      setText(said, `The camera cannot be used: ${error.message}`);
    }
  };
  return h("div.scan", {}, button("button.wide", scan, "Scan"), video);
}

// The first code that the camera sees; "" when the screen was left.
/** @param {Element_} video */
async function readCode(video) {
  const detector = new /** @type {any} */ (window).BarcodeDetector({ formats: ["qr_code"] });
  const camera = { facingMode: "environment" };
  const stream = await navigator.mediaDevices.getUserMedia({ video: camera });
  try {
    video.srcObject = stream;
    video.hidden = false;
    await video.play();
    while (video.isConnected) {
      const [code] = await detector.detect(video);
      if (code) return code.rawValue;
      await new Promise(requestAnimationFrame);
    }
    return "";
  } finally {
    stream.getTracks().forEach((track) => track.stop());
    video.hidden = true;
  }
}
