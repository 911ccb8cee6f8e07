/** What is known of a line of code: stacked bars of what warps wait for at it, and its machine code. */

import { placeName } from "#data";
import { chip, element, link, shareBar } from "#dom";
import { counted, formatCount, formatShare } from "#format";
import { LineList } from "#views/code_list";

/**
 * By NVIDIA's names. Related reasons have related hues: blue for global memory, violet for shared memory, red for other
 * warps, yellow for fetching, green for arithmetic. Each stands out from a light and from a dark ground.
 */
export const STALL_COLORS = {
  long_scoreboard: "#0164d9",
  lg_throttle: "#4098da",
  tex_throttle: "#199fb8",
  membar: "#00757f",
  drain: "#2da19b",
  short_scoreboard: "#8842db",
  mio_throttle: "#ba74e2",
  barrier: "#cb2622",
  warpgroup_arrive: "#eb648a",
  sleeping: "#b33a7e",
  wait: "#d47c10",
  dispatch_stall: "#925e23",
  branch_resolving: "#a49219",
  no_instructions: "#726b19",
  imc_miss: "#7a9d22",
  math_pipe_throttle: "#007b1e",
  gmma: "#1ea662",
  misc: "#7b6460",
  not_selected: "#8c949c",
  selected: "#5f6e7d",
};

/** The colour of a reason; of one that is not known here, that of `misc`. */
export function stallColor(reason) {
  return Object.hasOwn(STALL_COLORS, reason) ? STALL_COLORS[reason] : STALL_COLORS.misc;
}

/** A reason's name with its colour. */
export function stallName(reason) {
  return element("span", { class: "stall-name" }, [chip(stallColor(reason)), reason]);
}

/** A share with half of its 95 % interval, which has two digits where one would show nothing. */
export function shareWithError({ value, error }) {
  const digits = error > 0 && error < 0.0005 ? 2 : 1;
  return `${(100 * value).toFixed(digits)} ± ${(100 * error).toFixed(digits)} %`;
}

/**
 * @param {Object<string, {value: number, error: number}>} shares by reason
 * @param {Object<string, string>} meanings what warps wait for, by reason
 * @param {number} full the share that fills the bar
 */
export function stallBar(shares, meanings = null, full = 1) {
  const segments = Object.entries(shares).map(([reason, share]) => {
    const segment = shareBar("stall-segment", full > 0 ? share.value / full : 0, stallColor(reason));
    if (meanings) segment.title = reasonText(reason, share, meanings);
    return segment;
  });
  return element("span", { class: "stall-bar" }, segments);
}

/** Reasons with their shares, longest first. */
export function ranked(shares) {
  return Object.entries(shares).sort(([, one], [, other]) => other.value - one.value);
}

/**
 * The lines of a tooltip: the share of a line, its reasons, longest first, and whose results its warps wait for.
 * @param {Object} line a `StalledLine` of code.py
 * @param {Object<string, string>} meanings
 * @param {(awaited: Object) => string} nameOf names an `AwaitedLine`
 * @returns {string[]}
 */
export function stallLines({ share, shares, awaited }, meanings, nameOf) {
  return [
    `${shareWithError(share)} of all samples of warps:`,
    ...ranked(shares).map(([reason, one]) => reasonText(reason, one, meanings)),
    ...awaited.map((one) => `${one.reason}: ${formatShare(one.share)} wait for the result of ${nameOf(one)}`),
  ];
}

export function reasonText(reason, share, meanings) {
  return `${shareWithError(share)} ${reason}${meanings[reason] && `: ${meanings[reason]}`}`;
}

/** Names an awaited line by its number in the TTGIR, then its source. */
export function ttgirName({ line, operation, source }) {
  return `line ${line}${inBrackets([operation, source && sourcePlace(source)])}`;
}

