/** Which CTA was on which SM when. Nothing here draws. */

/**
 * @typedef {Object} Residents each array has an item for each CTA, in the order of their begins
 * @property {Int32Array} cta its row in the launch's table of CTAs
 * @property {Int32Array} row of its SM, -1 if that has none
 * @property {Float64Array} begin @property {Float64Array} end
 * @property {Int32Array} lane one of its SM's: CTAs in one lane never overlap
 * @property {Int32Array} wave from 0
 * @property {number} lanes of the SM that has most @property {number} waves
 * @property {Int32Array[]} of each row the items of its CTAs, by begin
 */

/**
 * @param {import("#data").Ctas} ctas
 * @param {{sms: number[], wave_ctas: number}} picture a `HeatMap` of page_schema.py
 * @returns {Residents}
 */
export function residentsOf(ctas, { sms, wave_ctas: waveCtas }) {
  const rows = new Map(sms.map((sm, row) => [sm, row]));
  const order = Int32Array.from({ length: ctas.length }, (_, index) => index);
  order.sort((one, other) => ctas.begin[one] - ctas.begin[other] || ctas.cta[one] - ctas.cta[other]);
  const begin = Float64Array.from(order, (index) => ctas.begin[index]);
  const made = {
    cta: order,
    row: Int32Array.from(order, (index) => rows.get(ctas.sm[index]) ?? -1),
    begin,
    // Timers that contradict each other make no CTA run backwards.
    end: Float64Array.from(order, (index, item) => Math.max(ctas.end[index], begin[item])),
    lane: new Int32Array(ctas.length),
    wave: Int32Array.from(order, (_, item) => Math.floor(item / waveCtas)),
    waves: Math.ceil(ctas.length / waveCtas),
    lanes: 1,
    of: sms.map(() => []),
  };
  made.row.forEach((row, item) => row >= 0 && made.of[row].push(item));
  for (const items of made.of) made.lanes = Math.max(made.lanes, layLanes(items, made));
  return made;
}

/** Each CTA goes to the first lane that is free; returns how many lanes that took. */
function layLanes(items, { begin, end, lane }) {
  const freeAt = [];
  for (const item of items) {
    const found = freeAt.findIndex((free) => free <= begin[item]);
    lane[item] = found >= 0 ? found : freeAt.length;
    freeAt[lane[item]] = end[item];
  }
  return freeAt.length;
}

/**
 * How the durations of CTAs are spread: `reach` is the factor from the median at which a colour is full; a CTA in ten
 * may be further from it.
 *
 * @param {Residents} residents
 * @returns {{medianNs: number, reach: number}}
 */
export function durationSpread({ begin, end }) {
  const durations = Float64Array.from(begin, (ns, item) => Math.max(end[item] - ns, 1)).sort();
  const at = (share) => durations[Math.round(share * (durations.length - 1))] ?? 1;
  const medianNs = at(0.5);
  return { medianNs, reach: Math.max(at(0.95) / medianNs, medianNs / at(0.05), MIN_REACH) };
}

/** Less than this is no difference that a colour should make much of. */
const MIN_REACH = 1.1;

/** From -1, much shorter than the median, to 1, much longer. */
export function durationShade({ begin, end }, { medianNs, reach }, item) {
  const shade = Math.log(Math.max(end[item] - begin[item], 1) / medianNs) / Math.log(reach);
  return Math.min(Math.max(shade, -1), 1);
}

/** The items of the CTAs that were on the SM of a row at a time. */
export function itemsAt({ of, begin, end }, row, ns) {
  return of[row]?.filter((item) => begin[item] <= ns && ns <= end[item]) ?? [];
}

/** How many CTAs all SMs together had at work, by column; `cells` as in the section. */
export function atWork(cells, rows, columns, most) {
  const total = new Float64Array(columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) total[column] += cells[row * columns + column];
  }
  return total.map((level) => (level / 255) * most);
}

/** Rows from top to bottom: by number, or by when the SM was done. */
export const ORDERS = {
  "SM number": ({ sms }) => sms.map((_, row) => row),
  "when it was done": ({ sms, done_ns: done }) => sms.map((_, row) => row).sort((one, other) => done[one] - done[other] || one - other),
};

/** Returns whether single CTAs are distinguishable in a picture of this width and row height. */
export function areDistinguishable({ begin, end, lanes }, spanNs, width, rowHeight) {
  if (!begin.length) return false;
  let taken = 0;
  for (let item = 0; item < begin.length; item++) taken += end[item] - begin[item];
  const widthOfOne = (taken / begin.length / Math.max(spanNs, 1)) * width;
  return widthOfOne >= 4 && rowHeight / lanes >= 2;
}
