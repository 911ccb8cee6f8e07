/** Quantities as a reader sees them. */

const NARROW_SPACE = "\u202f";

const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
];

/** Nanoseconds with the unit that suits them, with three decimals; the same as the terminal's report has. */
export function formatNs(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  const sign = ns < 0 ? "−" : "";
  const size = Math.abs(ns);
  for (const [unit, unitNs] of UNITS) {
    if (size >= unitNs) return `${sign}${(size / unitNs).toFixed(3)} ${unit}`;
  }
  return `${sign}${size.toFixed(0)} ns`;
}

/** The same with three significant digits. */
export function shortNs(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  const sign = ns < 0 ? "−" : "";
  const rounded = Number(Math.abs(ns).toPrecision(3));
  for (const [unit, unitNs] of UNITS) {
    if (rounded >= unitNs) return `${sign}${Number((rounded / unitNs).toPrecision(3))} ${unit}`;
  }
  return `${sign}${rounded} ns`;
}

/** A whole number with thousands set apart, by spaces at which no line ends. */
export function formatCount(count) {
  return Math.round(count)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
}

/** A share from 0 to 1. */
export function formatShare(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** `1 warp`, `2 warps`. */
export function counted(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}