/** Names an awaited line by its source, if that is known. */
export function sourceName({ line, operation, source }) {
  return source ? `${sourcePlace(source)}${inBrackets([operation])}` : `line ${line} of the TTGIR${inBrackets([operation])}`;
}

function inBrackets(parts) {
  const known = parts.filter(Boolean);
  return known.length ? ` (${known.join(", ")})` : "";
}

/** `file.py:12` */
export function sourcePlace([path, line]) {
  return `${placeName(path)}:${line}`;
}

/** The bar of a line of code, whose length is relative to the line with most samples; an empty cell without samples. */
export function stallCell(line, most, meanings, nameOf) {
  if (!line) return element("span");
  const bar = stallBar(line.shares, null, most);
  bar.title = stallLines(line, meanings, nameOf).join("\n");
  return bar;
}

/** The largest share of a line; 0 without lines. */
export function mostStalled(lines) {
  return lines.reduce((most, { share }) => Math.max(most, share.value), 0);
}

const MAX_AWAITED = 3;
const ROUNDED_FROM = 10;

/**
 * @param {Object | null} code a `MachineCode` of code.py
 * @returns {Object | null} the same with the code of each line by its number from 1 (`ofLine`): `LineCode`, with its pipelines
 *     and awaited results as pairs, most first, and the executions of its instructions
 */
export function machineCodeOf(code) {
  if (!code) return null;
  const byCount = (pairs) => pairs.sort(([, one], [, other]) => other - one);
  const lines = code.lines.map(({ line, pipelines, awaited }) => ({
    line,
    pipelines: byCount(Object.entries(pipelines)),
    // Pairs, but an object if there are none.
    awaited: byCount(Object.values(awaited)),
    executed: code.executed[line] ?? null,
    unknown: code.unknown[line] ?? 0,
  }));
  return { ...code, ofLine: new Map(lines.map((line) => [line.line, line])) };
}

/** The number of instructions of a line. */
export function instructionCount({ pipelines }) {
  return pipelines.reduce((sum, [, count]) => sum + count, 0);
}

/** `12 ALU, 4 LSU` */
function pipelineText({ pipelines }) {
  return pipelines.map(([pipeline, count]) => `${formatCount(count)} ${pipeline}`).join(", ");
}

/** The executions of an average warp, or of all warps if their number is unknown. */
function average(executions, warps) {
  const each = executions / (warps ?? 1);
  return each > 0 && each < ROUNDED_FROM && !Number.isInteger(each) ? each.toFixed(1) : formatCount(each);
}

/** Returns whether something is known of how often the instructions of a line are executed. */
function isExecutedKnown({ executed, unknown }) {
  return executed !== null && (executed > 0 || unknown === 0);
}

/** How many instructions of the line a warp executes, on average; `≥` if that is unknown for some; "" for all. */
export function executedText(line, warps) {
  return isExecutedKnown(line) ? `${line.unknown ? "≥ " : ""}${average(line.executed, warps)}` : "";
}

/** A sentence on that. */
export function executedSentence(line, warps) {
  if (!isExecutedKnown(line)) return "how often they are executed is unknown";
  const least = line.unknown ? "at least " : "";
  const each = warps ? `, ${average(line.executed, warps)} by a warp on average` : "";
  const unknown = line.unknown ? `; unknown for ${formatCount(line.unknown)} of them` : "";
  return `all warps together execute ${least}${counted(line.executed, "instruction")}${each}${unknown}`;
}

/** `8 LDGSTS of line 95` */
export function awaitedText([{ line, operation }, count]) {
  return `${formatCount(count)} ${operation}${line ? ` of line ${line}` : ""}`;
}

/** The lines of a tooltip. */
export function codeLines(line, warps) {
  const awaited = line.awaited.slice(0, MAX_AWAITED).map(awaitedText);
  if (line.awaited.length > MAX_AWAITED) awaited.push("…");
  return [
    `${counted(instructionCount(line), "machine instruction")}: ${pipelineText(line)}`,
    executedSentence(line, warps),
    ...(awaited.length ? [`waits for ${awaited.join(", ")}`] : []),
  ];
}

