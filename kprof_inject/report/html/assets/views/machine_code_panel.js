/** The panel next to the TTGIR: the machine instructions of a line, and the lines whose results they wait for. */

import { element } from "#dom";
import { counted } from "#format";
import { LineList } from "#views/line_list";
import { awaitedText, executedSentence, instructionCount, instructionsOf, pipelineText } from "#views/machine_code";

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
