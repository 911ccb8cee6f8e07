/** A launch at a glance: trust, findings, units, stalls, where the time goes, and the conditions of the measurement. */

import { placeName } from "#data";
import { chip, element, factList, link, shareBar, tableOf, tableRoom } from "#dom";
import { formatCount, formatShare, shortNs } from "#format";
import { evidenceTag } from "#masthead";
import { openView } from "#navigation";
import { exportTable, fileName, scopeTable } from "#tables";
import { reasonText, sentence, shareWithError, stallBar, stallColor, stallName } from "#views/line_evidence";
import { rankedOf, targetOf } from "#views/scopes";

export const title = "Overview";

const MIN_UNIT_SHARE = 0.0005;

export function show(place, launch, context) {
  const { facts, well_utilized, roofs, slopes, slopes_say, tried } = launch.sections.overview;
  const { trust, limit, units, findings, doubts, notes } = launch.meta;
  const groups = Object.entries(facts).map(([name, rows]) => element("section", { class: "card" }, [element("h3", { text: name }), factList(rows)]));
  place.append(
    element("div", { class: "overview" }, [
      section("Limit", element("p", { class: "limit" }, [sentence(limit.answer), ...evidenceTag(limit)]), ...roofCards(roofs, launch)),
      ...unitSection(shownUnits(units), well_utilized),
      section("Findings", ...findingCards(findings, launch, context), ...doubtCards(findings, doubts)),
      ...stallSection(launch),
      ...slopeSection(slopes, slopes_say, launch),
      scopeSection(launch),
      section("How far to trust it", element("p", { class: "verdict", data: { level: trust.level } }, [element("strong", { text: trust.level }), trust.text])),
      section("Conditions", element("div", { class: "fact-groups" }, [...buildCards(launch.meta), ...groups])),
      section("Notes", element("ul", { class: "notes" }, [...tried, ...notes].map((text) => element("li", { text: text.trim() })))),
    ]),
  );
}

function section(heading, ...children) {
  return element("section", {}, [element("h2", { text: heading }), ...children]);
}

function scopeSection({ meta }) {
  const table = scopeTable(meta);
  const save = meta.scopes.length ? [exportTable(fileName(meta, "scopes", "csv"), () => table.querySelector("table"))] : [];
  return element("section", {}, [element("header", { class: "table-heading" }, [element("h2", { text: "Scopes" }), ...save]), table]);
}

/** A bar for each scope: what part of its cycles its busiest unit needs at least. */
function roofCards(roofs, launch) {
  return roofs.map(([scope, unit, part]) =>
    element("article", { class: "roof" }, [
      shareTrack(part, "minimum share of the scope's cycles"),
      element("div", { class: "finding-text" }, [element("p", {}, [scopeLink(scope, launch), ` · ${unit}`])]),
    ]),
  );
}

function shareTrack(share, title) {
  return element("div", { class: "finding-share", title }, [
    element("strong", { text: formatShare(share) }),
    element("span", { class: "finding-track" }, [shareBar("finding-bar", share)]),
  ]);
}

function scopeLink(scope, launch, view = "scopes") {
  return link(launch.meta.scopes[scope].name, () => openView(view, { scope }));
}

function findingCards(findings, launch, context) {
  return findings.map(({ share, sentence: text, advice, index: scope, figures: { last_cta: cta = null } }) => {
    const about = [...(scope === null ? [] : [scopeLink(scope, launch)]), ...exampleLink(scope, cta, launch, context)];
    return element("article", { class: "finding" }, [
      shareTrack(share, "of the launch's time"),
      element("div", { class: "finding-text" }, [
        element("p", { class: "finding-says", text }),
        element("p", { class: "view-hint" }, [...about, advice].flatMap((part, at) => (at ? [" · ", part] : [part]))),
      ]),
    ]);
  });
}

/** To an example in the timeline: the CTA that it is about, or else where its scope took longest. */
function exampleLink(scope, cta, launch, context) {
  if (cta === null && (scope === null || !launch.scopes.scope.includes(scope))) return [];
  const target = () => (cta === null ? targetOf(launch.scopes, rankedOf(launch.scopes, scope, 1)) : { cta });
  return [link("show an example", () => context.goTo(target()))];
}