/** Two cells: the instructions of a line by pipeline, which lead to the instructions, and how many a warp executes. */
export function codeCells(line, warps, choose) {
  if (!line) return [element("span"), element("span")];
  const title = codeLines(line, warps).join("\n");
  return [
    link(pipelineText(line), () => choose(line.line), { class: "link code-cell", title }),
    element("span", { class: "figure", text: executedText(line, warps), title }),
  ];
}

/**
 * The listed instructions of a line, by address. `executed` is how often a warp executes each on average.
 * @returns {{address: string, executed: string, text: string}[]}
 */
export function instructionsOf({ listing, warps }, line) {
  const found = [];
  let block = 0;
  listing.line_of.forEach((of, index) => {
    while (block + 1 < listing.blocks.length && listing.blocks[block + 1][0] <= index) block++;
    if (of !== line) return;
    const executions = listing.blocks[block][1];
    // NVIDIA's addresses are in bytes, and are usually printed as here.
    const address = listing.address_step === 1 ? String(index) : (index * listing.address_step).toString(16).padStart(4, "0");
    found.push({ address, executed: executions === null ? "?" : average(executions, warps), text: listing.texts[index] });
  });
  return found;
}

/**
 * @param {Object} code what `machineCodeOf` returns
 * @param {(line: number) => void} goToLine shows a line of the TTGIR, numbered from 1
 * @returns {{element: HTMLElement, show: (line: number) => void}}
 */
export function codePanel(code, goToLine) {
  const panel = element("aside", { class: "line-details code-panel", hidden: true });
  const close = element("button", { type: "button", class: "quiet", text: "×", title: "Close", "aria-label": "Close", on: { click: () => (panel.hidden = true) } });
  const show = (number) => {
    const line = code.ofLine.get(number);
    panel.replaceChildren(element("div", { class: "code-panel-head" }, [element("h3", { text: number ? `Line ${number}` : "No known line" }), close]), ...codeFacts(line, code.warps, goToLine));
    panel.hidden = false;
    if (!code.listing) {
      panel.append(element("p", { class: "view-hint", text: `The kernel has ${counted(code.instructions, "instruction")}, so many that the page does not list them.` }));
      return;
    }
    const rows = instructionsOf(code, number);
    const list = new LineList((row) => instructionRow(rows[row]), "Instructions");
    panel.append(element("div", { class: "instruction-row instruction-head" }, heads(code.warps)), list.element);
    list.setRows(rows.length, Math.max(...rows.map(({ text }) => text.length)));
  };
  return { element: panel, show };
}

/** What is known of a line's instructions together. */
function codeFacts(line, warps, goToLine) {
  const facts = [
    element("p", { text: `${counted(instructionCount(line), "instruction")}: ${pipelineText(line)}` }),
    element("p", { class: "view-hint", text: sentence(executedSentence(line, warps)) }),
  ];
  if (line.awaited.length) facts.push(element("p", { class: "awaited" }, ["waits for ", ...line.awaited.flatMap((one, index) => [...(index ? [", "] : []), awaitedLink(one, goToLine)])]));
  return facts;
}

export function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function awaitedLink(awaited, goToLine) {
  const [{ line }] = awaited;
  return line ? link(awaitedText(awaited), () => goToLine(line), { title: "show in the TTGIR" }) : awaitedText(awaited);
}

function heads(warps) {
  return [
    element("span", { text: "address" }),
    element("span", { text: "executed", title: warps ? "times that a warp executes it, on average" : "times that all warps together execute it" }),
    element("span", { text: "instruction" }),
  ];
}

function instructionRow({ address, executed, text }) {
  return element("div", { class: "instruction-row" }, [
    element("span", { class: "line-number", text: address }),
    element("span", { class: "figure", text: executed }),
    element("code", { text }),
  ]);
}
