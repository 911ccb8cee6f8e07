/** The kernels of a capture side by side, and their launches. `kernel_rows.py` makes the rows. */

import { element } from "#dom";
import { formatNs, formatShare } from "#format";

export const title = "Kernels";

/** A capture of one launch has nothing to put side by side. */
export function isWanted(report) {
  return report.launches.length > 1;
}

const HEADS = [
  ["kernel", ""],
  ["variants", "compiled with other options, constants or types"],
  ["launches", "in the program; in the capture, if that is unknown"],
  ["time", "the median of its captured launches, by the device's timer"],
  ["of all", "share of the time of all launches of the program, without records"],
  ["limit", ""],
  ["trust", "how far the records disturbed it, and what is missing"],
  ["findings", ""],
];
const MOST_LAUNCHES = 50;

export function show(place, launch, { kernels, openLaunch }) {
  const head = element("tr", {}, HEADS.map(([text, hint]) => element("th", { text, title: hint || null, scope: "col" })));
  const rows = kernels.flatMap((kernel) => [kernelRow(kernel, openLaunch), ...launchRows(kernel, openLaunch)]);
  place.append(element("div", { class: "overview" }, [
    element("table", { class: "plain-table kernel-table" }, [element("thead", {}, [head]), element("tbody", {}, rows)]),
  ]));
}

function kernelRow(kernel, openLaunch) {
  return element("tr", { class: "kernel" }, [
    element("th", { scope: "row" }, [opener(kernel.name, kernel, openLaunch)]),
    figure(kernel.variants),
    figure(kernel.launches),
    figure(formatNs(kernel.time_ns)),
    figure(kernel.share === null ? "" : formatShare(kernel.share)),
    ...judged(kernel),
  ]);
}

/** Of a kernel that was captured once, its row says all. */
function launchRows(kernel, openLaunch) {
  if (kernel.others.length < 2) return [];
  const rows = kernel.others.slice(0, MOST_LAUNCHES).map((row) =>
    element("tr", {}, [
      element("th", { scope: "row" }, [opener(`launch ${row.number}`, row, openLaunch)]),
      figure(""),
      figure(""),
      figure(formatNs(row.time_ns)),
      figure(""),
      ...judged(row),
    ]),
  );
  const left = kernel.others.length - rows.length;
  if (left) rows.push(element("tr", {}, [element("td", { colspan: HEADS.length, class: "view-hint", text: `${left} more took less` })]));
  return rows;
}

function opener(text, { launch }, openLaunch) {
  return element("button", { type: "button", class: "link", text, on: { click: () => openLaunch(launch) } });
}

function figure(text) {
  return element("td", { class: "figure", text: String(text) });
}

function judged({ limit, level, findings }) {
  return [
    element("td", { text: limit }),
    element("td", { class: "level", data: { level }, text: level }),
    element("td", { class: "view-hint", text: findings.join(", ") }),
  ];
}
