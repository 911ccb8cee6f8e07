/** The kernel's source, with the time of the scopes that begin on each line, and a panel about the chosen line. */

import { fileAndLine, placeName } from "#data";
import { chip, element, factList, link, totalBar } from "#dom";
import { counted, formatCount, formatShare, resolvedNs, shortNs } from "#format";
import { openView, receive } from "#navigation";
import { codeNodes, findBox, LineList, pythonParts } from "#views/code_list";
import { mostStalled, ranked, reasonText, shareWithError, sourceName, stallCell, stallName } from "#views/line_evidence";
import { exampleOf, targetOf } from "#views/scopes";

export const title = "Source";

const MIN_ELSEWHERE = 0.005;

/** `launch.sections.source` has a `SourceFile` of code.py for each file. */
export function show(place, launch, context) {
  const files = launch.sections.source;
  if (!files.length) {
    place.append(element("p", { class: "view-empty", text: "The capture has no source of this kernel, and no scope has a source line." }));
    return;
  }
  const { ttgir, overview, stalls } = launch.sections;
  const state = { file: files[0], rows: [], timed: new Map(), slopes: new Map(), stalled: new Map() };
  const ttgirLines = ttgirLinesBySource(ttgir);
  const slopesOf = slopesByFile(overview.slopes);
  const columns = { slopes: slopesOf.size > 0, stalls: stalls && { meanings: stalls.meanings, most: mostStalled(files.flatMap((file) => file.stalls)) } };
  const details = element("aside", { class: "line-details" });
  const list = new LineList((index) => rowOf(state, index, launch.meta.warp_time_ns, ttgirLines, columns, choose), "Source");
  const choose = (index) => {
    list.goTo(index);
    const { number } = state.rows[index];
    details.replaceChildren(...lineDetails({ timed: state.timed.get(number), stalled: state.stalled.get(number) }, number, state.file, launch, context, ttgirLines));
  };
  list.element.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    let next = list.current + step;
    // Lines that the page does not have are passed over.
    while (state.rows[next]?.gap) next += step;
    if (state.rows[next]) choose(next);
  });
  const chooser = element(
    "select",
    { "aria-label": "File", on: { change: () => open(files[Number(chooser.value)]) } },
    files.map((file, index) => element("option", { value: index, text: file.path })),
  );
  const open = (file) => {
    Object.assign(state, { file, rows: sourceRows(file, pythonParts), timed: byLine(file.timed), slopes: slopesOf.get(file.path) ?? new Map(), stalled: byLine(file.stalls) });
    list.setRows(state.rows.length, Math.max(...state.rows.map((row) => row.text?.length ?? 0), 1));
    const hottest = file.timed.reduce((best, timed) => (best && (best.self_ns ?? -1) >= (timed.self_ns ?? -1) ? best : timed), null);
    if (hottest) choose(rowOfNumber(state.rows, hottest.line));
    else details.replaceChildren();
  };
  const find = findBox(() => state.rows.map((row) => row.text ?? ""), choose);
  // Samples that no line here shows, as those in functions of Triton's library.
  const elsewhere = stalls?.elsewhere >= MIN_ELSEWHERE ? `; ${formatShare(stalls.elsewhere)} of the samples are not at these lines: see the TTGIR` : "";
  place.append(
    element("div", { class: `code-view${columns.slopes ? " with-slopes" : ""}${stalls ? " with-stalls" : ""}` }, [
      element("div", { class: "view-toolbar" }, [chooser, find, element("span", { class: "view-hint", text: `shares are of the time of all warps${elsewhere}` })]),
      element("div", { class: "side-by-side" }, [element("div", { class: "code-room" }, [heads(columns), list.element]), details]),
    ]),
  );
  receive("source", ({ scope, path, line }) => {
    const [file, number] = scope === undefined ? [path, line] : fileAndLine(launch.meta.scopes[scope].source);
    const wanted = files.find((one) => one.path === file);
    if (!wanted) return;
    chooser.value = String(files.indexOf(wanted));
    open(wanted);
    choose(rowOfNumber(state.rows, number));
  });
  open(files[0]);
}

/** The places that were delayed, by the path and line of the source: the largest slope, and a text on all of a line. */
export function slopesByFile(slopes) {
  const found = new Map();
  for (const place of slopes.filter(({ response }) => response)) {
    const [path, line] = fileAndLine(place.scope.source);
    if (!path) continue;
    if (!found.has(path)) found.set(path, new Map());
    const known = found.get(path).get(line);
    const text = `${place.name}: ${place.slope_text}; slack ${place.slack_text}`;
    const slope = place.response.slope.value;
    found.get(path).set(line, known ? { slope: Math.max(known.slope, slope), text: `${known.text}\n${text}` } : { slope, text });
  }
  return found;
}

/** Entries of a file by their line. */
function byLine(entries) {
  return new Map(entries.map((entry) => [entry.line, entry]));
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
  const slope = state.slopes.get(row.number);
  const toTtgir = operations ? link(formatCount(operations.length), () => openView("ttgir", { line: operations[0] }), { title: "show in the TTGIR" }) : element("span");
  return element("div", { class: timed ? "source-row timed" : "source-row", on: { click: () => choose(index) } }, [
    element("span", { class: "line-number", text: row.number }),
    ...cells,
    toTtgir,
    ...(columns.slopes ? [element("span", slope ? { class: "figure", text: slope.slope.toFixed(2), title: slope.text } : {})] : []),
    ...(columns.stalls ? [stallCell(state.stalled.get(row.number), columns.stalls.most, columns.stalls.meanings, sourceName)] : []),
    element("code", {}, codeNodes(row.parts)),
  ]);
}

