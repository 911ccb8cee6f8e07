/** The kernel's source, with the time of the scopes that begin on each line. */

import { element } from "#dom";
import { counted, formatCount, formatShare, shortNs } from "#format";
import { findBox } from "#views/find_box";
import { codeNodes, pythonParts } from "#views/highlight";
import { LineList } from "#views/line_list";
import { openView, receive } from "#views/navigation";
import { unpacked } from "#data";
import { lineDetails } from "#views/source_details";
import { sourceRows, ttgirLinesBySource } from "#views/source_rows";
import { mostStalled, sourceName, stallCell } from "#views/stall_bars";

export const title = "Source";

const MIN_ELSEWHERE = 0.005;

/** `launch.sections.source` has a `SourceFile` of page_schema.py for each file. */
export function show(place, launch, context) {
  const files = launch.sections.source;
  if (!files.length) {
    place.append(element("p", { class: "view-empty", text: "The capture has no source of this kernel, and no scope has a source line." }));
    return;
  }
  const { ttgir, overview, stalls } = launch.sections;
  const state = { file: files[0], rows: [], timed: new Map(), slopes: new Map(), stalled: new Map() };
  const ttgirLines = ttgirLinesBySource(ttgir, ttgir ? unpacked(ttgir.place_of) : []);
  const columns = { slopes: files.some((file) => file.slopes.length), stalls: stalls && { reasons: stalls.reasons, most: mostStalled(files.flatMap((file) => file.stalls)) } };
  const details = element("aside", { class: "line-details" });
  const list = new LineList((index) => rowOf(state, index, overview.warp_time_ns, ttgirLines, columns, choose), "Source");
  const choose = (index) => {
    list.goTo(index);
    const { number } = state.rows[index];
    details.replaceChildren(...lineDetails({ timed: state.timed.get(number), stalled: state.stalled.get(number) }, number, state.file, launch, context, ttgirLines));
  };
  list.element.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = nextLine(state.rows, list.current, step);
    if (next >= 0) choose(next);
  });
  const chooser = element(
    "select",
    { "aria-label": "File", on: { change: () => open(files[Number(chooser.value)]) } },
    files.map((file, index) => element("option", { value: index, text: file.path })),
  );
  const open = (file) => {
    Object.assign(state, { file, rows: sourceRows(file, pythonParts), timed: byLine(file.timed), slopes: byLine(file.slopes), stalled: byLine(file.stalls) });
    list.setRows(state.rows.length, Math.max(...state.rows.map((row) => row.text?.length ?? 0), 1));
    const hottest = file.timed.reduce((best, timed) => (best && (best.self_ns ?? -1) >= (timed.self_ns ?? -1) ? best : timed), null);
    if (hottest) choose(rowOfNumber(state.rows, hottest.line));
    else details.replaceChildren();
  };
  const find = findBox(() => state.rows.map((row) => row.text ?? ""), choose);
  place.append(
    element("div", { class: `code-view${columns.slopes ? " with-slopes" : ""}${stalls ? " with-stalls" : ""}` }, [
      element("div", { class: "view-toolbar" }, [chooser, find, element("span", { class: "view-hint", text: `shares are of the time of all warps${elsewhere(stalls)}` })]),
      element("div", { class: "side-by-side" }, [element("div", { class: "code-room" }, [heads(columns), list.element]), details]),
    ]),
  );
  receive("source", (target) => goTo(target));
  const goTo = ({ scope, path, line }) => {
    const wanted = files.find((file) => (scope === undefined ? file.path === path : file.timed.some(({ scopes }) => scopes.includes(scope))));
    if (!wanted) return;
    chooser.value = String(files.indexOf(wanted));
    open(wanted);
    const number = scope === undefined ? line : wanted.timed.find(({ scopes }) => scopes.includes(scope)).line;
    choose(rowOfNumber(state.rows, number));
  };
  open(files[0]);
}

/** Entries of a file by their line. */
function byLine(entries) {
  return new Map(entries.map((entry) => [entry.line, entry]));
}

/** Samples that no line here shows, as those in functions of Triton's library. */
function elsewhere(stalls) {
  return stalls && stalls.elsewhere >= MIN_ELSEWHERE ? `; ${formatShare(stalls.elsewhere)} of the samples are not at these lines: see the TTGIR` : "";
}

/** Lines that the page does not have are passed over; -1 at an end. */
function nextLine(rows, from, step) {
  let at = from + step;
  while (rows[at]?.gap) at += step;
  return rows[at] ? at : -1;
}

function rowOfNumber(rows, number) {
  const found = rows.findIndex((row) => row.number === number);
  return Math.max(found, 0);
}

function heads(columns) {
  const titles = [
    ["line", ""],
    ["time", "of the scopes that begin on the line; self is the full colour"],
    ["total", "share of all warps' time"],
    ["self", "the part of it outside inner scopes"],
    ["ran", "how often, in all warps"],
    ["ops", "lines of the TTGIR that come from here"],
    ["slope", "cycles that the kernel loses per cycle of delay here"],
    ["stalls", "samples of warps at the line, by what they wait for; relative to the line with most samples"],
    ["source", ""],
  ];
  const shown = titles.filter(([text]) => (columns.slopes || text !== "slope") && (columns.stalls || text !== "stalls"));
  return element("div", { class: "source-row source-head" }, shown.map(([text, says]) => element("span", { text, title: says || null })));
}

function rowOf(state, index, warpTimeNs, ttgirLines, columns, choose) {
  const row = state.rows[index];
  if (row.gap) return element("div", { class: "source-row gap", text: `… ${counted(row.gap, "line")} …` });
  const timed = state.timed.get(row.number);
  const operations = ttgirLines.get(`${state.file.path}:${row.number}`);
  const cells = timed ? timedCells(timed, warpTimeNs) : Array.from({ length: 4 }, () => element("span"));
  const link = operations
    ? element("button", {
        type: "button",
        class: "link",
        text: formatCount(operations.length),
        title: "show in the TTGIR",
        on: { click: () => openView("ttgir", { line: operations[0] }) },
      })
    : element("span");
  return element("div", { class: timed ? "source-row timed" : "source-row", on: { click: () => choose(index) } }, [
    element("span", { class: "line-number", text: row.number }),
    ...cells,
    link,
    ...(columns.slopes ? [slopeCell(state.slopes.get(row.number))] : []),
    ...(columns.stalls ? [stallCell(state.stalled.get(row.number), columns.stalls.most, columns.stalls.reasons, sourceName)] : []),
    element("code", {}, codeNodes(row.parts)),
  ]);
}

function slopeCell(slope) {
  return slope ? element("span", { class: "figure", text: slope.slope.toFixed(2), title: slope.text }) : element("span");
}

function timedCells(timed, warpTimeNs) {
  const [total, self] = [element("span", { class: "bar-total" }), element("span", { class: "bar-self" })];
  const share = (ns) => (warpTimeNs && ns !== null ? ns / warpTimeNs : null);
  total.style.width = `${Math.min(100 * share(timed.total_ns), 100)}%`;
  self.style.width = timed.total_ns ? `${Math.min((100 * timed.self_ns) / timed.total_ns, 100)}%` : "0";
  total.append(self);
  return [
    element("span", { class: "bar-track" }, [total]),
    element("span", { class: "figure", text: formatShare(share(timed.total_ns)), title: shortNs(timed.total_ns) }),
    element("span", { class: "figure", text: formatShare(share(timed.self_ns)), title: shortNs(timed.self_ns) }),
    element("span", { class: "figure", text: `${formatCount(timed.iterations || timed.count)} ×`, title: timed.iterations ? "iterations" : "runs" }),
  ];
}
