/** The rows of a source file: its lines, and gaps where it was cut. Nothing here draws. */

/**
 * @typedef {{number: number, parts: [string | null, string][], text: string}} LineRow
 * @typedef {{gap: number}} GapRow how many lines are left out
 */

/**
 * @param {{pieces: [number, string[]][], timed: {line: number}[]}} file a `SourceFile` of page_schema.py
 * @param {(lines: string[]) => [string | null, string][][]} partsOf
 * @returns {(LineRow | GapRow)[]} without any text of the file, the lines with scopes
 */
export function sourceRows({ pieces, timed }, partsOf) {
  const shown = pieces.length ? pieces : timed.map(({ line }) => [line, [""]]);
  const rows = [];
  let next = 1;
  for (const [first, lines] of shown) {
    if (first > next) rows.push({ gap: first - next });
    const parts = partsOf(lines);
    lines.forEach((text, index) => rows.push({ number: first + index, text, parts: parts[index] }));
    next = first + lines.length;
  }
  return rows;
}

/** The lines of the TTGIR that come from each line of the source, by `path:line`. */
export function ttgirLinesBySource(ttgir, placeOf) {
  const found = new Map();
  if (!ttgir) return found;
  const keys = ttgir.places.map(([path, line]) => `${path}:${line}`);
  placeOf.forEach((place, line) => {
    if (place < 0) return;
    const lines = found.get(keys[place]);
    if (lines) lines.push(line);
    else found.set(keys[place], [line]);
  });
  return found;
}
