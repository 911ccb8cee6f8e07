/** Which time is shown: pure arithmetic on `[from, to]` in ns since the begin of each CTA. */

const SHORTEST_NS = 10;
/** A scope that is shown in more than so many times its length is no more than a line. */
const MAX_OF_SCOPE = 150;

/** All of the longest CTA, with a little room at its ends. */
export function wholeRange(spanNs) {
  const span = Math.max(spanNs, SHORTEST_NS);
  return [-0.01 * span, 1.01 * span];
}

/** The range, made as long as can be shown and moved to where the CTA is. */
export function clamped([from, to], spanNs) {
  const whole = wholeRange(spanNs);
  const length = Math.min(Math.max(to - from, SHORTEST_NS), whole[1] - whole[0]);
  const begin = Math.min(Math.max((from + to - length) / 2, whole[0]), whole[1] - length);
  return [begin, begin + length];
}

/** `factor` times as long (below 1: closer), with what is at `atNs` staying where it is. */
export function zoomed([from, to], factor, atNs, spanNs) {
  const whole = wholeRange(spanNs);
  const length = Math.min(Math.max((to - from) * factor, SHORTEST_NS), whole[1] - whole[0]);
  const begin = atNs - ((atNs - from) / (to - from)) * length;
  return clamped([begin, begin + length], spanNs);
}

/** Later by so many of its lengths. */
export function panned([from, to], lengths, spanNs) {
  const by = lengths * (to - from);
  return clamped([from + by, to + by], spanNs);
}

/** Around a scope, with room on both sides. */
export function around(startNs, endNs, spanNs) {
  const room = Math.max((endNs - startNs) * 0.25, SHORTEST_NS / 2);
  return clamped([startNs - room, endNs + room], spanNs);
}

/** The range, moved and made shorter or longer only as far as it takes to see a scope. */
export function revealing([from, to], startNs, endNs, spanNs) {
  const duration = Math.max(endNs - startNs, 1);
  if (duration > to - from) return around(startNs, endNs, spanNs);
  const length = Math.min(to - from, duration * MAX_OF_SCOPE);
  if (length === to - from && startNs >= from && endNs <= to) return [from, to];
  const middle = (startNs + endNs) / 2;
  return clamped([middle - length / 2, middle + length / 2], spanNs);
}
