/** The scopes of a launch as typed arrays; `scope_columns.py` says how they were packed. */

import { TableReader } from "#codec";

/**
 * @typedef {Object} Ctas each with an item for each CTA of the launch; times in ns since the start of the launch
 * @property {number} length
 * @property {Int32Array} cta its number @property {Int32Array} sm
 * @property {Float64Array} begin @property {Float64Array} end of its work
 * @property {Float64Array} copied when its records were copied
 *
 * @typedef {Object} Scopes each with an item for each scope that ran, ordered by CTA row, warp and start, outer before
 *     inner; times in ns since the start of the launch
 * @property {number} length
 * @property {Float64Array} start @property {Float64Array} end as recorded
 * @property {Float64Array} duration without what its records cost
 * @property {Float64Array} self of that, outside inner ones
 * @property {Float64Array} cycles from start to end, as recorded
 * @property {Uint16Array} scope index in `meta.scopes` @property {Uint16Array} depth @property {Uint8Array} flags
 * @property {Int32Array} iteration -1 if there is none @property {Int32Array} cta @property {Int32Array} sm
 * @property {Int16Array} warp
 * @property {Uint32Array} track `CTA row × meta.warps.length + place of the warp in meta.warps`
 * @property {Uint32Array} trackStart of each track its first scope; has one item more than there are tracks
 * @property {Float64Array[]} tags the values of each scope's tags, in the order in which `meta.scopes` names them;
 *     UNKNOWN_TAG where there is none
 * @property {Ctas} ctas
 * @property {Object<string, Float64Array>} incomplete what warps lack: ctaRow, warp, written, lost, openStarts,
 *     strayEnds, damaged, lostStart, lostEnd
 */

/** Values take 32 bits. */
export const UNKNOWN_TAG = 2 ** 40;

/**
 * @param {Uint8Array} bytes
 * @param {{shown_scopes: number, warps: number[], clock_ghz: number, scopes: {tags: string[]}[]}} meta
 * @returns {Scopes}
 */
export function readScopes(bytes, meta) {
  const reader = new TableReader(bytes);
  const ctas = readCtas(reader);
  const incomplete = readIncomplete(reader);
  const mostTags = Math.max(...meta.scopes.map(({ tags }) => tags.length), 0);
  const scopes = emptyScopes(meta.shown_scopes, ctas.length * meta.warps.length, mostTags);
  const places = new Map(meta.warps.map((warp, place) => [warp, place]));
  const last = { start: 0, iteration: new Float64Array(1 << 16) };
  let row = 0;
  while (!reader.isAtEnd) {
    readTracks(reader, scopes, ctas, places, row);
    row += readBlock(reader, scopes, row, meta.clock_ghz, last);
  }
  // Counts until here; what follows makes of them where each track begins.
  let begin = 0;
  for (let track = 0; track < scopes.trackStart.length; track++) {
    const count = scopes.trackStart[track];
    scopes.trackStart[track] = begin;
    begin += count;
  }
  return Object.assign(scopes, { ctas, incomplete });
}

function readCtas(reader) {
  const length = reader.beginTable();
  const cta = sum(reader.column(new Int32Array(length)));
  const sm = reader.column(new Int32Array(length));
  const begin = sum(reader.column());
  const end = reader.column();
  const copied = reader.column();
  for (let row = 0; row < length; row++) {
    end[row] += begin[row];
    copied[row] += end[row];
  }
  return { length, cta, sm, begin, end, copied };
}

function readIncomplete(reader) {
  const length = reader.beginTable();
  const [ctaRow, warp, written, lost, openStarts, strayEnds, damaged] = Array.from({ length: 7 }, () =>
    reader.column(),
  );
  const lostStart = sum(reader.column());
  const lostEnd = reader.column().map((window, row) => lostStart[row] + window);
  return { length, ctaRow, warp, written, lost, openStarts, strayEnds, damaged, lostStart, lostEnd };
}

function emptyScopes(length, tracks, tags) {
  return {
    length,
    start: new Float64Array(length),
    end: new Float64Array(length),
    duration: new Float64Array(length),
    self: new Float64Array(length),
    cycles: new Float64Array(length),
    scope: new Uint16Array(length),
    depth: new Uint16Array(length),
    flags: new Uint8Array(length),
    iteration: new Int32Array(length),
    cta: new Int32Array(length),
    sm: new Int32Array(length),
    warp: new Int16Array(length),
    track: new Uint32Array(length),
    trackStart: new Uint32Array(tracks + 1),
    tags: Array.from({ length: tags }, () => new Float64Array(length)),
  };
}

function readTracks(reader, scopes, ctas, places, row) {
  const tracks = reader.beginTable();
  const ctaRow = reader.column();
  const warp = reader.column();
  const count = reader.column();
  for (let index = 0, begin = row; index < tracks; begin += count[index], index++) {
    const end = begin + count[index];
    const track = ctaRow[index] * places.size + places.get(warp[index]);
    scopes.trackStart[track] = count[index];
    scopes.track.fill(track, begin, end);
    scopes.cta.fill(ctas.cta[ctaRow[index]], begin, end);
    scopes.sm.fill(ctas.sm[ctaRow[index]], begin, end);
    scopes.warp.fill(warp[index], begin, end);
  }
}

function readBlock(reader, scopes, row, clockGhz, last) {
  const rows = reader.beginTable();
  const end = row + rows;
  const kind = reader.column(scopes.scope.subarray(row, end));
  reader.column(scopes.depth.subarray(row, end));
  reader.column(scopes.flags.subarray(row, end));
  const iteration = reader.column(scopes.iteration.subarray(row, end));
  const start = reader.column(scopes.start.subarray(row, end));
  const elapsed = reader.column(scopes.end.subarray(row, end));
  const duration = reader.column(scopes.duration.subarray(row, end));
  const self = reader.column(scopes.self.subarray(row, end));
  const cycles = reader.column(scopes.cycles.subarray(row, end));
  for (const values of scopes.tags) reader.column(values.subarray(row, end));
  last.iteration.fill(0);
  let at = 0;
  for (let index = 0; index < rows; index++) {
    at += start[index];
    start[index] = at;
    iteration[index] = last.iteration[kind[index]] += iteration[index];
    cycles[index] += Math.floor(elapsed[index] * clockGhz + 0.5);
    duration[index] = elapsed[index] - duration[index];
    self[index] = duration[index] - self[index];
    elapsed[index] += at;
  }
  return rows;
}

/** Differences become the values that they are between. */
function sum(column) {
  for (let row = 1; row < column.length; row++) column[row] += column[row - 1];
  return column;
}
