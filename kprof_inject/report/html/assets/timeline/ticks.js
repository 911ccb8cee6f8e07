/** The lines of a ruler, and their labels. */

const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** The least of 1, 2, 5, 10, 20 ... that is no less; never below a nanosecond. */
export function roundStep(ns) {
  const power = 10 ** Math.floor(Math.log10(Math.max(ns, 1)));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= ns * (1 - 1e-9));
  return step * power;
}

/**
 * @param {[number, number]} range in ns
 * @param {number} most how many lines have room
 * @returns {{step: number, at: number[], labels: string[]}}
 */
export function ticks([from, to], most) {
  const step = roundStep((to - from) / Math.max(most, 1));
  const first = Math.ceil(from / step);
  const last = Math.floor(to / step);
  const at = Array.from({ length: Math.max(last - first + 1, 0) }, (_, index) => (first + index) * step);
  // One unit for all of them, so that they can be compared at a glance.
  const [unit, size] = UNITS.find(([, ns]) => Math.max(Math.abs(from), Math.abs(to)) >= ns) ?? UNITS.at(-1);
  const decimals = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
  return { step, at, labels: at.map((ns) => `${(ns / size).toFixed(decimals)} ${unit}`.replace("-", "−")) };
}
