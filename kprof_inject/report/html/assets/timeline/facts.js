/** Facts on a scope, a CTA, work in flight or lost records: the content of tooltips, and of the panel at the side. */

import { placeName, UNKNOWN_TAG } from "#data";
import { chip, element, factList } from "#dom";
import { formatCount, formatNs, smName } from "#format";

const CROSSES = 1;
const CUT = 2;

/**
 * @param {import("#timeline/model").TimelineModel} model
 * @param {{scope?: number, cta?: number, flight?: number, lost?: number}} hit what is known of a place
 * @returns {HTMLElement[]} empty if nothing is there
 */
export function factsOf(model, { scope, cta, flight, lost }) {
  if (scope !== undefined) return scopeFacts(model, scope);
  if (flight !== undefined) return titled(`${model.meta.flight_works[model.flights.work[flight]]} in flight`, flightFacts(model, flight));
  if (lost !== undefined) return titled("lost records", lostFacts(model, lost));
  return cta === undefined ? [] : titled(`${model.meta.cta_name} ${model.ctas.cta[cta]}`, ctaFacts(model, cta));
}

function titled(title, facts) {
  return [element("strong", { text: title }), factList(facts)];
}

/** A scope's name, its source line, the text of that line, and what is known of this execution. */
function scopeFacts(model, index) {
  const { meta, scopes } = model;
  const { name, kind, colour, source, place, text, called_from: calls, self_name: selfName, tags } = meta.scopes[scopes.scope[index]];
  const head = [element("div", { class: "scope-title" }, [element("strong", {}, [chip(colour), name]), element("span", { class: "view-hint", text: kind })])];
  if (source) head.push(element("div", { class: "view-hint scope-place", title: source, text: place + (calls.length ? ` from ${calls.map(placeName).join(", ")}` : "") }));
  if (text) head.push(element("code", { class: "scope-line", text }));
  const isMark = kind === "mark";
  const facts = [];
  if (!isMark) {
    facts.push(["duration", durationText(scopes.duration[index], scopes.end[index] - scopes.start[index])]);
    if (scopes.self[index] !== scopes.duration[index]) facts.push([selfName, formatNs(scopes.self[index])]);
  }
  if (scopes.iteration[index] >= 0) facts.push(["iteration", String(scopes.iteration[index])]);
  tags.forEach((tag, at) => {
    const value = scopes.tags[at][index];
    facts.push([tag.name, value === UNKNOWN_TAG ? "unknown: its record was lost" : String(value)]);
  });
  const begin = model.ctas.begin[model.ctaOf(scopes.track[index])];
  facts.push([isMark ? "at" : "begins", `${formatNs(scopes.start[index] - begin)} after its ${meta.cta_name}, ${formatNs(scopes.start[index])} after the launch`]);
  facts.push(["where", `${smName(scopes.sm[index])}, ${meta.cta_name} ${scopes.cta[index]}, ${meta.warp_name} ${scopes.warp[index]}`]);
  const partition = model.partitionOf(scopes.track[index]);
  if (partition.length) facts.push(["runs", partition.join(": ")]);
  if (scopes.flags[index] & CROSSES) facts.push(["crosses", "another scope: one begins inside the other and ends after it"]);
  if (scopes.flags[index] & CUT) facts.push(["too short", "shorter than the cost of its records"]);
  return [...head, factList(facts)];
}

/** A bar is as long as it was recorded; figures leave out what its records cost. */
export function durationText(ns, drawnNs) {
  if (ns === drawnNs) return formatNs(ns);
  return `${formatNs(ns)} without the cost of its records; ${formatNs(drawnNs)} drawn`;
}

function flightFacts({ meta, flights }, row) {
  const [start, inFlight, blocked] = [flights.start[row], flights.inFlight[row], flights.blocked[row]];
  return [
    ["in flight", blocked ? formatNs(inFlight) : `${formatNs(flights.known[row] - start)} to ${formatNs(inFlight)}`],
    ["its wait", blocked ? `blocked for ${formatNs(blocked)}` : "already complete"],
    ["issued by", `${meta.scopes[flights.scope[row]].name}, ${meta.warp_name} ${flights.warp[row]}`],
    ["awaited by", meta.scopes[flights.waitScope[row]].name],
    ["in flight with it", formatCount(flights.depth[row] - 1)],
    ...(flights.bytes[row] ? [["bytes", formatCount(flights.bytes[row])]] : []),
  ];
}

function ctaFacts({ ctas, meta: { cta_name: name } }, row) {
  return [
    [`per ${name}`, `${formatNs(ctas.end[row] - ctas.begin[row])} with records`],
    ["begins", `${formatNs(ctas.begin[row])} after the launch`],
    ["copying records", formatNs(ctas.copied[row] - ctas.end[row])],
    ["where", smName(ctas.sm[row])],
  ];
}

/** @param {number} row of `incomplete` */
function lostFacts({ meta, scopes }, row) {
  const { lost, written, lostStart, lostEnd } = scopes.incomplete;
  const records = `${formatCount(lost[row])} of ${formatCount(written[row])} records`;
  const isForeign = meta.clock_source === "timer";
  return [
    isForeign ? ["not kept", `${records}: the buffer was full`] : ["overwritten", `${records}: the ring keeps the newest`],
    ["window", formatNs(lostEnd[row] - lostStart[row])],
    ["to keep them", isForeign ? "use a larger buffer" : "run with --fit"],
  ];
}
