/** The panel next to the source: the scopes of the chosen line, and what warps wait for there. */

import { element } from "#dom";
import { counted, formatCount, formatShare, resolvedNs, shortNs } from "#format";
import { exampleOf, targetOf } from "#views/examples";
import { openView } from "#views/navigation";
import { reasonText, shareWithError, sourceName, stallName } from "#views/stall_bars";

/** @param {{timed?: Object, stalled?: Object}} line its `TimedLine` and `StalledLine` of page_schema.py, if it has any */
export function lineDetails({ timed, stalled }, number, file, launch, context, ttgirLines) {
  const lines = ttgirLines.get(`${file.path}:${number}`);
  const shown = [element("h3", { text: `Line ${number}` })];
  if (lines) {
    shown.push(
      element("p", {}, [
        element("button", { type: "button", class: "link", text: `${counted(lines.length, "line")} of the TTGIR`, on: { click: () => openView("ttgir", { line: lines[0] }) } }),
      ]),
    );
  }
  if (!timed) shown.push(element("p", { class: "view-hint", text: "No scope begins here." }));
  const cards = (timed?.scopes ?? []).map((index) => scopeCard(index, launch, context));
  if (stalled) cards.push(stallCard(stalled, launch.sections.stalls.reasons));
  return cards.length ? [...shown, element("div", { class: "line-cards" }, cards)] : shown;
}

function stallCard({ share, error, shares, awaited }, reasons) {
  const ranked = [...shares].sort((one, other) => other.share - one.share);
  const rows = ranked.map((one) =>
    element("div", { class: "stall-item", title: reasonText(one, reasons) }, [
      stallName(one.reason),
      element("span", { class: "unit-figure", text: shareWithError(one.share, one.error) }),
    ]),
  );
  return element("section", { class: "card" }, [
    element("h4", { text: `Samples: ${shareWithError(share, error)} of all` }),
    ...rows,
    ...awaited.map(awaitedText),
  ]);
}

function awaitedText(awaited) {
  const link = element("button", { type: "button", class: "link", text: sourceName(awaited), title: "show in the TTGIR", on: { click: () => openView("ttgir", { line: awaited.line - 1 }) } });
  return element("p", { class: "awaited" }, [`${awaited.reason}: ${formatShare(awaited.share)} wait for the result of `, link]);
}

function scopeCard(index, launch, context) {
  const scope = launch.sections.scopes[index];
  const { called_from: calls, self_name: selfName } = launch.meta.scopes[index];
  const chip = element("span", { class: "scope-chip" });
  chip.style.background = context.theme.scopeColor(index);
  const rows = [
    ["total", `${shortNs(scope.total_ns)} (${formatShare(scope.share)})`],
    [selfName, `${shortNs(scope.self_ns)} (${formatShare(selfShare(scope))})`],
    ["ran", `${formatCount(scope.count)} ×`],
    ["mean", resolvedNs(scope.mean_ns, scope)],
    ["p50", resolvedNs(scope.p50_ns, scope)],
    ["p99", resolvedNs(scope.p99_ns, scope)],
  ];
  if (calls.length) rows.push(["called from", calls.join(", ")]);
  const shown = scope.kind === "mark" ? [["passed", `${formatCount(scope.count)} ×`]] : rows;
  return element("section", { class: "card" }, [
    element("h4", {}, [chip, scope.name]),
    element("dl", { class: "fact-list" }, shown.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value, class: name === "called from" ? "wrapping" : null })])),
    element("p", { class: "links" }, linksOf(index, launch, context)),
  ]);
}

function selfShare(scope) {
  if (scope.share === null) return null;
  return scope.total_ns ? (scope.share * scope.self_ns) / scope.total_ns : 0;
}

function linksOf(index, launch, context) {
  const link = (text, onClick) => element("button", { type: "button", class: "link", text, on: { click: onClick } });
  const links = [link("Durations", () => openView("scopes", { scope: index }))];
  const example = exampleOf(launch.scopes, { scope: index });
  if (example >= 0) links.push(link("Timeline", () => context.goTo(targetOf(launch.scopes, example))));
  if (launch.sections.ttgir?.sites[index]?.length) links.push(link("TTGIR", () => openView("ttgir", { scope: index })));
  return links;
}
