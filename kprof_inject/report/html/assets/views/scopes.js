/** One scope at a time: how its durations are spread, how iterations go, where it takes how long. */

import { element, tooltipIn } from "#dom";
import { exportTable, fileName } from "#export";
import { counted, formatCount, formatNs, formatShare, resolvedNs, shortNs } from "#format";
import { openView, receive } from "#navigation";
import { groupBars, histogramPlot, iterationPlot, roomOf } from "#views/charts";
import { scopeList, scopeTable } from "#views/scope_lists";

export const title = "Scopes";

/** `launch.sections.scopes` has a `ScopePicture` of page_schema.py for each scope. */
export function show(place, launch, context) {
  const scopes = launch.sections.scopes;
  if (!scopes.length) {
    place.append(element("p", { class: "view-empty", text: "This kernel has no scopes." }));
    return;
  }
  const details = element("div", { class: "scope-details" });
  const tooltip = tooltipIn(place);
  const list = scopeList(scopes, launch.meta.partitions, context, (index) => choose(index));
  place.append(element("div", { class: "side-by-side" }, [list.element, details]));
  const choose = (index) => {
    tooltip.hide();
    list.select(index);
    details.replaceChildren(...detailsOf(index, launch, context, tooltip));
    details.scrollTop = 0;
  };
  receive("scopes", ({ scope }) => choose(scope));
  choose(mostTelling(scopes));
}

/** Where one looks first: the iterations, or else what takes the most time by itself. */
function mostTelling(scopes) {
  const weight = (scope) => (scope.self_ns ?? 0) + (scope.iterations ? (scope.total_ns ?? 0) : 0);
  return scopes.reduce((best, scope, index) => (weight(scope) > weight(scopes[best]) ? index : best), 0);
}

function detailsOf(index, launch, context, tooltip) {
  const scope = launch.sections.scopes[index];
  const options = { color: context.theme.scopeColor(index), name: scope.name, tooltip };
  const toExample = (wanted) => {
    const found = exampleOf(launch.scopes, { scope: index, ...wanted });
    if (found >= 0) context.goTo(targetOf(launch.scopes, found));
  };
  return [
    heading(index, scope, launch, context),
    scope.kind === "mark" ? note("An instant: it has a time, but no duration.") : figures(scope, launch.meta.scopes[index].self_name, launch.meta.clock_source !== "timer"),
    ...missing(scope),
    element("div", { class: "card-columns" }, [
      ...durations(scope, options, toExample),
      ...iterations(scope, options, toExample),
    ]),
    element("div", { class: "group-cards" }, [...tags(scope, options, toExample), ...groups(scope, options, toExample, launch.meta.warp_name)]),
  ];
}

function heading(index, scope, launch, context) {
  const links = launch.scopes.scope.includes(index)
    ? [["Slowest", 1], ["Median", 0.5]].map(([text, rank]) => link(text, () => context.goTo(targetOf(launch.scopes, rankedOf(launch.scopes, index, rank)))))
    : [];
  if (scope.source) links.push(link("Source", () => openView("source", { scope: index })));
  if (launch.sections.ttgir?.sites[index]?.length) links.push(link("TTGIR", () => openView("ttgir", { scope: index })));
  return element("header", { class: "scope-heading" }, [
    element("h2", { text: scope.name }),
    element("span", { class: "view-hint", text: [scope.kind, scope.source].filter(Boolean).join(" · ") }),
    ...links,
    exportTable(fileName(launch.meta, "scopes", "csv"), () => scopeTable(launch, context).querySelector("table"), "Save the figures of all scopes (x)"),
  ]);
}

function link(text, onClick) {
  return element("button", { type: "button", class: "link", text, on: { click: onClick } });
}

function note(text) {
  return element("p", { class: "view-hint", text });
}

