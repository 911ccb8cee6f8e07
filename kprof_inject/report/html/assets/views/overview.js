/** A launch at a glance: trust, findings, where the time goes, and the conditions of the measurement. */

import { element } from "#dom";
import { evidenceTag } from "#evidence";
import { exportTable, fileName } from "#export";
import { formatShare } from "#format";
import { rankedOf, targetOf } from "#views/examples";
import { openView } from "#views/navigation";
import { scopeTable } from "#views/scope_table";
import { slopeSection } from "#views/slope_table";
import { stallSection } from "#views/stall_section";
import { unitSection } from "#views/unit_bars";

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
