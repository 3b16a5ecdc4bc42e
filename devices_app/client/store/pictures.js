// Find an agent's pictures in what it says. Pure.

/**
 * Find the pictures that stand in a JSON value in place of their bytes.
 *
 * @param {unknown} value @returns {Attached[]}
 */
export function picturesIn(value) {
  /** @type {Attached[]} */
  const found = [];
  const waiting = [value];
  while (waiting.length) {
    const one = /** @type {any} */ (waiting.pop());
    if (!one || typeof one !== "object") continue;
    const { type, attachment_id: id, media_type, size } = one;
    if (type === "image" && typeof id === "string")
      found.push({ attachment_id: id, type: String(media_type), size: Number(size), name: "" });
    else waiting.push(...Object.values(one).reverse());
  }
  return found;
}
