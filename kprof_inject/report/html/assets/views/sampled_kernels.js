/** What the warps of all kernels of the program wait for. The data is a `SampledProgram` of page_schema.py. */

import { element } from "#dom";
import { counted, formatCount } from "#format";
import { reasonText, shareWithError, stallBar } from "#views/stall_bars";

const HEADS = [
  ["kernel", "recorded or not"],
  ["SM time", "share of all samples of the program, with its 95 % interval"],
  ["reasons", "of the samples of the kernel"],
];

/** @returns {HTMLElement[]} empty if the program was not sampled */
export function sampledSection(sampled) {
  if (!sampled) return [];
  const head = element("tr", {}, HEADS.map(([text, title]) => element("th", { text, title, scope: "col" })));
  const hidden = sampled.left_out ? ` ${counted(sampled.left_out, "kernel", "kernels")} with less are not shown.` : "";
  return [
    element("section", {}, [
      element("h2", { text: "The whole program" }),
      element("div", { class: "table-room" }, [
        element("table", { class: "plain-table stall-table" }, [
          element("thead", {}, [head]),
          element("tbody", {}, sampled.kernels.map((kernel) => kernelRow(kernel, sampled.reasons))),
        ]),
      ]),
      element("p", { class: "view-hint", text: `${formatCount(sampled.samples)} samples of all kernels, taken while the program ran without records.${hidden}` }),
    ]),
  ];
}

function kernelRow({ name, share, error, shares }, reasons) {
  return element("tr", {}, [
    element("th", { scope: "row", text: name }),
    element("td", { class: "figure", text: shareWithError(share, error) }),
    element("td", {}, [stallBar(shares, 1, (one) => reasonText(one, reasons))]),
  ]);
}