/** That nothing was found is good news only where every rule could judge. */
function doubtCards(findings, doubts) {
  if (!doubts.length) {
    if (findings.length) return [];
    return [element("p", { class: "finding none", text: "No rule found anything that limits this launch, and every rule could judge." })];
  }
  const head = findings.length ? [] : [element("p", { class: "finding-says", text: "No rule found anything, but some rules could not judge this launch." })];
  const lines = doubts.map((text) => element("p", { text: sentence(text) }));
  return [element("article", { class: "finding doubtful" }, [element("div", { class: "finding-text" }, [...head, ...lines])])];
}

const BUILD = [
  ["registers per thread", ({ registers }) => registers],
  ["spills", ({ spills }) => spills],
  ["shared memory", ({ shared_bytes: bytes }) => (bytes === null ? null : `${formatCount(bytes)} bytes`)],
  ["CTAs per SM", ({ ctas_per_sm: ctas }) => ctas],
  ["limited by", (build) => build.limited_by || null],
];

/** The kernel's builds without and with records, side by side. */
function buildCards({ clean, with_records: recorded, run_times: times }) {
  const all = BUILD.map(([label, textOf]) => [label, ...[clean, recorded].map((build) => textOf(build) ?? "-")]);
  const rows = [["run time (median)", ...[times.without_records_ns, times.with_records_ns].map((ns) => (ns === null ? "-" : shortNs(ns)))], ...all];
  const known = rows.filter(([, ...values]) => values.some((value) => value !== "-"));
  if (!known.length) return [];
  const lines = known.map(([label, one, other]) =>
    element("tr", { class: one !== "-" && one !== other ? "differs" : null }, [
      element("th", { text: label, scope: "row" }),
      element("td", { text: one }),
      element("td", { text: other }),
    ]),
  );
  const table = tableOf("build-table", [[""], ["without records"], ["with records"]], lines);
  return [element("section", { class: "card" }, [element("h3", { text: "Kernel" }), table])];
}

const SLOPE_HEADS = [
  ["place", ""],
  ["source", ""],
  ["slope", "cycles that the kernel loses per cycle of delay there"],
  ["", ""],
  ["slack", "the delay up to which the slope stays the same"],
  ["time", "share of the time of all warps"],
];

/** @returns {HTMLElement[]} empty for a kernel without delay experiments */
function slopeSection(slopes, says, launch) {
  if (!slopes.length) return [];
  const table = tableOf("plain-table slope-table", SLOPE_HEADS, slopes.map((place) => slopeRow(place, launch)));
  return [section("What matters", tableRoom(table), element("p", { class: "view-hint", text: says }))];
}

/** `place` is a `PlaceSlope` of the analysis. */
function slopeRow({ name, index: scope, scope: { source }, response, slope_text: text, slack_text: slack, time_share: time }, launch) {
  const place = scope === null ? name : link(name, () => openView("scopes", { scope }), { title: launch.meta.scopes[scope]?.name ?? "" });
  return element("tr", {}, [
    element("th", { scope: "row" }, [place]),
    element("td", { text: placeName(source) }),
    element("td", { class: "figure", text }),
    element("td", {}, response ? [slopeBar(response.slope)] : []),
    element("td", { text: slack }),
    element("td", { class: "figure", text: formatShare(time) }),
  ]);
}

/** From 0 to 1, with its interval. */
function slopeBar({ value, low, high }) {
  const at = (slope) => `${100 * Math.min(Math.max(slope, 0), 1)}%`;
  const interval = element("span", { class: "slope-interval" });
  interval.style.insetInlineStart = at(low);
  interval.style.width = `calc(${at(high)} - ${at(low)})`;
  return element("span", { class: "slope-track" }, [shareBar("slope-bar", value), interval]);
}

/** Without those of which 0.0 % would be shown. */
export function shownUnits(units) {
  return units.filter(({ computed, code, measured }) => (measured ?? Math.max(computed, code)) >= MIN_UNIT_SHARE);
}

/**
 * @param {Object[]} units each a `UnitEvidence` of the analysis
 * @param {number} wellUtilized from this utilization on, a unit may be the limit
 * @returns {HTMLElement[]} empty if nothing is known of any unit
 */
