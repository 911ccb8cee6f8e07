/** One execution out of those that a bar or a point of a picture represents. */

/**
 * @param {import("#data").Scopes} scopes
 * @param {{scope: number, leastNs?: number, belowNs?: number, first?: number, last?: number, warp?: number, sm?: number,
 *     tag?: {place: number, value: number}}} wanted `first` and `last` are numbers of iterations
 * @returns {number} its index, -1 if the page has none: of large launches it has only a part
 */
export function exampleOf(scopes, wanted) {
  const { scope, leastNs = 0, belowNs = Infinity, first = -Infinity, last = Infinity, warp, sm, tag } = wanted;
  for (let index = 0; index < scopes.length; index++) {
    if (scopes.scope[index] !== scope) continue;
    const duration = scopes.duration[index];
    const iteration = scopes.iteration[index];
    if (duration < leastNs || duration >= belowNs || iteration < first || iteration > last) continue;
    if (warp !== undefined && scopes.warp[index] !== warp) continue;
    if (sm !== undefined && scopes.sm[index] !== sm) continue;
    if (tag && scopes.tags[tag.place][index] !== tag.value) continue;
    return index;
  }
  return -1;
}

/**
 * The one whose duration has so many of the others' below it, of those that the page has.
 *
 * @param {number} rank from 0 (the shortest) to 1 (the longest)
 * @returns {number} its index, -1 if there is none
 */
export function rankedOf(scopes, scope, rank) {
  const found = [];
  for (let index = 0; index < scopes.length; index++) {
    if (scopes.scope[index] === scope) found.push(index);
  }
  if (!found.length) return -1;
  found.sort((one, other) => scopes.duration[one] - scopes.duration[other]);
  return found[Math.round(rank * (found.length - 1))];
}

/** Returns the target for `context.goTo` that shows the scope with some time around it. */
export function targetOf(scopes, index) {
  const room = (scopes.end[index] - scopes.start[index]) / 2;
  return { cta: scopes.cta[index], startNs: scopes.start[index] - room, endNs: scopes.end[index] + room, scope: scopes.scope[index], index };
}
