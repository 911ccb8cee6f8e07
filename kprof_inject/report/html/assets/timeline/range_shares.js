/** The time of each kind of scope in a part of the launch. */

/**
 * The cost of records is subtracted, as in the other tables. A window cuts scopes, and the position of a scope's records
 * within it is unknown, so their cost is spread evenly over the scope.
 *
 * @param {import("#timeline/model").TimelineModel} model
 * @param {[number, number]} range in ns since the start of the launch
 * @returns {(number | null)[]} by kind, of the warps' time; null where no warp was at work, or of a mark
 */
export function sharesIn(model, range) {
  return totalsIn(model, range).map(({ share }) => share);
}

/**
 * @typedef {Object} KindTotal
 * @property {number} kind @property {number} ns of all warps, within the range
 * @property {number} count how many are in it, or partly @property {number | null} share as in `sharesIn`
 *
 * @param {import("#timeline/model").TimelineModel} model
 * @param {[number, number]} range in ns since the start of the launch
 * @returns {KindTotal[]} by kind
 */
export function totalsIn({ meta, scopes, ctas, isInstant }, [from, to]) {
  const within = (begin, end) => Math.max(Math.min(end, to) - Math.max(begin, from), 0);
  let ctaNs = 0;
  for (let row = 0; row < ctas.length; row++) ctaNs += within(ctas.begin[row], ctas.end[row]);
  const takenNs = new Float64Array(meta.scopes.length);
  const counts = new Float64Array(meta.scopes.length);
  for (let index = 0; index < scopes.length; index++) {
    const [start, end] = [scopes.start[index], scopes.end[index]];
    if (start > to || end < from) continue;
    const net = end > start ? scopes.duration[index] / (end - start) : 0;
    takenNs[scopes.scope[index]] += within(start, end) * net;
    counts[scopes.scope[index]]++;
  }
  const warpsOf = warpsByKind(meta);
  return Array.from(takenNs, (ns, kind) => {
    const wholeNs = ctaNs * warpsOf[kind];
    return { kind, ns, count: counts[kind], share: wholeNs && !isInstant[kind] ? ns / wholeNs : null };
  });
}

/** How many warps of a CTA may run each kind: those of its partition, or all. */
function warpsByKind({ scopes, warps, partitions }) {
  const counts = scopes.map(() => warps.length);
  for (const { scopes: kinds, warps: count } of partitions) {
    for (const kind of kinds) counts[kind] = count;
  }
  return counts;
}
