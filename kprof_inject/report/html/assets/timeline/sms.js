/** The SMs of a launch, and on each of them its CTAs in lanes: those of a lane follow each other. */

/**
 * @typedef {Object} SmGroups
 * @property {number} length how many SMs ran a CTA
 * @property {Int32Array} sm their numbers, ascending
 * @property {Uint32Array} order the CTAs' rows, by SM and begin @property {Uint32Array} start of each SM in `order`
 * @property {Uint32Array} laneStart the first lane of each SM, followed by the number of lanes
 * @property {{order: Uint32Array, covered: Float64Array}[]} lanes as the model's levels, of CTAs
 * @property {Uint32Array} groupOfCta the SM's place, by the CTA's row
 */

/** @param {import("#scopes").Ctas} ctas @returns {SmGroups} */
export function smGroups(ctas) {
  const order = new Uint32Array(ctas.length).map((_, row) => row);
  order.sort((one, other) => ctas.sm[one] - ctas.sm[other] || ctas.begin[one] - ctas.begin[other] || one - other);
  const sm = [];
  const start = [];
  const groupOfCta = new Uint32Array(ctas.length);
  order.forEach((row, at) => {
    if (sm.at(-1) !== ctas.sm[row]) {
      sm.push(ctas.sm[row]);
      start.push(at);
    }
    groupOfCta[row] = sm.length - 1;
  });
  start.push(order.length);
  const laneStart = [0];
  const lanes = [];
  for (let group = 0; group < sm.length; group++) {
    lanes.push(...lanesOf(ctas, order.subarray(start[group], start[group + 1])));
    laneStart.push(lanes.length);
  }
  return {
    length: sm.length,
    sm: Int32Array.from(sm),
    order,
    start: Uint32Array.from(start),
    laneStart: Uint32Array.from(laneStart),
    lanes,
    groupOfCta,
  };
}

/** Each CTA into the first lane that is free when it begins. */
function lanesOf(ctas, rows) {
  const lanes = [];
  const freeAt = [];
  for (const row of rows) {
    let lane = freeAt.findIndex((ns) => ns <= ctas.begin[row]);
    if (lane < 0) lane = lanes.push([]) - 1;
    lanes[lane].push(row);
    freeAt[lane] = Math.max(ctas.end[row], ctas.begin[row]);
  }
  return lanes.map((lane) => {
    const covered = new Float64Array(lane.length + 1);
    lane.forEach((row, at) => {
      covered[at + 1] = covered[at] + ctas.end[row] - ctas.begin[row];
    });
    return { order: Uint32Array.from(lane), covered };
  });
}
