/** The kernel's TTGIR, with the lines that each scope goes around. */

import { unpacked } from "#data";
import { element } from "#dom";
import { counted, formatShare } from "#format";
import { openView, receive } from "#navigation";
import { codeNodes, findBox, LineList, partsOf, TTGIR } from "#views/code_list";
import { codeCells, codePanel, instructionCount, machineCodeOf } from "#views/machine_code";
import { scopeList } from "#views/scope_lists";
import { mostStalled, stallCell, ttgirName } from "#views/stall_bars";

export const title = "TTGIR";

const MAX_LABELS = 2;

/** `launch.sections.ttgir` is a `TtgirText` of page_schema.py; null if the capture has no module. */
export function show(place, launch, context) {
  const { ttgir, scopes, stalls } = launch.sections;
  if (!ttgir) {
    place.append(element("p", { class: "view-empty", text: "The capture has no TTGIR of this kernel." }));
    return;
  }
  const state = {
    ttgir,
    scopes,
    context,
    isFolded: true,
    rows: rowsOf(ttgir.lines, true),
    placeOf: unpacked(ttgir.place_of),
    sources: new Set(launch.sections.source.map((file) => file.path)),
    stalls: stalls && { reasons: stalls.reasons, most: mostStalled(ttgir.stalls), ofLine: new Map(ttgir.stalls.map((line) => [line.line - 1, line])) },
    code: machineCodeOf(ttgir.machine_code),
    ...lanesOf(ttgir.sites, ttgir.lines.length),
  };
  const list = new LineList((row) => rowElement(state, row, toggle, showCode), "TTGIR");
  const goToLine = (line) => list.goTo(rowOfLine(state.rows, line));
  const toggle = () => {
    state.isFolded = !state.isFolded;
    state.rows = rowsOf(ttgir.lines, state.isFolded);
    checkbox.checked = !state.isFolded;
    list.setRows(state.rows.length, widthOf(state));
  };
  const checkbox = element("input", { type: "checkbox", on: { change: toggle } });
  const side = scopeList(scopes, launch.meta.partitions, context, (scope) => goToScope(scope), (scope) => ttgir.sites[scope]?.length > 0);
  const goToScope = (scope) => {
    const [range] = ttgir.sites[scope] ?? [];
    if (!range) return;
    side.select(scope);
    goToLine(range[0]);
  };
  const panel = state.code && codePanel(state.code, (line) => goToLine(line - 1));
  const showCode = (line) => {
    panel.show(line);
    if (line) goToLine(line - 1);
  };
  const room = element("div", { class: "code-room" }, [...(stalls || state.code ? [heads(state)] : []), list.element]);
  const cut = ttgir.left_out ? ` ${counted(ttgir.left_out, "more line")} hidden.` : "";
  place.append(
    element("div", { class: `code-view${stalls ? " with-stalls" : ""}${state.code ? " with-machine-code" : ""}` }, [
      element("div", { class: "view-toolbar" }, [
        findBox(() => ttgir.lines, goToLine),
        element("label", {}, [checkbox, " locations"]),
        element("span", { class: "view-hint", text: `${counted(ttgir.lines.length, "line")}, without records; the bars show the lines of each scope.${cut}` }),
        ...unknownLine(state.code, showCode),
      ]),
      element("div", { class: "side-by-side" }, [side.element, room, ...(panel ? [panel.element] : [])]),
    ]),
  );
  room.style.setProperty("--lanes", String(state.lanes.length));
  room.style.setProperty("--longest-label", String(longestLabels(state)));
  list.setRows(state.rows.length, widthOf(state));
  receive("ttgir", ({ scope, line }) => (scope === undefined ? goToLine(line) : goToScope(scope)));
  const first = ttgir.sites.findIndex((site) => site.length);
  if (first >= 0) goToScope(first);
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

/** Instructions that no row has. */
function unknownLine(code, showCode) {
  const line = code?.ofLine.get(0);
  if (!line) return [];
  const text = `${counted(instructionCount(line), "instruction")} of no known line`;
  return [element("button", { type: "button", class: "link", text, on: { click: () => showCode(0) } })];
}

function codeOf({ isFolded }, line) {
  return isFolded && !isLocation(line) ? withoutLocations(line) : line;
}

/** As many letters as the labels of one line have. */
function longestLabels({ starts, scopes }) {
  const lengths = Array.from(starts.values(), (begun) => begun.slice(0, MAX_LABELS).reduce((sum, scope) => sum + labelText(scopes[scope]).length + 3, 0));
  return Math.max(...lengths, 0);
}

function labelText({ name, share, kind }) {
  return kind === "mark" ? name : `${name} ${formatShare(share)}`;
}

function widthOf(state) {
  return Math.max(...chunks(state.ttgir.lines).map((lines) => Math.max(...lines.map((line) => codeOf(state, line).length))), 1);
}

/** As many as may be arguments of one call. */
function chunks(lines, size = 10_000) {
  return Array.from({ length: Math.ceil(lines.length / size) }, (_, index) => lines.slice(index * size, (index + 1) * size));
}

function rowElement(state, index, toggle, showCode) {
  const row = state.rows[index];
  if (Array.isArray(row)) {
    const text = `… ${counted(row[1] - row[0] + 1, "location")} …`;
    return element("div", { class: "ttgir-row gap" }, [element("button", { type: "button", class: "link", text, on: { click: toggle } })]);
  }
  const code = codeOf(state, state.ttgir.lines[row]);
  return element("div", { class: "ttgir-row" }, [
    element("span", { class: "line-number", text: row + 1 }),
    ...(state.stalls ? [stallCell(state.stalls.ofLine.get(row), state.stalls.most, state.stalls.reasons, ttgirName)] : []),
    ...(state.code ? codeCells(state.code.ofLine.get(row + 1), state.code.warps, showCode) : []),
    element("span", { class: "lanes" }, state.lanes.map((lane) => laneMark(lane[row], state))),
    element("span", { class: "labels" }, labelsOf(row, state)),
    element("code", {}, [...codeNodes(partsOf(code, TTGIR)), ...sourceLink(row, state)]),
  ]);
}

function laneMark(scope, { context, scopes }) {
  const mark = element("span", { class: "lane" });
  if (scope >= 0) {
    mark.style.background = context.theme.scopeColor(scope);
    mark.title = scopes[scope].name;
  }
  return mark;
}

function labelsOf(line, { starts, scopes, context }) {
  const begun = starts.get(line) ?? [];
  const labels = begun.slice(0, MAX_LABELS).map((scope) => {
    const { name } = scopes[scope];
    const label = element("button", { type: "button", class: "scope-label", text: labelText(scopes[scope]), title: `${name}: durations`, on: { click: () => openView("scopes", { scope }) } });
    label.style.background = context.theme.scopeColor(scope);
    label.style.color = context.theme.scopeInk(scope);
    return label;
  });
  return begun.length > MAX_LABELS ? [...labels, element("span", { class: "view-hint", text: `+${begun.length - MAX_LABELS}`, title: begun.map((scope) => scopes[scope].name).join(", ") })] : labels;
}

function sourceLink(row, { ttgir, placeOf, sources }) {
  if (placeOf[row] < 0) return [];
  const [path, line] = ttgir.places[placeOf[row]];
  const name = `${path.split("/").pop()}:${line}`;
  if (!sources.has(path)) return [element("span", { class: "place-link", text: name, title: path })];
  return [element("button", { type: "button", class: "place-link", text: name, title: path, on: { click: () => openView("source", { path, line }) } })];
}

const LOCATION = " loc(";
const MAX_LANES = 8;

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

/** Returns whether the line defines a location. */
export function isLocation(line) {
  return line.startsWith("#loc");
}

/**
 * Rows to show: numbers of lines, or `[first, last]` of definitions of locations that are folded into one row.
 * @param {string[]} lines @param {boolean} isFolded
 */
export function rowsOf(lines, isFolded) {
  const rows = [];
  for (let line = 0; line < lines.length; line++) {
    const first = line;
    while (isFolded && line < lines.length && isLocation(lines[line])) line++;
    if (line > first + 1) rows.push([first, line - 1]);
    else if (line > first) rows.push(first);
    if (line < lines.length) rows.push(line);
  }
  return rows;
}

/** The row that a line is in. */
export function rowOfLine(rows, line) {
  let [low, high] = [0, rows.length];
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (firstLine(rows[middle]) <= line) low = middle;
    else high = middle;
  }
  return low;
}

export function firstLine(row) {
  return Array.isArray(row) ? row[0] : row;
}

/**
 * Which scopes' ranges a line is in: lanes side by side, in each of which no two overlap.
 * @param {[number, number][][]} sites ranges of lines by scope @param {number} count how many lines there are
 * @returns {{lanes: Int16Array[], starts: Map<number, number[]>}} by lane and line the scope, -1 where there is none; and
 *     the scopes that begin on a line
 */
export function lanesOf(sites, count) {
  const ranges = sites.flatMap((mine, scope) => mine.map(([first, last]) => ({ scope, first, last })));
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
