/** The utilization of each unit of an SM: lower bounds as solid bars, what was measured as outlines. */

import { element } from "#dom";
import { formatShare } from "#format";

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
      legend(wellUtilized),
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

function legend(wellUtilized) {
  const items = [
    ["unit-bound", "lower bound, from TTGIR or machine code"],
    ["unit-measured", "measured by hardware counters"],
    ["unit-mark", `${Math.round(100 * wellUtilized)} %: Nsight Compute's threshold for a well-utilized unit`],
  ];
  const shown = items.map(([kind, text]) => element("span", { class: "legend-item" }, [element("span", { class: `unit-swatch ${kind}` }), text]));
  return element("p", { class: "bar-legend" }, shown);
}
