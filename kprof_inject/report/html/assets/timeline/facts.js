/** Facts on one scope, CTA or window, as pairs of a label and a text. */

import { formatCount, formatNs, formatShare, smName } from "#format";
import { UNKNOWN_TAG } from "#scopes";
import { flagFacts } from "#timeline/flag_arrows";

const CROSSES = 1;
const CUT = 2;

/**
 * @param {import("#timeline/model").TimelineModel} model
 * @param {number} index a scope
 * @returns {[string, string][]}
 */
export function scopeFacts(model, index) {
  const { meta, scopes } = model;
  const { kind, self_name: selfName, tags } = meta.scopes[scopes.scope[index]];
  const isMark = kind === "mark";
  const elapsed = scopes.end[index] - scopes.start[index];
  const facts = [];
  if (!isMark) {
    facts.push(["duration", formatNs(scopes.duration[index])]);
    if (scopes.self[index] !== scopes.duration[index]) facts.push([selfName, formatNs(scopes.self[index])]);
    // Another profiler counts no cycles.
    const cycles = meta.clock_source === "timer" ? "" : `, ${formatCount(scopes.cycles[index])} cycles`;
    facts.push(["as recorded", `${formatNs(elapsed)}${cycles}`]);
  }
  facts.push([isMark ? "at" : "begins at", formatNs(scopes.start[index])]);
  if (scopes.iteration[index] >= 0) facts.push(["iteration", String(scopes.iteration[index])]);
  tags.forEach((name, place) => {
    const value = scopes.tags[place][index];
    facts.push([name, value === UNKNOWN_TAG ? "unknown: its record was lost" : String(value)]);
  });
  facts.push(...flagFacts(model, index));
  const { cta_name: cta, warp_name: warp } = meta;
  facts.push(["where", `${smName(scopes.sm[index])}, ${cta} ${scopes.cta[index]}, ${warp} ${scopes.warp[index]}`]);
  const partition = model.partitionOf(scopes.track[index]);
  if (partition) facts.push(["runs", [partition, model.functionOf(scopes.track[index])].filter(Boolean).join(": ")]);
  if (scopes.flags[index] & CROSSES)
    facts.push(["crosses", "another scope: one begins inside the other and ends after it"]);
  if (scopes.flags[index] & CUT) facts.push(["too short", "shorter than the cost of its records"]);
  return facts;
}

/** @param {number} row of `flights` */
export function flightFacts({ meta, flights }, row) {
  const [start, inFlight, blocked] = [flights.start[row], flights.inFlight[row], flights.blocked[row]];
  const sure = flights.known[row] - start;
  const facts = [["in flight", blocked ? formatNs(inFlight) : `${formatNs(sure)} to ${formatNs(inFlight)}`]];
  facts.push(["its wait", blocked ? `blocked for ${formatNs(blocked)}` : "already complete"]);
  facts.push(["issued by", meta.scopes[flights.scope[row]].name]);
  facts.push(["awaited by", meta.scopes[flights.waitScope[row]].name]);
  facts.push(["begins at", formatNs(start)], ["in flight with it", formatCount(flights.depth[row] - 1)]);
  if (flights.bytes[row]) facts.push(["bytes", formatCount(flights.bytes[row])]);
  facts.push(["where", `warp ${flights.warp[row]}`]);
  return facts;
}

/** @param {number} row of the CTA */
export function ctaFacts({ ctas }, row) {
  return [
    ["at work", formatNs(ctas.end[row] - ctas.begin[row])],
    ["begins at", formatNs(ctas.begin[row])],
    ["copying records", formatNs(ctas.copied[row] - ctas.end[row])],
    ["where", smName(ctas.sm[row])],
  ];
}

/** @param {number} row of `incomplete` */
export function lostFacts({ meta, scopes }, row) {
  const { lost, written, lostStart, lostEnd } = scopes.incomplete;
  const records = `${formatCount(lost[row])} of ${formatCount(written[row])} records`;
  const isForeign = meta.clock_source === "timer";
  return [
    isForeign ? ["not kept", `${records}: the buffer was full`] : ["overwritten", `${records}: the ring keeps the newest`],
    ["window", formatNs(lostEnd[row] - lostStart[row])],
    ["to keep them", isForeign ? "use a larger buffer" : "run with --fit"],
  ];
}

/**
 * How long the scopes of a kind take, those that the page shows.
 * @returns {{sorted: Float64Array, facts: [string, string][]}} their durations ascending
 */
export function kindFigures({ scopes, meta }, kind) {
  let count = 0;
  for (let index = 0; index < scopes.length; index++) count += Number(scopes.scope[index] === kind);
  const sorted = new Float64Array(count);
  for (let index = 0, at = 0; index < scopes.length; index++) {
    if (scopes.scope[index] === kind) sorted[at++] = scopes.duration[index];
  }
  sorted.sort();
  const facts = [["count", formatCount(count)]];
  if (count && meta.scopes[kind].kind !== "mark") {
    const sum = sorted.reduce((total, ns) => total + ns, 0);
    facts.push(
      ["mean", formatNs(sum / count)],
      ["min", formatNs(sorted[0])],
      ["p50", formatNs(quantile(sorted, 0.5))],
      ["p99", formatNs(quantile(sorted, 0.99))],
      ["max", formatNs(sorted[count - 1])],
    );
  }
  return { sorted, facts };
}

/** Between the two values that are next to it, as numpy has it. */
export function quantile(sorted, share) {
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

/** Returns the rank of a duration among the sorted ones. */
export function rankText(sorted, duration) {
  if (sorted.length < 2) return "";
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < duration) low = middle + 1;
    else high = middle;
  }
  return `longer than ${formatShare(low / sorted.length)} of them`;
}
