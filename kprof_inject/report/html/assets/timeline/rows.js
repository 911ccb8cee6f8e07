/**
 * The rows from top to bottom, and their positions: SMs, the CTAs of open SMs, the warps of open CTAs, and below these the
 * work in flight.
 */

export const SM = 0;
export const CTA = 1;
export const WARP = 2;
export const FLIGHT = 3;

/** Heights in CSS pixels. */
export const LEVEL = 17;
const HEADER = 21;
const LANE = 11;
const THIN_LANE = 5;
const GAP = 5;
const THICK_LANES = 3;

/** How high one lane of CTAs is in an SM's row. */
export function laneHeight(lanes) {
  if (lanes === 1) return HEADER - GAP;
  return lanes <= THICK_LANES ? LANE : THIN_LANE;
}

/**
 * @typedef {Object} Rows
 * @property {number} count
 * @property {Uint8Array} kind SM, CTA, WARP or FLIGHT
 * @property {Uint32Array} ref the SM's place in the groups, the CTA's row, the track, or the CTA's row again
 * @property {Float64Array} y where each begins; has one item more than there are rows, the height of all
 */

/**
 * @param {import("#timeline/model").TimelineModel} model
 * @param {{sms: Set<number>, ctas: Set<number>}} open places of SMs, and rows of CTAs
 * @returns {Rows}
 */
export function layoutRows(model, open) {
  const { groups, warps, flightLanes } = model;
  let count = groups.length;
  for (const group of open.sms) count += groups.start[group + 1] - groups.start[group];
  for (const cta of open.ctas) if (open.sms.has(groups.groupOfCta[cta])) count += warps.length + Number(flightLanes.has(cta));
  const rows = { count, kind: new Uint8Array(count), ref: new Uint32Array(count), y: new Float64Array(count + 1) };
  let at = 0;
  const add = (kind, ref, height) => {
    rows.kind[at] = kind;
    rows.ref[at] = ref;
    rows.y[at + 1] = rows.y[at] + height;
    at++;
  };
  const warpHeight = model.levelCount * LEVEL + GAP;
  for (let group = 0; group < groups.length; group++) {
    const lanes = groups.laneStart[group + 1] - groups.laneStart[group];
    add(SM, group, Math.max(HEADER, lanes * laneHeight(lanes) + GAP));
    if (!open.sms.has(group)) continue;
    for (let place = groups.start[group]; place < groups.start[group + 1]; place++) {
      const cta = groups.order[place];
      add(CTA, cta, HEADER);
      if (!open.ctas.has(cta)) continue;
      for (let warp = 0; warp < warps.length; warp++) add(WARP, cta * warps.length + warp, warpHeight);
      if (flightLanes.has(cta)) add(FLIGHT, cta, flightLanes.of(cta).length * LEVEL + GAP);
    }
  }
  return rows;
}

/** The row at this height, or -1. @param {Rows} rows */
export function rowAt(rows, y) {
  if (y < 0 || y >= rows.y[rows.count]) return -1;
  let [low, high] = [0, rows.count];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (rows.y[middle] <= y) low = middle;
    else high = middle;
  }
  return low;
}

/** Where the row of this kind and `ref` is, or -1. @param {Rows} rows */
export function findRow(rows, kind, ref) {
  for (let row = 0; row < rows.count; row++) {
    if (rows.ref[row] === ref && rows.kind[row] === kind) return row;
  }
  return -1;
}
