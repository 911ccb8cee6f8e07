/** What the warps of a launch wait for: as a whole, and in each scope. The data is a `LaunchStalls` of page_schema.py. */

import { element } from "#dom";
import { formatCount, formatShare } from "#format";
import { openView } from "#views/navigation";
import { meaningOf, reasonText, shareWithError, stallBar, stallChip, stallName } from "#views/stall_bars";

const HEADS = [
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
      legend(stalls),
      ...scopeTable(stalls, launch),
      element("p", {
        class: "view-hint",
        text: `${formatCount(stalls.samples)} samples of warps, taken without records; ± is half of a 95 % interval. Source and TTGIR have a bar for each line.`,
      }),
    ]),
  ];
}

function legend({ shares, reasons }) {
  const items = shares.map((share) =>
    element("div", { class: "stall-item" }, [
      stallName(share.reason),
      element("span", { class: "stall-meaning", text: meaningOf(share.reason, reasons) }),
      element("span", { class: "unit-figure", text: shareWithError(share.share, share.error) }),
    ]),
  );
  return element("div", { class: "stall-legend" }, items);
}

function scopeTable({ scopes, reasons }, launch) {
  if (!scopes.length) return [];
  const head = element("tr", {}, HEADS.map(([text, title]) => element("th", { text, title: title || null, scope: "col" })));
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
