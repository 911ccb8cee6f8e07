/** The places of a kernel that were delayed, most critical first. Each row is a `SlopeRow` of page_schema.py. */

import { element } from "#dom";
import { formatShare } from "#format";
import { openView } from "#views/navigation";

const HEADS = [
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
  const head = element("tr", {}, HEADS.map(([text, title]) => element("th", { text, title: title || null, scope: "col" })));
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
