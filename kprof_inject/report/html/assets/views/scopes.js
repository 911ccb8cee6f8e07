/** One scope at a time: how its durations are spread, how iterations go, where it takes how long. */

import { element } from "#dom";
import { exportTable, fileName } from "#export";
import { counted, formatCount, formatNs, formatShare, resolvedNs } from "#format";
import { exampleOf, rankedOf, targetOf } from "#views/examples";
import { groupBars, roomOf } from "#views/group_bars";
import { histogramPlot } from "#views/histogram";
import { iterationPlot } from "#views/iteration_plot";
import { openView, receive } from "#views/navigation";
import { scopeList } from "#views/scope_list";
import { scopeTable } from "#views/scope_table";
import { tagTable } from "#views/tag_table";
import { tooltipIn } from "#views/tooltip";

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
