/** One scope at a time: how its durations are spread, how iterations go, where it takes how long. */

import { element, link, shareBar, tableOf, tableRoom, tooltipIn } from "#dom";
import { counted, formatCount, formatNs, formatShare, resolvedNs, shortNs } from "#format";
import { openView, receive } from "#navigation";
import { exportTable, fileName, scopeList, scopeTable } from "#tables";
import { groupBars, histogramPlot, iterationPlot, roomOf } from "#views/charts";

export const title = "Scopes";

export function show(place, launch, context) {
  const { scopes } = launch.meta;
  if (!scopes.length) {
    place.append(element("p", { class: "view-empty", text: "This kernel has no scopes." }));
    return;
  }
  const details = element("div", { class: "scope-details" });
  const tooltip = tooltipIn(place);
  const choose = (index) => {
    tooltip.hide();
    list.select(index);
    details.replaceChildren(...detailsOf(index, launch, context, tooltip));
    details.scrollTop = 0;
  };
  const list = scopeList(launch.meta, choose);
  place.append(element("div", { class: "side-by-side" }, [list.element, details]));
  receive("scopes", ({ scope }) => choose(scope));
  // Where one looks first: the iterations, or else what takes the most time by itself.
  const weight = (scope) => (scope.self_ns ?? 0) + (scope.iterations ? (scope.total_ns ?? 0) : 0);
  choose(scopes.reduce((best, scope, index) => (weight(scope) > weight(scopes[best]) ? index : best), 0));
}

function detailsOf(index, { meta, scopes }, context, tooltip) {
  const scope = meta.scopes[index];
  const options = { color: scope.colour, name: scope.name, tooltip };
  const toExample = (wanted) => {
    const found = exampleOf(scopes, { scope: index, ...wanted });
    if (found >= 0) context.goTo(targetOf(scopes, found));
  };
  return [
    heading(index, meta, scopes, context),
    scope.kind === "mark" ? note("An instant: it has a time, but no duration.") : figures(scope, meta.clock_source !== "timer"),
    ...missing(scope),
    element("div", { class: "card-columns" }, [...durations(scope, options, toExample), ...iterations(scope, options, toExample)]),
    element("div", { class: "group-cards" }, [...tags(scope, options, toExample), ...groups(scope, options, toExample, meta.warp_name)]),
  ];
}

function heading(index, meta, scopes, context) {
  const scope = meta.scopes[index];
  const links = scopes.scope.includes(index)
    ? [["Slowest", 1], ["Median", 0.5]].map(([text, rank]) => link(text, () => context.goTo(targetOf(scopes, rankedOf(scopes, index, rank)))))
    : [];
  if (scope.source) links.push(link("Source", () => openView("source", { scope: index })));
  if (scope.site) links.push(link("TTGIR", () => openView("ttgir", { scope: index })));
  return element("header", { class: "scope-heading" }, [
    element("h2", { text: scope.name }),
    element("span", { class: "view-hint", text: [scope.kind, scope.source].filter(Boolean).join(" · ") }),
    ...links,
    exportTable(fileName(meta, "scopes", "csv"), () => scopeTable(meta).querySelector("table"), "Save the figures of all scopes (x)"),
  ]);
}

function note(text) {
  return element("p", { class: "view-hint", text });
}

/** Another profiler counts no cycles. */
function figures(scope, hasCycles) {
  const time = (ns) => resolvedNs(ns, scope, formatNs);
  const shown = [
    ["count", formatCount(scope.count)],
    ["share", formatShare(scope.share)],
    ["total", formatNs(scope.total_ns)],
    [scope.self_name, formatNs(scope.self_ns)],
    ["mean", scope.mean_cycles === null || !hasCycles ? time(scope.mean_ns) : `${time(scope.mean_ns)}, ${counted(scope.mean_cycles, "cycle")}`],
    ["min", time(scope.min_ns)],
    ["p50", time(scope.p50_ns)],
    ["p90", time(scope.p90_ns)],
    ["p99", time(scope.p99_ns)],
    ["max", time(scope.max_ns)],
  ];
  return element("dl", { class: "figures" }, shown.map(([name, value]) => element("div", {}, [element("dt", { text: name }), element("dd", { text: value })])));
}

