/** The kernel's TTGIR, with the lines that each scope goes around. */

import { element, link } from "#dom";
import { counted, formatShare } from "#format";
import { openView, receive } from "#navigation";
import { scopeList } from "#tables";
import { inkOn } from "#theme";
import { codeNodes, findBox, LineList, partsOf, TTGIR } from "#views/code_list";
import { codeCells, codePanel, instructionCount, machineCodeOf, mostStalled, sourcePlace, stallCell, ttgirName } from "#views/line_evidence";

export const title = "TTGIR";

const MAX_LABELS = 2;

/** `launch.sections.ttgir` is a `TtgirText` of code.py; null if the capture has no module. */
export function show(place, launch) {
  const { ttgir, stalls, source } = launch.sections;
  if (!ttgir) {
    place.append(element("p", { class: "view-empty", text: "The capture has no TTGIR of this kernel." }));
    return;
  }
  const { scopes } = launch.meta;
  const rows = rowsOf(ttgir.lines);
  const state = {
    ttgir,
    scopes,
    rows,
    texts: rows.map((line) => withoutLocations(ttgir.lines[line])),
    sources: new Set(source.map((file) => file.path)),
    stalls: stalls && { meanings: stalls.meanings, most: mostStalled(ttgir.stalls), ofLine: new Map(ttgir.stalls.map((line) => [line.line - 1, line])) },
    code: machineCodeOf(ttgir.machine_code),
    ...lanesOf(scopes.map(({ site }) => site), ttgir.lines.length),
  };
  const list = new LineList((row) => rowElement(state, row, showCode), "TTGIR");
  const goToLine = (line) => list.goTo(Math.max(rows.findLastIndex((shown) => shown <= line), 0));
  const goToScope = (scope) => {
    if (!scopes[scope]?.site) return;
    side.select(scope);
    goToLine(scopes[scope].site[0]);
  };
  const side = scopeList(launch.meta, goToScope, ({ site }) => site);
  const panel = state.code && codePanel(state.code, (line) => goToLine(line - 1));
  const showCode = (line) => {
    panel.show(line);
    if (line) goToLine(line - 1);
  };
  const room = element("div", { class: "code-room" }, [...(stalls || state.code ? [heads(state)] : []), list.element]);
  const unknown = state.code?.ofLine.get(0);
  const cut = ttgir.left_out ? ` ${counted(ttgir.left_out, "more line")} hidden.` : "";
  place.append(
    element("div", { class: `code-view${stalls ? " with-stalls" : ""}${state.code ? " with-machine-code" : ""}` }, [
      element("div", { class: "view-toolbar" }, [
        findBox(() => state.texts, (row) => list.goTo(row)),
        element("span", { class: "view-hint", text: `${counted(rows.length, "line")}, without records and locations; the bars show the lines of each scope.${cut}` }),
        // Instructions that no row has.
        ...(unknown ? [link(`${counted(instructionCount(unknown), "instruction")} of no known line`, () => showCode(0))] : []),
      ]),
      element("div", { class: "side-by-side" }, [side.element, room, ...(panel ? [panel.element] : [])]),
    ]),
  );
  room.style.setProperty("--lanes", String(state.lanes.length));
  // As many letters as the labels of one line have.
  const letters = Array.from(state.starts.values(), (begun) => begun.slice(0, MAX_LABELS).reduce((sum, scope) => sum + labelText(scopes[scope]).length + 3, 0));
  room.style.setProperty("--longest-label", String(Math.max(...letters, 0)));
  list.setRows(rows.length, state.texts.reduce((most, { length }) => Math.max(most, length), 1));
  receive("ttgir", ({ scope, line }) => (scope === undefined ? goToLine(line) : goToScope(scope)));
  goToScope(scopes.findIndex(({ site }) => site));
}

/** Of the columns that a row of the TTGIR has. */
function heads({ stalls, code }) {
  const titles = [
    ["line", null],
    ...(stalls ? [["stalls", "samples of warps at the line, by what they wait for; relative to the line with most samples"]] : []),
    ...(code
      ? [
          ["machine code", "instructions that come from the line, by the pipeline that executes them; click to list them"],
          ["executed", code.warps ? "instructions of the line that a warp executes, on average" : "instructions of the line that all warps together execute"],
        ]
      : []),
    ["", null],
    ["scopes", null],
    ["TTGIR", null],
  ];
  return element("div", { class: "ttgir-row ttgir-head" }, titles.map(([text, title]) => element("span", { text, title })));
}

