// Where rows stand in a session that is partly known. Pure.

/**
 * Give places to rows that came in one replay: known ones keep theirs, unknown ones go between
 * their known neighbours, so that history from before this device was paired stands before the rest.
 *
 * @param {{id: string}[]} rows in the order of the log
 * @param {Map<string, number>} known place of each row that is kept already
 * @param {number} last the greatest place so far
 * @returns {{id: string, place: number}[]} the unknown rows with their places
 */
export function placeRows(rows, known, last) {
  const placed = [];
  for (let start = 0; start < rows.length;) {
    if (known.has(rows[start].id)) {
      start += 1;
      continue;
    }
    let end = start;
    while (end < rows.length && !known.has(rows[end].id)) end += 1;
    const before = start > 0 ? known.get(rows[start - 1].id) : null;
    const after = end < rows.length ? known.get(rows[end].id) : null;
    const count = end - start;
    for (let index = 0; index < count; index += 1) {
      placed.push({
        id: rows[start + index].id,
        place: between(before, after, last, index, count),
      });
    }
    start = end;
  }
  return placed;
}

function between(before, after, last, index, count) {
  if (after === null) return Math.max(before ?? last, last) + index + 1;
  if (before === null) return after - count + index;
  return before + ((after - before) * (index + 1)) / (count + 1);
}
