/** Quantities as a reader sees them. */

const NARROW_SPACE = "\u202f";

export const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
];

const NEXT_UNIT = 1000;

/** Nanoseconds with the unit that suits them, with three decimals; as `time_text` of quantities.py has it. */
export function formatNs(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  const sign = ns < 0 ? "−" : "";
  const size = Math.abs(ns);
  if (Math.round(size) < NEXT_UNIT) return `${sign}${size.toFixed(0)} ns`;
  const [unit, unitNs] = UNITS.findLast(([, each]) => Number((size / each).toFixed(3)) < NEXT_UNIT) ?? UNITS[0];
  return `${sign}${(size / unitNs).toFixed(3)} ${unit}`;
}

/** The same with three significant digits; as `short_time` has it. */
export function shortNs(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  const sign = ns < 0 ? "−" : "";
  const rounded = Number(Math.abs(ns).toPrecision(3));
  for (const [unit, unitNs] of UNITS) {
    if (rounded < unitNs) continue;
    const decimals = Math.max(2 - Math.floor(Math.log10(rounded / unitNs)), 0);
    return `${sign}${(rounded / unitNs).toFixed(decimals)} ${unit}`;
  }
  return `${sign}${rounded.toFixed(0)} ns`;
}

/** A duration of a scope, or `< 20 ns` where it is within what a record costs; as `resolved_time` has it. */
export function resolvedNs(ns, { resolution_ns: resolutionNs }, text = shortNs) {
  return ns !== null && ns < resolutionNs ? `< ${shortNs(resolutionNs)}` : text(ns);
}

/** A whole number with thousands set apart, by spaces at which no line ends. */
export function formatCount(count) {
  return Math.round(count)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
}

/** A share from 0 to 1, or null where it is unknown. */
export function formatShare(share) {
  if (share === null) return "–";
  return `${(100 * share).toFixed(1)} %`;
}

/** Some profilers do not record the SM of a CTA. */
export function smName(sm) {
  return sm < 0 ? "SM ?" : `SM ${sm}`;
}

/** `1 warp`, `2 warps`; `nouns` is the plural of a noun that takes no plain s. */
export function counted(count, noun, nouns = `${noun}s`) {
  return `${formatCount(count)} ${count === 1 ? noun : nouns}`;
}