/** Another profiler counts no cycles. */
function figures(scope, selfName, hasCycles) {
  const time = (ns) => resolvedNs(ns, scope, formatNs);
  const shown = [
    ["count", formatCount(scope.count)],
    ["share", formatShare(scope.share)],
    ["total", formatNs(scope.total_ns)],
    [selfName, formatNs(scope.self_ns)],
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
  const marks = [
    { label: "p50", ns: scope.p50_ns },
    { label: "p90", ns: scope.p90_ns },
    { label: "p99", ns: scope.p99_ns },
  ];
  const onChoose = (leastNs, belowNs) => toExample({ leastNs, belowNs });
  const scale = scope.histogram.log ? ", on a logarithmic axis" : "";
  return [card("Durations", `number of scopes by duration${scale}`, histogramPlot(scope.histogram, marks, { ...options, onChoose }))];
}

function iterations({ iterations: bands }, options, toExample) {
  if (!bands) return [];
  const loops = bands.fewest === bands.most ? counted(bands.most, "iteration") : `${bands.fewest} to ${bands.most} iterations`;
  const facts = [`${counted(bands.runs, "run")} of the loop with ${loops}`];
  if (bands.first_ns !== null) facts.push(`first ${formatNs(bands.first_ns)}${times(bands.first_ns, bands.steady_ns)}`);
  if (bands.steady_ns !== null) facts.push(`steady ${formatNs(bands.steady_ns)}`);
  if (bands.last_ns !== null) facts.push(`last ${formatNs(bands.last_ns)}${times(bands.last_ns, bands.steady_ns)}`);
  const onChoose = (first, last) => toExample({ first, last });
  return [card("Iterations", `median, and p10 to p90; ${facts.join(", ")}`, iterationPlot(bands, { ...options, onChoose }))];
}

function times(part, whole) {
  return whole ? ` (${(part / whole).toFixed(2)} ×)` : "";
}

function tags(scope, options, toExample) {
  return scope.tags.flatMap((tag, place) => {
    const onChoose = (value) => toExample({ tag: { place, value } });
    const more = [];
    if (tag.left_out) more.push(`${counted(tag.left_out, "shorter value")} hidden`);
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
    const more = group.left_out ? `; ${formatCount(group.left_out)} more hidden` : "";
    const onChoose = (id) => toExample({ [key]: id });
    const made = card(name, `mean duration of each${more}`, groupBars(group, { ...options, noun, onChoose }));
    made.style.flexBasis = `${roomOf(group)}px`;
    return made;
  });
}

function card(name, explanation, drawn) {
  return element("section", { class: "card" }, [
    element("h3", { text: name }),
    element("p", { class: "view-hint", text: explanation }),
    drawn,
  ]);
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
 * @param {{name: string, values: (number | null)[][]}} tag each of `values` has its value, count, total, p50, and that
 *     over the others'
 * @param {{color: string, onChoose: (value: number) => void}} options
 */
export function tagTable({ name, values }, { color, onChoose }) {
  const most = Math.max(...values.map(([, count, total]) => total ?? count), 1);
  const head = element("tr", {}, [
    element("th", { scope: "col", text: name }),
    element("th", { "aria-label": "share" }),
    ...HEADS.map(([text, title]) => element("th", { scope: "col", class: "figure", text, title })),
  ]);
  const rows = values.map(([value, count, total, p50, ratio]) =>
    element("tr", {}, [
      element("th", { scope: "row" }, [valueLink(value, onChoose)]),
      element("td", { class: "tag-bar" }, [bar((total ?? count) / most, color)]),
      element("td", { class: "figure", text: formatCount(count) }),
      element("td", { class: "figure", text: shortNs(total) }),
      element("td", { class: "figure", text: shortNs(p50) }),
      element("td", { class: "figure", text: ratio === null ? "–" : `${ratio.toFixed(2)} ×` }),
    ]),
  );
  return element("div", { class: "table-room" }, [
    element("table", { class: "plain-table" }, [element("thead", {}, [head]), element("tbody", {}, rows)]),
  ]);
}

function valueLink(value, onChoose) {
  return element("button", { type: "button", class: "link", text: value, title: "one of them in the timeline", on: { click: () => onChoose(value) } });
}

function bar(share, color) {
  const filled = element("span", { class: "bar-self" });
  filled.style.width = `${100 * share}%`;
  filled.style.background = color;
  return element("span", { class: "bar-track" }, [filled]);
}
