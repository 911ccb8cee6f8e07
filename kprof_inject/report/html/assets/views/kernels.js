/** The kernels of a capture side by side, and their launches. */

import { element, shareBar, tableOf, tableRoom } from "#dom";
import { counted, formatShare, shortNs } from "#format";
import { evidenceTag } from "#masthead";
import { exportTable } from "#tables";

export const title = "Kernels";

/** A capture of one launch has nothing to put side by side. */
export function isWanted(report) {
  return report.launches.length > 1 || report.others.length > 0;
}

const HEADS = [
  ["kernel", ""],
  ["variants", "compiled with other options, constants or types", "figure"],
  ["launches", "in the program; if that is unknown, in the capture", "figure"],
  ["span", "from the first CTA's begin to the end of the last one's work, with records; the median of its captured launches", "figure"],
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

export function show(place, launch, context) {
  const { kernels, others, whole_ns: wholeNs } = context.report;
  if (kernels.length === 1) opened.add(0);
  const most = Math.max(...kernels.map(({ kernel }) => kernel.to_win_ns ?? 0));
  const bodies = kernels.map((kernel, index) => rowsOf(kernel, index, most, context));
  const table = tableOf("plain-table kernel-table", HEADS, ...bodies, others.map((work) => otherRow(work, wholeNs)));
  place.append(element("div", { class: "overview" }, [
    element("header", { class: "table-heading" }, [
      element("p", { class: "view-hint kernel-hint", text: "Kernels by the time that could be won. A row opens the timeline of the median launch." }),
      exportTable("kernels.csv", () => table),
    ]),
    tableRoom(table),
  ]));
}

/** A kernel's row, and below it, while it is open, those of its launches. */
function rowsOf(kernel, index, most, context) {
  const launches = launchRows(kernel, context);
  const toggle = (event) => {
    event.stopPropagation();
    if (!opened.delete(index)) opened.add(index);
    update();
  };
  const title = counted(kernel.launches.length, "launch", "launches");
  const arrow = element("button", { type: "button", class: "disclosure", title, "aria-label": "launches", on: { click: toggle } });
  const update = () => {
    arrow.setAttribute("aria-expanded", String(opened.has(index)));
    for (const row of launches) row.hidden = !opened.has(index);
  };
  update();
  return [kernelRow(kernel, most, launches.length ? [arrow] : [], context), ...launches];
}

/** `most` is the largest time to win of any kernel. */
function kernelRow({ kernel, launch, launches }, most, disclosure, context) {
  return rowOf("kernel", launch, launches.includes(context.shownLaunch), context, [
    element("th", { scope: "row" }, [element("span", { class: "kernel-name" }, [...disclosure, opener(kernel.name)])]),
    figure(kernel.variants),
    figure(kernel.known_launches),
    figure(shortNs(kernel.time_ns)),
    kernel.share === null ? figure("–") : barCell(kernel.share, formatShare(kernel.share)),
    kernel.to_win_ns === null ? figure("?") : barCell(most && kernel.to_win_ns / most, shortNs(kernel.to_win_ns)),
    element("td", { text: kernel.gain.by }),
    ...judged(context.report.launches[launch]),
  ]);
}

/** What else the GPU did; `wholeNs` is the time of all that it did, null if that is unknown. */
function otherRow({ name, kind, count, total_ns: totalNs }, wholeNs) {
  return element("tr", { class: "other-work" }, [
    element("th", { scope: "row", text: name }),
    figure(""),
    figure(count),
    figure(shortNs(totalNs / Math.max(count, 1))),
    wholeNs ? barCell(totalNs / wholeNs, formatShare(totalNs / wholeNs)) : figure("–"),
    figure(""),
    element("td"),
    element("td", { class: "view-hint", text: kind === "kernel" ? "not recorded" : kind }),
    element("td"),
    element("td"),
  ]);
}

/** Of a kernel that was captured once, its row says all. */
function launchRows({ launches }, context) {
  if (launches.length < 2) return [];
  const rows = launches.slice(0, MAX_LAUNCHES).map((index) => {
    const launch = context.report.launches[index];
    return rowOf(null, index, index === context.shownLaunch, context, [
      element("th", { scope: "row" }, [opener(`launch ${launch.launch}`)]),
      ...["", "", shortNs(launch.duration_ns), "", ""].map(figure),
      element("td"),
      ...judged(launch),
    ]);
  });
  const left = launches.length - rows.length;
  if (left) rows.push(element("tr", {}, [element("td", { colspan: HEADS.length, class: "view-hint", text: `${left} shorter ${left === 1 ? "launch" : "launches"} hidden` })]));
  return rows;
}

/** All of a row leads to its launch; the button in it is for keys. */
function rowOf(kind, launch, isShown, { openLaunch }, cells) {
  return element("tr", { class: kind, "aria-current": isShown ? "true" : null, on: { click: () => openLaunch(launch) } }, cells);
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
  const track = element("span", { class: "bar-track" }, [shareBar("bar-self", share)]);
  return element("td", { class: "figure" }, [element("span", { class: "share-cell" }, [track, text])]);
}

function judged({ limit, level, findings }) {
  return [
    element("td", {}, [limit.name.replaceAll(" %", "\u00a0%"), ...evidenceTag(limit)]),
    element("td", { class: "level", data: { level }, text: level }),
    element("td", { class: "view-hint findings", text: findings.join(", ") }),
  ];
}