function timedCells(timed, warpTimeNs) {
  const share = (ns) => (warpTimeNs && ns !== null ? ns / warpTimeNs : null);
  return [
    totalBar(share(timed.total_ns), timed.total_ns ? timed.self_ns / timed.total_ns : 0),
    element("span", { class: "figure", text: formatShare(share(timed.total_ns)), title: shortNs(timed.total_ns) }),
    element("span", { class: "figure", text: formatShare(share(timed.self_ns)), title: shortNs(timed.self_ns) }),
    element("span", { class: "figure", text: `${formatCount(timed.iterations || timed.count)} ×`, title: timed.iterations ? "iterations" : "runs" }),
  ];
}

/** @param {{timed?: Object, stalled?: Object}} line its `TimedLine` and `StalledLine` of code.py, if it has any */
function lineDetails({ timed, stalled }, number, file, launch, context, ttgirLines) {
  const lines = ttgirLines.get(`${file.path}:${number}`);
  const shown = [element("h3", { text: `Line ${number}` })];
  if (lines) shown.push(element("p", {}, [link(`${counted(lines.length, "line")} of the TTGIR`, () => openView("ttgir", { line: lines[0] }))]));
  if (!timed) shown.push(element("p", { class: "view-hint", text: "No scope begins here." }));
  const cards = (timed?.scopes ?? []).map((index) => scopeCard(index, launch, context));
  if (stalled) cards.push(stallCard(stalled, launch.sections.stalls.meanings));
  return cards.length ? [...shown, element("div", { class: "line-cards" }, cards)] : shown;
}

function stallCard({ share, shares, awaited }, meanings) {
  const rows = ranked(shares).map(([reason, one]) =>
    element("div", { class: "stall-item", title: reasonText(reason, one, meanings) }, [
      stallName(reason),
      element("span", { class: "unit-figure", text: shareWithError(one) }),
    ]),
  );
  return element("section", { class: "card" }, [
    element("h4", { text: `Samples: ${shareWithError(share)} of all` }),
    ...rows,
    ...awaited.map(awaitedText),
  ]);
}

function awaitedText(awaited) {
  const toLine = link(sourceName(awaited), () => openView("ttgir", { line: awaited.line - 1 }), { title: "show in the TTGIR" });
  return element("p", { class: "awaited" }, [`${awaited.reason}: ${formatShare(awaited.share)} wait for the result of `, toLine]);
}

function scopeCard(index, launch, context) {
  const scope = launch.meta.scopes[index];
  const rows = [
    ["total", `${shortNs(scope.total_ns)} (${formatShare(scope.share)})`],
    [scope.self_name, `${shortNs(scope.self_ns)} (${formatShare(selfShare(scope))})`],
    ["ran", `${formatCount(scope.count)} ×`],
    ["mean", resolvedNs(scope.mean_ns, scope)],
    ["p50", resolvedNs(scope.p50_ns, scope)],
    ["p99", resolvedNs(scope.p99_ns, scope)],
  ];
  const facts = factList(scope.kind === "mark" ? [["passed", `${formatCount(scope.count)} ×`]] : rows);
  if (scope.kind !== "mark" && scope.called_from.length) {
    facts.append(element("dt", { text: "called from" }), element("dd", { text: scope.called_from.map(placeName).join(", "), class: "wrapping" }));
  }
  return element("section", { class: "card" }, [
    element("h4", {}, [chip(scope.colour), scope.name]),
    facts,
    element("p", { class: "links" }, linksOf(index, scope, launch, context)),
  ]);
}

function selfShare({ share, total_ns: total, self_ns: self }) {
  return share === null ? null : total ? (share * self) / total : 0;
}

function linksOf(index, { site }, { scopes }, context) {
  const links = [link("Durations", () => openView("scopes", { scope: index }))];
  const example = exampleOf(scopes, { scope: index });
  if (example >= 0) links.push(link("Timeline", () => context.goTo(targetOf(scopes, example))));
  if (site) links.push(link("TTGIR", () => openView("ttgir", { scope: index })));
  return links;
}

/**
 * @typedef {{number: number, parts: [string | null, string][], text: string}} LineRow
 * @typedef {{gap: number}} GapRow how many lines are left out
 */

/**
 * @param {{pieces: [number, string[]][], timed: {line: number}[]}} file a `SourceFile` of code.py
 * @param {(lines: string[]) => [string | null, string][][]} partsOf
 * @returns {(LineRow | GapRow)[]} without any text of the file, the lines with scopes
 */
export function sourceRows({ pieces, timed }, partsOf) {
  const shown = pieces.length ? pieces : timed.map(({ line }) => [line, [""]]);
  const rows = [];
  let next = 1;
  for (const [first, lines] of shown) {
    if (first > next) rows.push({ gap: first - next });
    const parts = partsOf(lines);
    lines.forEach((text, index) => rows.push({ number: first + index, text, parts: parts[index] }));
    next = first + lines.length;
  }
  return rows;
}

/** The lines of the TTGIR that come from each line of the source, by `path:line`. */
function ttgirLinesBySource(ttgir) {
  const found = new Map();
  if (!ttgir) return found;
  const keys = ttgir.places.map(([path, line]) => `${path}:${line}`);
  ttgir.place_of.forEach((place, line) => {
    if (place < 0) return;
    const lines = found.get(keys[place]);
    if (lines) lines.push(line);
    else found.set(keys[place], [line]);
  });
  return found;
}
