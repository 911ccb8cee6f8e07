/** The TTGIR as shown: its rows, its code without locations, and the scopes around each line. */

const LOCATION = " loc(";
const MAX_LANES = 8;

/** The line without its locations: ` loc(…)`, with whatever braces and strings are in it. */
export function withoutLocations(line) {
  let kept = "";
  let at = 0;
  for (;;) {
    const begin = line.indexOf(LOCATION, at);
    if (begin < 0) return kept + line.slice(at);
    const end = closingBrace(line, begin + LOCATION.length);
    if (end < 0) return kept + line.slice(at);
    kept += line.slice(at, begin);
    at = end + 1;
  }
}

function closingBrace(line, from) {
  let depth = 1;
  for (let at = from; at < line.length; at++) {
    if (line[at] === '"') at = closingQuote(line, at + 1);
    else if (line[at] === "(") depth++;
    else if (line[at] === ")" && --depth === 0) return at;
  }
  return -1;
}

function closingQuote(line, from) {
  let at = from;
  while (at < line.length && line[at] !== '"') at += line[at] === "\\" ? 2 : 1;
  return at;
}

/** Returns whether the line defines a location. */
export function isLocation(line) {
  return line.startsWith("#loc");
}

/**
 * Rows to show: numbers of lines, or `[first, last]` of definitions of locations that are folded into one row.
 * @param {string[]} lines @param {boolean} isFolded
 */
export function rowsOf(lines, isFolded) {
  const rows = [];
  for (let line = 0; line < lines.length; line++) {
    const first = line;
    while (isFolded && line < lines.length && isLocation(lines[line])) line++;
    if (line > first + 1) rows.push([first, line - 1]);
    else if (line > first) rows.push(first);
    if (line < lines.length) rows.push(line);
  }
  return rows;
}

/** The row that a line is in. */
export function rowOfLine(rows, line) {
  let [low, high] = [0, rows.length];
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (firstLine(rows[middle]) <= line) low = middle;
    else high = middle;
  }
  return low;
}

export function firstLine(row) {
  return Array.isArray(row) ? row[0] : row;
}

/**
 * Which scopes' ranges a line is in: lanes side by side, in each of which no two overlap.
 * @param {[number, number][][]} sites ranges of lines by scope @param {number} count how many lines there are
 * @returns {{lanes: Int16Array[], starts: Map<number, number[]>}} by lane and line the scope, -1 where there is none; and
 *     the scopes that begin on a line
 */
export function lanesOf(sites, count) {
  const ranges = sites.flatMap((mine, scope) => mine.map(([first, last]) => ({ scope, first, last })));
  ranges.sort((one, other) => one.first - other.first || other.last - one.last || one.scope - other.scope);
  const lanes = [];
  const starts = new Map();
  for (const { scope, first, last } of ranges) {
    starts.set(first, [...(starts.get(first) ?? []), scope]);
    let lane = lanes.findIndex((taken) => taken.free <= first);
    if (lane < 0 && lanes.length < MAX_LANES) lane = lanes.push({ free: 0, scopes: new Int16Array(count).fill(-1) }) - 1;
    if (lane < 0) continue;
    lanes[lane].free = last + 1;
    lanes[lane].scopes.fill(scope, first, last + 1);
  }
  return { lanes: lanes.map(({ scopes }) => scopes), starts };
}
