/** Finds the item under the pointer. */

import { firstEndingAfter } from "#timeline/paint";
import { CTA, FLIGHT, LEVEL, SM, WARP, laneHeight, rowAt } from "#timeline/rows";

/** In CSS pixels: what is narrower than this can still be pointed at. */
const REACH = 2.5;

/**
 * @typedef {Object} Hit
 * @property {number} row
 * @property {number} kind of the row: SM, CTA, WARP or FLIGHT
 * @property {number} ref of the row
 * @property {number} [scope] which scope @property {number} [cta] which CTA, by row
 * @property {number} [flight] which row of `flights`
 * @property {number} [lost] which row of `incomplete`, in a window where records were lost
 */

/**
 * @param {import("#timeline/model").TimelineModel} model
 * @param {import("#timeline/rows").Rows} rows
 * @param {number} ns @param {number} y in the rows, in CSS pixels @param {number} nsPerPixel
 * @returns {Hit | null}
 */
export function hitAt(model, rows, ns, y, nsPerPixel) {
  const row = rowAt(rows, y);
  if (row < 0) return null;
  const kind = rows.kind[row];
  const ref = rows.ref[row];
  return { row, kind, ref, ...WITHIN[kind](model, ref, ns, y - rows.y[row], REACH * nsPerPixel) };
}

const WITHIN = {
  [SM]: ({ groups, ctas }, group, ns, y, reach) => {
    const lanes = groups.laneStart[group + 1] - groups.laneStart[group];
    const lane = Math.min(Math.max(Math.floor(y / laneHeight(lanes)), 0), lanes - 1);
    const { order } = groups.lanes[groups.laneStart[group] + lane];
    return { cta: boxAt(order, ctas.begin, ctas.end, ns, reach) };
  },
  [CTA]: ({ ctas }, cta, ns, _, reach) => {
    const isOn = ctas.begin[cta] <= ns + reach && ctas.end[cta] >= ns - reach;
    return { cta: isOn ? cta : undefined };
  },
  [WARP]: (model, track, ns, y, reach) => {
    const { scopes, lostOfTrack } = model;
    const level = model.levels(track)[Math.floor((y - 1) / LEVEL)];
    const scope = level && boxAt(level.order, scopes.start, scopes.end, ns, reach);
    const row = lostOfTrack.get(track);
    const { lostStart, lostEnd } = scopes.incomplete;
    const isLost = scope === undefined && row !== undefined && lostStart[row] <= ns && ns < lostEnd[row];
    return { scope, lost: isLost ? row : undefined };
  },
  [FLIGHT]: ({ flights, flightLanes }, cta, ns, y, reach) => {
    const lane = flightLanes.of(cta)[Math.floor((y - 1) / LEVEL)];
    return { flight: lane && boxAt(lane.order, flights.start, flights.end, ns, reach) };
  },
};

/** The box that this time is in, else the nearest one in reach. */
function boxAt(order, start, end, ns, reach) {
  const at = firstEndingAfter(order, end, ns, 0);
  if (at < order.length && start[order[at]] <= ns) return order[at];
  const after = at < order.length ? start[order[at]] - ns : Number.POSITIVE_INFINITY;
  const before = at > 0 ? ns - end[order[at - 1]] : Number.POSITIVE_INFINITY;
  if (Math.min(after, before) > reach) return undefined;
  return after < before ? order[at] : order[at - 1];
}
