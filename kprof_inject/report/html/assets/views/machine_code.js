/** Machine code by the lines of the TTGIR: how many instructions a line has, which, and how often they are executed. */

import { unpacked } from "#data";
import { element } from "#dom";
import { counted, formatCount } from "#format";
import { LineList } from "#views/code_list";

const MAX_AWAITED = 3;
const ROUNDED_FROM = 10;

/**
 * @param {Object | null} code a `MachineCode` of page_schema.py
 * @returns {{ofLine: Map<number, Object>, warps: number | null, listing: Object | null, lineOf: Int32Array} | null} its
 *     `CompiledLine`s by their line from 1, and for each listed instruction its line
 */
export function machineCodeOf(code) {
  if (!code) return null;
  const { lines, warps, listing, instructions } = code;
  return { ofLine: new Map(lines.map((line) => [line.line, line])), warps, listing, instructions, lineOf: listing ? unpacked(listing.line_of) : new Int32Array() };
}

/** The number of instructions of a `CompiledLine`. */
export function instructionCount({ pipelines }) {
  return pipelines.reduce((sum, [, count]) => sum + count, 0);
}

/** `12 ALU, 4 LSU` */
export function pipelineText({ pipelines }) {
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
export function awaitedText({ line, operation, instructions }) {
  return `${formatCount(instructions)} ${operation}${line ? ` of line ${line}` : ""}`;
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
    element("button", { type: "button", class: "link code-cell", text: pipelineText(line), title, on: { click: () => choose(line.line) } }),
    element("span", { class: "figure", text: executedText(line, warps), title }),
  ];
}

/**
 * The listed instructions of a line, by address. `executed` is how often a warp executes each on average.
 * @returns {{address: string, executed: string, text: string}[]}
 */
export function instructionsOf({ listing, lineOf, warps }, line) {
  const found = [];
  let block = 0;
  lineOf.forEach((of, index) => {
    while (block + 1 < listing.blocks.length && listing.blocks[block + 1][0] <= index) block++;
    if (of !== line) return;
    const executions = listing.blocks[block][1];
    found.push({ address: addressOf(index, listing.address_step), executed: executions === null ? "?" : average(executions, warps), text: listing.texts[index] });
  });
  return found;
}

/** NVIDIA's addresses are in bytes, and are usually printed as here. */
function addressOf(index, step) {
  return step === 1 ? String(index) : (index * step).toString(16).padStart(4, "0");
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
export function codeFacts(line, warps, goToLine) {
  const facts = [
    element("p", { text: `${counted(instructionCount(line), "instruction")}: ${pipelineText(line)}` }),
    element("p", { class: "view-hint", text: `${sentence(executedSentence(line, warps))}.` }),
  ];
  if (line.awaited.length) facts.push(element("p", { class: "awaited" }, ["waits for ", ...line.awaited.flatMap((one, index) => [...(index ? [", "] : []), awaitedLink(one, goToLine)])]));
  return facts;
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function awaitedLink(awaited, goToLine) {
  if (!awaited.line) return awaitedText(awaited);
  return element("button", { type: "button", class: "link", text: awaitedText(awaited), title: "show in the TTGIR", on: { click: () => goToLine(awaited.line) } });
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