function unitSection(units, wellUtilized) {
  if (!units.length) return [];
  return [section("Units", unitLegend(wellUtilized), element("div", { class: "unit-bars" }, units.map((unit) => unitRow(unit, wellUtilized))))];
}

const EVIDENCE = {
  computed: (share) => `at least ${share}, computed from TTGIR`,
  code: (share) => `at least ${share}, from the machine code`,
  measured: (share) => `${share}, measured by hardware counters`,
};

/** All figures of a unit, on lines below its name. */
export function unitText(evidence) {
  const known = Object.entries(EVIDENCE).filter(([kind]) => evidence[kind] !== null);
  return [evidence.unit, ...known.map(([kind, text]) => text(formatShare(evidence[kind])))].join("\n");
}

function unitRow(evidence, wellUtilized) {
  const { unit, computed, code, measured } = evidence;
  const bound = Math.max(computed ?? 0, code ?? 0);
  const isBusy = Math.max(bound, measured ?? 0) >= wellUtilized;
  const mark = element("span", { class: "unit-mark" });
  mark.style.insetInlineStart = `${100 * wellUtilized}%`;
  return element("div", { class: isBusy ? "unit-row busy" : "unit-row", title: unitText(evidence) }, [
    element("span", { text: unit }),
    element("span", { class: "unit-track" }, [
      ...(bound ? [shareBar("unit-bound", bound)] : []),
      ...(measured ? [shareBar("unit-measured", measured)] : []),
      mark,
    ]),
    element("span", { class: "unit-figure", text: measured === null ? `≥ ${formatShare(bound)}` : formatShare(measured) }),
  ]);
}

function unitLegend(wellUtilized) {
  const items = [
    ["unit-bound", "lower bound, from TTGIR or machine code"],
    ["unit-measured", "measured by hardware counters"],
    ["unit-mark", `${Math.round(100 * wellUtilized)} %: Nsight Compute's threshold for a well-utilized unit`],
  ];
  const shown = items.map(([kind, text]) => element("span", { class: "legend-item" }, [element("span", { class: `unit-swatch ${kind}` }), text]));
  return element("p", { class: "bar-legend" }, shown);
}

const STALL_HEADS = [
  ["scope", ""],
  ["samples", "share of all samples of the launch"],
  ["reasons", "of the samples in the scope"],
  ["stalled most on", "shares of the samples in the scope, with their 95 % intervals"],
];

/** @returns {HTMLElement[]} empty if the warps were not sampled */
function stallSection(launch) {
  const { stalls } = launch.sections;
  if (!stalls?.samples) return [];
  const bar = stallBar(stalls.shares, stalls.meanings);
  bar.classList.add("of-launch");
  const rows = stalls.scopes.map((scope) => stalledScopeRow(scope, stalls.meanings, launch));
  const text = `${formatCount(stalls.samples)} samples of warps, taken without records; ± is half of a 95 % interval. Source and TTGIR have a bar for each line.`;
  return [section("What warps wait for", bar, stallLegend(stalls), ...(rows.length ? [tableRoom(tableOf("plain-table stall-table", STALL_HEADS, rows))] : []), element("p", { class: "view-hint", text }))];
}

function stallLegend({ shares, meanings }) {
  const items = Object.entries(shares).map(([reason, share]) =>
    element("div", { class: "stall-item" }, [
      stallName(reason),
      element("span", { class: "stall-meaning", text: meanings[reason] }),
      element("span", { class: "unit-figure", text: shareWithError(share) }),
    ]),
  );
  return element("div", { class: "stall-legend" }, items);
}

function stalledScopeRow({ scope, share, shares, longest }, meanings, launch) {
  const says = longest.map(([reason, one]) =>
    element("span", { class: "stall-word", title: reasonText(reason, one, meanings) }, [chip(stallColor(reason)), `${reason} ${shareWithError(one)}`]),
  );
  return element("tr", {}, [
    element("th", { scope: "row" }, [scopeLink(scope, launch, "ttgir")]),
    element("td", { class: "figure", text: formatShare(share) }),
    element("td", {}, [stallBar(shares, meanings)]),
    element("td", {}, says),
  ]);
}
