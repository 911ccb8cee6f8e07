/** The kernels of a capture side by side, and their launches. Each row is a `KernelRow` of page_schema.py. */

import { element } from "#dom";
import { exportTable } from "#export";
import { counted, formatShare, shortNs } from "#format";
import { evidenceTag } from "#masthead";

export const title = "Kernels";

/** A capture of one launch has nothing to put side by side. */
export function isWanted(report) {
  return report.launches.length > 1 || report.others.length > 0;
}

const HEADS = [
  ["kernel", ""],
  ["variants", "compiled with other options, constants or types", "figure"],
  ["launches", "in the program; if that is unknown, in the capture", "figure"],
  ["time", "the median of its captured launches, by the device's timer", "figure"],
  ["share", "of the time of all launches of the program, without records; unknown if their number is", "figure"],
  ["to win", "the time of all its launches that could be won at most: what edits won, what the first advice may win, or what the busiest unit leaves", "figure"],
  ["by", "edits that won it, or the finding with the advice"],
  ["limit", ""],
  ["trust", "how much the records disturbed it, and what is missing"],
  ["findings", ""],
];
const MAX_LAUNCHES = 50;

/** The kernels whose launches the reader wants to see, by their places: they stay open when another launch is shown. */
const opened = new Set();

export function show(place, launch, { kernels, others, openLaunch, shownLaunch }) {
  if (kernels.length === 1) opened.add(0);
  const head = element("tr", {}, HEADS.map(([text, hint, kind]) => element("th", { text, title: hint || null, class: kind, scope: "col" })));
  const most = Math.max(...kernels.map((kernel) => kernel.to_win_ns ?? 0));
  const bodies = kernels.map((kernel, index) => bodyOf(kernel, index, most, openLaunch, shownLaunch));
  const table = element("table", { class: "plain-table kernel-table" }, [element("thead", {}, [head]), ...bodies, element("tbody", {}, others.map(otherRow))]);
  place.append(element("div", { class: "overview" }, [
    element("header", { class: "table-heading" }, [
      element("p", { class: "view-hint kernel-hint", text: "Kernels by the time that could be won. A row opens the timeline of the median launch." }),
      exportTable("kernels.csv", () => table),
    ]),
    element("div", { class: "table-room" }, [table]),
  ]));
}

/** A kernel's row, and below it, while it is open, those of its launches. */
function bodyOf(kernel, index, most, openLaunch, shownLaunch) {
  const launches = launchRows(kernel, openLaunch, shownLaunch);
  const arrow = element("button", {
    type: "button",
    class: "disclosure",
    title: counted(kernel.others.length, "launch", "launches"),
    "aria-label": "launches",
    on: { click: (event) => toggle(event) },
  });
  const body = element("tbody", {}, [kernelRow(kernel, most, launches.length ? [arrow] : [], openLaunch, shownLaunch), ...launches]);
  const update = () => {
    const isOpen = opened.has(index);
    arrow.setAttribute("aria-expanded", String(isOpen));
    for (const row of launches) row.hidden = !isOpen;
  };
  const toggle = (event) => {
    event.stopPropagation();
    if (!opened.delete(index)) opened.add(index);
    update();
  };
  update();
  return body;
}

/** `most` is the largest time to win of any kernel. */
function kernelRow(kernel, most, disclosure, openLaunch, shownLaunch) {
  const isShown = kernel.others.some(({ launch }) => launch === shownLaunch);
  return row("kernel", kernel, isShown, openLaunch, [
    element("th", { scope: "row" }, [element("span", { class: "kernel-name" }, [...disclosure, opener(kernel.name)])]),
    figure(kernel.variants),
    figure(kernel.launches),
    figure(shortNs(kernel.time_ns)),
    kernel.share === null ? figure("–") : barCell(kernel.share, formatShare(kernel.share)),
    kernel.to_win_ns === null ? figure("?") : barCell(most && kernel.to_win_ns / most, shortNs(kernel.to_win_ns)),
    element("td", { text: kernel.to_win_by }),
    ...judged(kernel),
  ]);
}

/** What else the GPU did: a `WorkRow` of page_schema.py. */
function otherRow({ name, kind, count, total_ns: totalNs, share }) {
  return element("tr", { class: "other-work" }, [
    element("th", { scope: "row", text: name }),
    figure(""),
    figure(count),
    figure(shortNs(totalNs / Math.max(count, 1))),
    share === null ? figure("–") : barCell(share, formatShare(share)),
    figure(""),
    element("td"),
    element("td", { class: "view-hint", text: kind === "kernel" ? "not recorded" : kind }),
    element("td"),
    element("td"),
  ]);
}

/** Of a kernel that was captured once, its row says all. */
function launchRows(kernel, openLaunch, shownLaunch) {
  if (kernel.others.length < 2) return [];
  const rows = kernel.others.slice(0, MAX_LAUNCHES).map((one) =>
    row(null, one, one.launch === shownLaunch, openLaunch, [
      element("th", { scope: "row" }, [opener(`launch ${one.number}`)]),
      figure(""),
      figure(""),
      figure(shortNs(one.time_ns)),
      figure(""),
      figure(""),
      element("td"),
      ...judged(one),
    ]),
  );
  const left = kernel.others.length - rows.length;
  if (left) rows.push(element("tr", {}, [element("td", { colspan: HEADS.length, class: "view-hint", text: `${left} shorter ${left === 1 ? "launch" : "launches"} hidden` })]));
  return rows;
}

/** All of a row leads to its launch; the button in it is for keys. */
function row(kind, { launch }, isShown, openLaunch, cells) {
  const on = { click: () => openLaunch(launch) };
  return element("tr", { class: kind, "aria-current": isShown ? "true" : null, on }, cells);
}

/** A long name may wrap after an underscore. */
function opener(text) {
  const parts = text.split(/(?<=_)/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));
  return element("button", { type: "button", class: "link" }, parts);
}

function figure(text) {
  return element("td", { class: "figure", text: String(text) });
}

function barCell(share, text) {
  const bar = element("span", { class: "bar-self" });
  bar.style.width = `${100 * share}%`;
  return element("td", { class: "figure" }, [
    element("span", { class: "share-cell" }, [element("span", { class: "bar-track" }, [bar]), text]),
  ]);
}

function judged({ limit, limit_evidence, level, findings }) {
  return [
    element("td", {}, [limit.replaceAll(" %", "\u00a0%"), ...evidenceTag(limit_evidence)]),
    element("td", { class: "level", data: { level }, text: level }),
    element("td", { class: "view-hint findings", text: findings.join(", ") }),
  ];
}
