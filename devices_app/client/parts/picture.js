// Read a picture's kind and size from its first bytes, whatever its name says. Pure.

export const HEAD_BYTES = 1 << 20; // a JPEG's size stands behind what its camera says
const MOST_PIXELS = 50_000_000; // a larger one takes a phone's memory

/** @param {Uint8Array} bytes @param {number} at @param {number} count */
const text = (bytes, at, count) => String.fromCharCode(...bytes.subarray(at, at + count));

/**
 * Return what a picture is, or null: for what is none, is cut off before its size, or is too large.
 *
 * @param {Uint8Array} bytes its first ones
 * @returns {Picture | null}
 */
export function pictureOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    const found = read(bytes, view);
    const isUsable = found && found.width > 0 && found.height > 0;
    return isUsable && found.width * found.height <= MOST_PIXELS ? found : null;
  } catch (/** @type {any} */ error) {
    if (error instanceof RangeError) return null; // it ends before its size
    throw error;
  }
}

/** @param {Uint8Array} bytes @param {DataView} view @returns {Picture | null} */
function read(bytes, view) {
  if (text(bytes, 0, 8) === "\x89PNG\r\n\x1a\n")
    return { type: "image/png", width: view.getUint32(16), height: view.getUint32(20) };
  if (/^GIF8[79]a$/.test(text(bytes, 0, 6))) return { type: "image/gif", ...gifSize(view) };
  if (text(bytes, 0, 4) === "RIFF" && text(bytes, 8, 4) === "WEBP")
    return { type: "image/webp", ...webpSize(bytes, view) };
  if (text(bytes, 0, 3) === "\xff\xd8\xff") return { type: "image/jpeg", ...jpegSize(view) };
  return null;
}

// Of the screen, or of a first frame that is larger: browsers draw that.
/** @param {DataView} view */
function gifSize(view) {
  const flags = view.getUint8(10);
  let at = 13 + (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0); // behind its colours
  while (view.getUint8(at) === 0x21) {
    at += 2; // an extension: its kind, and blocks
    while (view.getUint8(at)) at += 1 + view.getUint8(at);
    at += 1;
  }
  const isFrame = view.getUint8(at) === 0x2c;
  const [left, top, wide, high] = [1, 3, 5, 7].map((by) =>
    isFrame ? view.getUint16(at + by, true) : 0,
  );
  return {
    width: Math.max(view.getUint16(6, true), left + wide),
    height: Math.max(view.getUint16(8, true), top + high),
  };
}

/** @param {Uint8Array} bytes @param {DataView} view */
function webpSize(bytes, view) {
  const kind = text(bytes, 12, 4);
  if (kind === "VP8X") {
    const [wide, high] = [24, 27].map((at) => view.getUint32(at, true) & 0xffffff);
    return { width: wide + 1, height: high + 1 };
  }
  if (kind === "VP8L") {
    const both = view.getUint32(21, true);
    return { width: (both & 0x3fff) + 1, height: ((both >> 14) & 0x3fff) + 1 };
  }
  return { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
}

// The size stands in a start of frame, one of C0 to CF without DHT, JPG and DAC.
/** @param {DataView} view */
function jpegSize(view) {
  let at = 2;
  for (;;) {
    const mark = view.getUint8(at + 1);
    if (view.getUint8(at) !== 0xff) return { width: 0, height: 0 };
    if (mark === 0xff) at += 1;
    else if (mark < 2 || (mark >= 0xd0 && mark <= 0xd9))
      at += 2; // it has no length
    else if (mark >= 0xc0 && mark <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(mark))
      return { width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
    else at += 2 + view.getUint16(at + 2);
  }
}

/**
 * Return the size of a picture of which no side is longer than `longest`.
 *
 * @param {{ width: number; height: number }} _ @param {number} longest
 */
export function fitted({ width, height }, longest) {
  const by = Math.min(1, longest / Math.max(width, height));
  const [wide, high] = [width, height].map((side) => Math.max(1, Math.round(side * by)));
  return { width: wide, height: high };
}