function missing(scope) {
  const said = [];
  if (scope.without_partner) said.push(`${counted(scope.without_partner, "record")} without a partner, left out of all figures`);
  if (scope.crossing) said.push(`${formatCount(scope.crossing)} ${scope.crossing === 1 ? "crosses" : "cross"} another scope`);
  if (scope.cut) said.push(`${formatCount(scope.cut)} ${scope.cut === 1 ? "was shorter than the cost of its" : "were shorter than the cost of their"} records`);
  return said.length ? [element("p", { class: "view-warning", text: `${said.join("; ")}.` })] : [];
}

function durations(scope, options, toExample) {
  if (!scope.histogram) return scope.kind === "mark" ? [] : [note("Its time is unknown: it never ran, or none of its starts has an end.")];
  const marks = ["p50", "p90", "p99"].map((label) => ({ label, ns: scope[`${label}_ns`] }));
  const onChoose = (leastNs, belowNs) => toExample({ leastNs, belowNs });
  const scale = scope.histogram.log ? ", on a logarithmic axis" : "";
  return [card("Durations", `number of scopes by duration without the cost of records${scale}`, histogramPlot(scope.histogram, marks, { ...options, onChoose }))];
}

function iterations({ iterations: series, bands }, options, toExample) {
  if (!bands) return [];
  const loops = series.fewest === series.most ? counted(series.most, "iteration") : `${series.fewest} to ${series.most} iterations`;
  const facts = [`${counted(series.runs, "run")} of the loop with ${loops}`];
  for (const name of ["first", "steady", "last"]) {
    const ns = series[`${name}_ns`];
    const times = name !== "steady" && series.steady_ns ? ` (${(ns / series.steady_ns).toFixed(2)} ×)` : "";
    if (ns !== null) facts.push(`${name} ${formatNs(ns)}${times}`);
  }
  const onChoose = (first, last) => toExample({ first, last });
  return [card("Iterations", `median, and p10 to p90; ${facts.join(", ")}`, iterationPlot(bands, series.steady_ns, { ...options, onChoose }))];
}

function tags(scope, options, toExample) {
  return scope.tags.flatMap((tag, place) => {
    const onChoose = (value) => toExample({ tag: { place, value } });
    const more = [];
    if (tag.distinct > tag.values.length) more.push(`${counted(tag.distinct - tag.values.length, "shorter value")} hidden`);
    if (tag.unknown) more.push(`${counted(tag.unknown, "value")} unknown`);
    const explanation = ["largest total first", ...more].join("; ");
    return tag.values.length ? [card(`By ${tag.name}`, explanation, tagTable(tag, { ...options, onChoose }))] : [];
  });
}

function groups(scope, options, toExample, warpName) {
  const shown = [
    ["warp", `${warpName[0].toUpperCase()}${warpName.slice(1)}s`, scope.warps, warpName],
    ["sm", "SMs", scope.sms, "SM"],
  ].filter(([, , group]) => group.ids.length > 1);
  return shown.map(([key, name, group, noun]) => {
    const onChoose = (id) => toExample({ [key]: id });
    const made = card(name, "mean duration of each", groupBars(group, { ...options, noun, onChoose }));
    made.style.flexBasis = `${roomOf(group)}px`;
    return made;
  });
}

function card(name, explanation, drawn) {
  return element("section", { class: "card" }, [element("h3", { text: name }), note(explanation), drawn]);
}

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

const HEADS = [
  ["count", "how often it ran with the value"],
  ["total", "over all warps"],
  ["p50", "median duration"],
  ["vs. others", "the median over that of all other values"],
];

/**
 * @param {Object} tag a `TagStatistics` of the timeline
 * @param {{color: string, onChoose: (value: number) => void}} options
 */
function tagTable({ name, values }, { color, onChoose }) {
  const weight = ({ count, total_ns: total }) => total ?? count;
  const most = Math.max(...values.map(weight), 1);
  const rows = values.map((one) =>
    element("tr", {}, [
      element("th", { scope: "row" }, [link(one.value, () => onChoose(one.value), { title: "one of them in the timeline" })]),
      element("td", { class: "tag-bar" }, [element("span", { class: "bar-track" }, [shareBar("bar-self", weight(one) / most, color)])]),
      element("td", { class: "figure", text: formatCount(one.count) }),
      element("td", { class: "figure", text: shortNs(one.total_ns) }),
      element("td", { class: "figure", text: shortNs(one.p50_ns) }),
      element("td", { class: "figure", text: one.times_others === null ? "–" : `${one.times_others.toFixed(2)} ×` }),
    ]),
  );
  return tableRoom(tableOf("plain-table", [[name], [""], ...HEADS.map((head) => [...head, "figure"])], rows));
}
