/** A launch at a glance: trust, findings, units, stalls, where the time goes, and the conditions of the measurement. */

import { element } from "#dom";
import { exportTable, fileName } from "#export";
import { formatCount, formatShare } from "#format";
import { evidenceTag } from "#masthead";
import { openView } from "#navigation";
import { scopeTable } from "#views/scope_lists";
import { rankedOf, targetOf } from "#views/scopes";
import { meaningOf, reasonText, shareWithError, stallBar, stallChip, stallName } from "#views/stall_bars";

export const title = "Overview";

/** `launch.sections.overview` is an `Overview` of page_schema.py. */
export function show(place, launch, context) {
  const { facts, builds, verdict, limit, limit_evidence, units, well_utilized, roofs, findings, doubts, slopes, slopes_say, notes } = launch.sections.overview;
  place.append(
    element("div", { class: "overview" }, [
      element("section", {}, [element("h2", { text: "Limit" }), element("p", { class: "limit" }, [sentence(limit), ...evidenceTag(limit_evidence)]), ...roofCards(roofs, launch)]),
      ...unitSection(units, well_utilized),
      element("section", {}, [element("h2", { text: "Findings" }), ...findingCards(findings, launch, context), ...doubtCards(findings, doubts)]),
      ...stallSection(launch),
      ...slopeSection(slopes, slopes_say, launch),
      scopeSection(launch, context),
      element("section", {}, [element("h2", { text: "How far to trust it" }), trust(verdict)]),
      element("section", {}, [
        element("h2", { text: "Conditions" }),
        element("div", { class: "fact-groups" }, [...buildCards(builds), ...facts.map(factGroup)]),
      ]),
      element("section", {}, [element("h2", { text: "Notes" }), noteList(notes)]),
    ]),
  );
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function scopeSection(launch, context) {
  const table = scopeTable(launch, context);
  const save = launch.sections.scopes.length ? [exportTable(fileName(launch.meta, "scopes", "csv"), () => table.querySelector("table"))] : [];
  return element("section", {}, [element("header", { class: "table-heading" }, [element("h2", { text: "Scopes" }), ...save]), table]);
}

/** A bar for each scope: what part of its cycles its busiest unit needs at least. */
function roofCards(roofs, launch) {
  return roofs.map(({ scope, unit, part }) =>
    element("article", { class: "roof" }, [
      shareTrack(part, "minimum share of the scope's cycles"),
      element("div", { class: "finding-text" }, [element("p", {}, [scopeLink(scope, launch), ` · ${unit}`])]),
    ]),
  );
}

function shareTrack(share, title) {
  const bar = element("span", { class: "finding-bar" });
  bar.style.width = `${Math.min(Math.max(100 * share, 0), 100)}%`;
  return element("div", { class: "finding-share", title }, [
    element("strong", { text: formatShare(share) }),
    element("span", { class: "finding-track" }, [bar]),
  ]);
}

function scopeLink(scope, launch) {
  return element("button", { type: "button", class: "link", text: launch.sections.scopes[scope].name, on: { click: () => openView("scopes", { scope }) } });
}

function findingCards(findings, launch, context) {
  return findings.map(({ share, text, advice, scope, cta }) => {
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
  return [element("button", { type: "button", class: "link", text: "show an example", on: { click: () => context.goTo(target()) } })];
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

function trust({ level, text }) {
  return element("p", { class: "verdict", data: { level } }, [element("strong", { text: level }), text]);
}

function buildCards(rows) {
  const known = rows.filter(([, ...values]) => values.some((value) => value !== "-"));
  if (!known.length) return [];
  const head = ["", "without records", "with records"].map((text) => element("th", { text, scope: "col" }));
  const lines = known.map(([label, clean, recorded]) =>
    element("tr", { class: clean !== "-" && clean !== recorded ? "differs" : null }, [
      element("th", { text: label, scope: "row" }),
      element("td", { text: clean }),
      element("td", { text: recorded }),
    ]),
  );
  const table = element("table", { class: "build-table" }, [element("thead", {}, [element("tr", {}, head)]), element("tbody", {}, lines)]);
  return [element("section", { class: "card" }, [element("h3", { text: "Kernel" }), table])];
}

function factGroup({ title: name, rows }) {
  const items = rows.flatMap(([label, value]) => [element("dt", { text: label }), element("dd", { text: value })]);
  return element("section", { class: "card" }, [element("h3", { text: name }), element("dl", { class: "fact-list" }, items)]);
}

function noteList(notes) {
  return element("ul", { class: "notes" }, notes.map((text) => element("li", { text: text.trim() })));
}

const SLOPE_HEADS = [
  ["place", ""],
  ["source", ""],
  ["slope", "cycles that the kernel loses per cycle of delay there"],
  ["", ""],
  ["slack", "the delay up to which the slope stays the same"],
  ["time", "share of the time of all warps"],
  ["path", "share of the critical path"],
];

/** @returns {HTMLElement[]} empty for a kernel without delay experiments */
export function slopeSection(slopes, says, launch) {
  if (!slopes.length) return [];
  const head = element("tr", {}, SLOPE_HEADS.map(([text, title]) => element("th", { text, title: title || null, scope: "col" })));
  const table = element("table", { class: "plain-table slope-table" }, [element("thead", {}, [head]), element("tbody", {}, slopes.map((row) => rowOf(row, launch)))]);
  return [element("section", {}, [element("h2", { text: "What matters" }), element("div", { class: "table-room" }, [table]), element("p", { class: "view-hint", text: says })])];
}

function rowOf({ name, scope, source, slope, low, high, text, slack, time, path }, launch) {
  return element("tr", {}, [
    element("th", { scope: "row" }, [scope === null ? name : placeLink(name, scope, launch)]),
    element("td", { text: source }),
    element("td", { class: "figure", text }),
    element("td", {}, slope === null ? [] : [slopeBar(slope, low, high)]),
    element("td", { text: slack }),
    element("td", { class: "figure", text: formatShare(time) }),
    element("td", { class: "figure", text: formatShare(path) }),
  ]);
}

function placeLink(name, scope, launch) {
  const title = launch.sections.scopes[scope]?.name ?? "";
  return element("button", { type: "button", class: "link", text: name, title, on: { click: () => openView("scopes", { scope }) } });
}

/** From 0 to 1, with its interval. */
function slopeBar(slope, low, high) {
  const at = (value) => `${100 * Math.min(Math.max(value, 0), 1)}%`;
  const bar = element("span", { class: "slope-bar" });
  const interval = element("span", { class: "slope-interval" });
  bar.style.width = at(slope);
  interval.style.insetInlineStart = at(low);
  interval.style.width = `calc(${at(high)} - ${at(low)})`;
  return element("span", { class: "slope-track" }, [bar, interval]);
}

/**
 * @param {Object[]} units each a `UnitBar` of page_schema.py
 * @param {number} wellUtilized from this utilization on, a unit may be the limit
 * @returns {HTMLElement[]} empty if nothing is known of any unit
 */
export function unitSection(units, wellUtilized) {
  if (!units.length) return [];
  return [
    element("section", {}, [
      element("h2", { text: "Units" }),
      unitLegend(wellUtilized),
      element("div", { class: "unit-bars" }, units.map((unit) => unitRow(unit, wellUtilized))),
    ]),
  ];
}

function unitRow({ unit, lower_bound: bound, measured, text }, wellUtilized) {
  const isBusy = Math.max(bound ?? 0, measured ?? 0) >= wellUtilized;
  return element("div", { class: isBusy ? "unit-row busy" : "unit-row", title: text }, [
    element("span", { text: unit }),
    element("span", { class: "unit-track" }, [
      ...(bound ? [bar("unit-bound", bound)] : []),
      ...(measured ? [bar("unit-measured", measured)] : []),
      mark(wellUtilized),
    ]),
    element("span", { class: "unit-figure", text: figureOf(bound, measured) }),
  ]);
}

function figureOf(bound, measured) {
  return measured === null ? `≥ ${formatShare(bound)}` : formatShare(measured);
}

function bar(kind, share) {
  const made = element("span", { class: kind });
  made.style.width = `${Math.min(100 * share, 100)}%`;
  return made;
}

function mark(share) {
  const made = element("span", { class: "unit-mark" });
  made.style.insetInlineStart = `${100 * share}%`;
  return made;
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
export function stallSection(launch) {
  const { stalls } = launch.sections;
  if (!stalls?.samples) return [];
  const bar = stallBar(stalls.shares, 1, (share) => reasonText(share, stalls.reasons));
  bar.classList.add("of-launch");
  return [
    element("section", {}, [
      element("h2", { text: "What warps wait for" }),
      bar,
      stallLegend(stalls),
      ...stallTable(stalls, launch),
      element("p", {
        class: "view-hint",
        text: `${formatCount(stalls.samples)} samples of warps, taken without records; ± is half of a 95 % interval. Source and TTGIR have a bar for each line.`,
      }),
    ]),
  ];
}

function stallLegend({ shares, reasons }) {
  const items = shares.map((share) =>
    element("div", { class: "stall-item" }, [
      stallName(share.reason),
      element("span", { class: "stall-meaning", text: meaningOf(share.reason, reasons) }),
      element("span", { class: "unit-figure", text: shareWithError(share.share, share.error) }),
    ]),
  );
  return element("div", { class: "stall-legend" }, items);
}

function stallTable({ scopes, reasons }, launch) {
  if (!scopes.length) return [];
  const head = element("tr", {}, STALL_HEADS.map(([text, title]) => element("th", { text, title: title || null, scope: "col" })));
  const rows = scopes.map((scope) => scopeRow(scope, reasons, launch));
  return [
    element("div", { class: "table-room" }, [
      element("table", { class: "plain-table stall-table" }, [element("thead", {}, [head]), element("tbody", {}, rows)]),
    ]),
  ];
}

function scopeRow({ scope, share, shares, longest }, reasons, launch) {
  const { name } = launch.sections.scopes[scope];
  const link = element("button", { type: "button", class: "link", text: name, on: { click: () => openView("ttgir", { scope }) } });
  const says = longest.map((one) =>
    element("span", { class: "stall-word", title: reasonText(one, reasons) }, [stallChip(one.reason), `${one.reason} ${shareWithError(one.share, one.error)}`]),
  );
  return element("tr", {}, [
    element("th", { scope: "row" }, [link]),
    element("td", { class: "figure", text: formatShare(share) }),
    element("td", {}, [stallBar(shares, 1, (one) => reasonText(one, reasons))]),
    element("td", {}, says),
  ]);
}
