/** Stacked bars of what warps wait for: one colour for each stall reason, the same everywhere. */

import { element } from "#dom";
import { formatShare } from "#format";

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

export function stallChip(reason) {
  const chip = element("span", { class: "scope-chip" });
  chip.style.background = stallColor(reason);
  return chip;
}

/** A reason's name with its colour. */
export function stallName(reason) {
  return element("span", { class: "stall-name" }, [stallChip(reason), reason]);
}

/** A share with half of its 95 % interval, which has two digits where one would show nothing. */
export function shareWithError(share, error) {
  const digits = error > 0 && error < 0.0005 ? 2 : 1;
  return `${(100 * share).toFixed(digits)} ± ${(100 * error).toFixed(digits)} %`;
}

/**
 * @param {Object[]} shares each a `ReasonShare` of page_schema.py
 * @param {number} full the share that fills the bar
 * @param {(share: Object) => string | null} says the title of a segment
 */
export function stallBar(shares, full = 1, says = () => null) {
  const segments = shares.map((share) => {
    const segment = element("span", { class: "stall-segment", title: says(share) });
    segment.style.width = `${full > 0 ? Math.min((100 * share.share) / full, 100) : 0}%`;
    segment.style.background = stallColor(share.reason);
    return segment;
  });
  return element("span", { class: "stall-bar" }, segments);
}

/** What the warps wait for with this reason; empty for a reason that is not known. */
export function meaningOf(name, reasons) {
  return reasons.find((reason) => reason.name === name)?.text ?? "";
}

/**
 * The lines of a tooltip: the share of a line, its reasons, longest first, and whose results its warps wait for.
 * @param {Object} line a `StalledLine` of page_schema.py
 * @param {Object[]} reasons each a `StallReason`
 * @param {(awaited: Object) => string} nameOf names an `AwaitedLine`
 * @returns {string[]}
 */
export function stallLines({ share, error, shares, awaited }, reasons, nameOf) {
  const ranked = [...shares].sort((one, other) => other.share - one.share);
  return [
    `${shareWithError(share, error)} of all samples of warps:`,
    ...ranked.map((one) => reasonText(one, reasons)),
    ...awaited.map((one) => `${one.reason}: ${formatShare(one.share)} wait for the result of ${nameOf(one)}`),
  ];
}

export function reasonText({ reason, share, error }, reasons) {
  const meaning = meaningOf(reason, reasons);
  return `${shareWithError(share, error)} ${reason}${meaning && `: ${meaning}`}`;
}

/** Names an awaited line by its number in the TTGIR, then its source. */
export function ttgirName({ line, operation, source }) {
  return `line ${line}${inBrackets([operation, source && placeName(source)])}`;
}

/** Names an awaited line by its source, if that is known. */
export function sourceName({ line, operation, source }) {
  return source ? `${placeName(source)}${inBrackets([operation])}` : `line ${line} of the TTGIR${inBrackets([operation])}`;
}

function inBrackets(parts) {
  const known = parts.filter(Boolean);
  return known.length ? ` (${known.join(", ")})` : "";
}

function placeName([path, line]) {
  return `${path.split("/").pop()}:${line}`;
}

/** The bar of a line of code, whose length is relative to the line with most samples; an empty cell without samples. */
export function stallCell(line, most, reasons, nameOf) {
  if (!line) return element("span");
  const bar = stallBar(line.shares, most);
  bar.title = stallLines(line, reasons, nameOf).join("\n");
  return bar;
}

/** The largest share of a line; 0 without lines. */
export function mostStalled(lines) {
  return lines.reduce((most, { share }) => Math.max(most, share), 0);
}
