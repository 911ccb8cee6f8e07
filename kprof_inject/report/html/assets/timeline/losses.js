/** Where records were lost, as it is hatched: in the row of a warp, and in those of its CTA and its SM. */

import { CTA, LEVEL, SM, WARP, laneHeight } from "#timeline/rows";

const PADDING = 2;

/**
 * @typedef {{from: number, to: number, y: number, height: number}} LossBox in ns; in CSS pixels below the row's top
 */

/**
 * Of each CTA that lacks something, from the first moment that a warp of it lacks to the last.
 * @returns {Map<number, [number, number]>} by the CTA's row
 */
export function lossByCta({ ctaRow, lostStart, lostEnd, length }) {
  const found = new Map();
  for (let row = 0; row < length; row++) {
    if (lostEnd[row] <= lostStart[row]) continue;
    const [from, to] = found.get(ctaRow[row]) ?? [Infinity, -Infinity];
    found.set(ctaRow[row], [Math.min(from, lostStart[row]), Math.max(to, lostEnd[row])]);
  }
  return found;
}

/** @param {import("#timeline/model").TimelineModel} model @returns {LossBox[]} */
export function lossBoxes(model, rows, row) {
  const height = rows.y[row + 1] - rows.y[row];
  return BOXES[rows.kind[row]]?.(model, rows.ref[row], height) ?? [];
}

const BOXES = {
  [WARP]: ({ lostOfTrack, scopes, levelCount }, track) => {
    const lost = lostOfTrack.get(track);
    const { lostStart, lostEnd } = scopes.incomplete;
    if (lost === undefined || lostEnd[lost] <= lostStart[lost]) return [];
    return [{ from: lostStart[lost], to: lostEnd[lost], y: PADDING, height: levelCount * LEVEL - PADDING }];
  },
  [CTA]: ({ lossOfCta }, cta, height) => boxOf(lossOfCta, cta, PADDING, height - 2 * PADDING - 1),
  [SM]: ({ groups, lossOfCta }, group) => {
    if (!lossOfCta.size) return [];
    const first = groups.laneStart[group];
    const lanes = groups.lanes.slice(first, groups.laneStart[group + 1]);
    const each = laneHeight(lanes.length);
    return lanes.flatMap(({ order }, lane) =>
      Array.from(order).flatMap((cta) => boxOf(lossOfCta, cta, PADDING + lane * each, each - 1)),
    );
  },
};

function boxOf(lossOfCta, cta, y, height) {
  const window = lossOfCta.get(cta);
  return window ? [{ from: window[0], to: window[1], y, height }] : [];
}
