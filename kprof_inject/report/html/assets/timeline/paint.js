/**
 * Paints boxes into one line of pixels.
 *
 * Whatever is narrower than a pixel shares it with what comes after it: a pixel gets the colour of the first of them,
 * the paler the less of its time they cover. So the work goes with the width of the picture, and not with the number
 * of boxes.
 */

/** How many tints of a colour there are, the palest first. */
export const SHADES = 8;
/** From how many pixels on a box has an edge of its own. */
const EDGE_FROM = 4;

/**
 * @typedef {Object} Boxes boxes that never overlap
 * @property {Uint32Array} order which of the columns below they are, by start @property {Float64Array} covered
 * @property {Float64Array} start @property {Float64Array} end @property {Uint16Array} kind
 * @property {Uint8Array} [isInstant] by kind; null: none is
 *
 * @typedef {Object} Scale
 * @property {number} from the time at the left edge, in ns @property {number} perNs how many pixels a ns has
 * @property {number} width in pixels @property {number} instantWidth of an instant
 * @property {number} wideFrom minimum width in pixels of a box that is reported in `wide`
 */

/**
 * @param {Uint32Array} line the pixels, filled with the background
 * @param {Boxes} boxes
 * @param {Scale} scale
 * @param {Uint32Array} tints SHADES of each kind; what is 0 is left out
 * @param {number} ground the pixel between a box and the next
 * @param {number[]} wide gets three numbers for each wide box: its index, its first pixel, and the one after its last
 */
export function paintBoxes(line, boxes, scale, tints, ground, wide) {
  const { order, covered, start, end, kind, isInstant } = boxes;
  const { from, perNs, width } = scale;
  let at = firstEndingAfter(order, end, from, 0);
  while (at < order.length) {
    const box = order[at];
    const begin = (start[box] - from) * perNs;
    if (begin >= width) break;
    const left = Math.max(0, Math.floor(begin));
    const color = kind[box] * SHADES + SHADES - 1;
    if (isInstant?.[kind[box]]) {
      if (tints[color]) line.fill(tints[color], left, Math.min(left + scale.instantWidth, width));
      at = Math.max(at + 1, firstEndingAfter(order, end, from + (left + 1) / perNs, at));
      continue;
    }
    const stop = (end[box] - from) * perNs;
    if (stop - begin >= 1) {
      const right = Math.floor(stop);
      const shown = Math.min(right, width);
      if (tints[color]) {
        line.fill(tints[color], left, shown);
        if (right - left >= EDGE_FROM && right <= width) line[right - 1] = ground;
      }
      if (shown - left >= scale.wideFrom) wide.push(box, left, shown);
      at++;
      continue;
    }
    const next = behindPixel(boxes, at, from + (left + 1) / perNs, 1 / perNs);
    const share = Math.min((covered[next] - covered[at]) * perNs, 1);
    line[left] = tints[color - Math.round((1 - share) * (SHADES - 1))] || line[left];
    at = next;
  }
}

/** Behind all narrow boxes, from the one at this place on, that begin in a pixel, which ends at this time. */
function behindPixel({ order, start, end }, at, pixelEnd, pixelNs) {
  const next = firstEndingAfter(order, end, pixelEnd, at);
  const box = order[next];
  const isIn = next < order.length && start[box] < pixelEnd && end[box] - start[box] < pixelNs;
  return Math.max(isIn ? next + 1 : next, at + 1);
}

/** The first place from `at` on whose box ends after this time. @returns {number} the length of `order` if none does */
export function firstEndingAfter(order, end, ns, at) {
  let step = 1;
  let low = at;
  // The next one is near, most of the time.
  while (low + step < order.length && end[order[low + step - 1]] <= ns) {
    low += step;
    step *= 2;
  }
  let high = Math.min(low + step, order.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[order[middle]] <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}
