// Where rows stand in a session that is partly known. Pure.

/**
 * Give places to rows that came in one replay: known ones keep theirs, unknown ones go between
 * their known neighbours, so that history from before this device was paired stands before the rest.
 *
 * @param {{id: string}[]} rows in the order of the log
 * @param {Map<string, number>} known place of each row that is kept already
 * @param {number} last the greatest place so far
 * @param {number | null} before place of the row that is kept before the first known one, if any
 * @returns {{id: string, place: number}[]} the unknown rows with their places
 */
export function placeRows(rows, known, last, before = null) {
  const placed = [];
  for (let start = 0; start < rows.length;) {
    if (known.has(rows[start].id)) {
      start += 1;
      continue;
    }
    let end = start;
    while (end < rows.length && !known.has(rows[end].id)) end += 1;
    const left = start > 0 ? known.get(rows[start - 1].id) : before;
    const right = end < rows.length ? known.get(rows[end].id) : null;
    const count = end - start;
    for (let index = 0; index < count; index += 1) {
      placed.push({
        id: rows[start + index].id,
        place: between(left, right, last, index, count),
      });
    }
    start = end;
  }
  return placed;
}

function between(left, right, last, index, count) {
  if (right === null) return last + index + 1;
  if (left === null) return right - count + index;
  return left + ((right - left) * (index + 1)) / (count + 1);
}
