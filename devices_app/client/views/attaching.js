// Choose files for a message: each is a chip, and a large picture is made smaller first.

import { button, fill, h, icon, toast } from "../parts/dom.js";
import { fitted, HEAD_BYTES, pictureOf } from "../parts/picture.js";
import { bytes, oneLine, visibleName } from "../parts/text.js";

const AT_MOST = 10; // of a message, as the bridge takes
const MOST_BYTES = 10 * 2 ** 20;
const TOO_LARGE = { words: "is larger than 10 MB." };
const LONGEST = 2000; // pixels: no model sees more
const QUALITY = 0.85;

/**
 * Make the chips of what goes with the next message; `changed` is called when they are others.
 *
 * @param {() => void} changed
 */
export function attaching(changed) {
  /** @type {(Attaching & { ready: boolean })[]} */
  let files = [];
  const node = h("ul.chips", { "aria-label": "Attached" });

  const paint = () => {
    node.hidden = files.length === 0;
    fill(
      node,
      files.map((file) => {
        const remove = button("button.round.quiet", () => drop(file), "✕");
        remove.setAttribute("aria-label", `Remove ${oneLine(file.name)}`);
        const size = h("span.meta", {}, file.ready ? bytes(file.size) : "Reading…");
        return h(
          "li.chip",
          {},
          icon("file"),
          h("span.name", {}, visibleName(file.name)),
          size,
          remove,
        );
      }),
    );
    changed();
  };

  /** @param {Attaching} file */
  const drop = (file) => {
    files = files.filter((one) => one !== file);
    paint();
  };

  /** @param {File} given */
  const read = async (given) => {
    const file = { id: crypto.randomUUID(), name: given.name || "file", size: given.size };
    const chip = {
      ...file,
      attachment_id: "",
      blob: /** @type {Blob | null} */ (null),
      ready: false,
    };
    files.push(chip);
    paint();
    try {
      const { blob, name } = await prepared(given);
      Object.assign(chip, { blob, name, size: blob.size, ready: true });
      paint();
    } catch (/** @type {any} */ error) {
      drop(chip);
      toast(`${oneLine(chip.name)} ${error.words ?? "could not be read."}`, "warn");
    }
  };

  /** @param {Iterable<File>} given */
  const add = (given) => {
    const all = [...given];
    const room = AT_MOST - files.length;
    if (all.length > room) toast(`A message takes ${AT_MOST} files at most.`, "warn");
    return Promise.all(all.slice(0, room).map(read));
  };

  return {
    node,
    add,
    /** Whether it may be sent: nothing is being read any more. */
    get isReady() {
      return files.every(({ ready }) => ready);
    },
    /** @returns {Attaching[]} */
    get files() {
      return files.map(({ ready, ...file }) => file);
    },
    clear() {
      files = [];
      paint();
    },
    /** @param {Attaching[]} back */
    put(back) {
      files = [...back.map((file) => ({ ...file, ready: true })), ...files].slice(0, AT_MOST);
      paint();
    },
  };
}

/** @param {Attached[]} attached @returns {Attaching[]} */
export const attachedBefore = (attached) =>
  attached.map(({ attachment_id, name, size }) => {
    const id = crypto.randomUUID();
    return { id, name, size, attachment_id, blob: null };
  });

// The bytes are read now: a file may change, or be taken away, before it is sent.
/** @param {File} file */
async function prepared(file) {
  const head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  const found = pictureOf(head);
  const isLarge = found && Math.max(found.width, found.height) > LONGEST;
  // One that cannot be drawn goes as it is.
  const goes = !isLarge || found.type === "image/gif";
  const made = goes ? null : await smaller(file).catch(() => null);
  if ((made?.blob ?? file).size > MOST_BYTES) throw TOO_LARGE;
  return made ?? { blob: new Blob([await file.arrayBuffer()]), name: file.name || "file" };
}

/** @param {File} file */
async function smaller(file) {
  const bitmap = await createImageBitmap(file);
  const { width, height } = fitted(bitmap, LONGEST);
  const canvas = /** @type {HTMLCanvasElement} */ (
    /** @type {unknown} */ (h("canvas", { width, height }))
  );
  const drawn = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  drawn.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data } = drawn.getImageData(0, 0, width, height);
  const type = isOpaque(data) ? "image/jpeg" : "image/png";
  /** @type {Blob | null} */
  const blob = await new Promise((done) => canvas.toBlob(done, type, QUALITY));
  if (!blob) throw new Error("no picture");
  const stem = file.name.replace(/\.\w{1,5}$/, "") || "picture";
  return { blob, name: `${stem}.${type === "image/jpeg" ? "jpg" : "png"}` };
}

/** @param {Uint8ClampedArray} pixels */
function isOpaque(pixels) {
  for (let at = 3; at < pixels.length; at += 4) if (pixels[at] < 255) return false;
  return true;
}