function labelText({ name, share, kind }) {
  return kind === "mark" ? name : `${name} ${formatShare(share)}`;
}

function rowElement(state, row, showCode) {
  const line = state.rows[row];
  return element("div", { class: "ttgir-row" }, [
    element("span", { class: "line-number", text: line + 1 }),
    ...(state.stalls ? [stallCell(state.stalls.ofLine.get(line), state.stalls.most, state.stalls.meanings, ttgirName)] : []),
    ...(state.code ? codeCells(state.code.ofLine.get(line + 1), state.code.warps, showCode) : []),
    element("span", { class: "lanes" }, state.lanes.map((lane) => laneMark(lane[line], state))),
    element("span", { class: "labels" }, labelsOf(line, state)),
    element("code", {}, [...codeNodes(partsOf(state.texts[row], TTGIR)), ...sourceLink(line, state)]),
  ]);
}

function laneMark(scope, { scopes }) {
  const mark = element("span", { class: "lane", title: scopes[scope]?.name });
  mark.style.background = scopes[scope]?.colour ?? "";
  return mark;
}

function labelsOf(line, { starts, scopes }) {
  const begun = starts.get(line) ?? [];
  const labels = begun.slice(0, MAX_LABELS).map((scope) => {
    const { name, colour } = scopes[scope];
    const label = link(labelText(scopes[scope]), () => openView("scopes", { scope }), { class: "scope-label", title: `${name}: durations` });
    label.style.background = colour;
    label.style.color = inkOn(colour);
    return label;
  });
  return begun.length > MAX_LABELS ? [...labels, element("span", { class: "view-hint", text: `+${begun.length - MAX_LABELS}`, title: begun.map((scope) => scopes[scope].name).join(", ") })] : labels;
}

function sourceLink(row, { ttgir, sources }) {
  if (ttgir.place_of[row] < 0) return [];
  const [path, line] = ttgir.places[ttgir.place_of[row]];
  const properties = { class: "place-link", title: path };
  const name = sourcePlace([path, line]);
  return [sources.has(path) ? link(name, () => openView("source", { path, line }), properties) : element("span", { ...properties, text: name })];
}

const LOCATION = " loc(";
const MAX_LANES = 8;

/** The lines to show: all that do not define a location. */
export function rowsOf(lines) {
  return lines.flatMap((line, index) => (line.startsWith("#loc") ? [] : [index]));
}

/** The line without its locations: ` loc(…)`, with whatever braces and strings are in it. */
export function withoutLocations(line) {
  let kept = "";
  let at = 0;
  for (;;) {
    const begin = line.indexOf(LOCATION, at);
    if (begin < 0) return kept + line.slice(at);
    const end = closingBrace(line, begin + LOCATION.length);
    if (end < 0) return kept + line.slice(at);
    kept += line.slice(at, begin);
    at = end + 1;
  }
}

function closingBrace(line, from) {
  let depth = 1;
  for (let at = from; at < line.length; at++) {
    if (line[at] === '"') at = closingQuote(line, at + 1);
    else if (line[at] === "(") depth++;
    else if (line[at] === ")" && --depth === 0) return at;
  }
  return -1;
}

function closingQuote(line, from) {
  let at = from;
  while (at < line.length && line[at] !== '"') at += line[at] === "\\" ? 2 : 1;
  return at;
}

/**
 * Which scopes' ranges a line is in: lanes side by side, in each of which no two overlap.
 * @param {([number, number] | null)[]} sites range of lines by scope @param {number} count how many lines there are
 * @returns {{lanes: Int16Array[], starts: Map<number, number[]>}} by lane and line the scope, -1 where there is none; and
 *     the scopes that begin on a line
 */
export function lanesOf(sites, count) {
  const ranges = sites.flatMap((site, scope) => (site ? [{ scope, first: site[0], last: site[1] }] : []));
  ranges.sort((one, other) => one.first - other.first || other.last - one.last || one.scope - other.scope);
  const lanes = [];
  const starts = new Map();
  for (const { scope, first, last } of ranges) {
    starts.set(first, [...(starts.get(first) ?? []), scope]);
    let lane = lanes.findIndex((taken) => taken.free <= first);
    if (lane < 0 && lanes.length < MAX_LANES) lane = lanes.push({ free: 0, scopes: new Int16Array(count).fill(-1) }) - 1;
    if (lane < 0) continue;
    lanes[lane].free = last + 1;
    lanes[lane].scopes.fill(scope, first, last + 1);
  }
  return { lanes: lanes.map(({ scopes }) => scopes), starts };
}
