/** Axes: positions of ticks, and the mapping from values to pixels. Nothing here draws. */

const STEPS = [1, 2, 5, 10];
const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/**
 * Round values within a range, evenly apart.
 * @param {number} least @param {number} greatest @param {number} most how many there may be, at least 1
 * @returns {number[]} ascending
 */
export function ticks(least, greatest, most) {
  if (!(greatest > least) || most < 1) return Number.isFinite(least) ? [least] : [];
  const rough = (greatest - least) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((factor) => factor * power >= rough * (1 - 1e-9));
  const first = Math.ceil(least / step - 1e-9);
  const count = Math.floor(greatest / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(count, 0) }, (_, index) => (first + index) * step);
}

/** The next round number of items of which every one gets a label. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return power * STEPS.find((factor) => factor * power >= least);
}

/** Makes texts of an axis' times: all in one unit, with as many decimals as tell them apart. */
export function timeText(values) {
  const [unit, unitNs] = UNITS.find(([, size]) => Math.max(...values) >= size) ?? UNITS.at(-1);
  const steps = values.slice(1).map((value, index) => value - values[index]);
  const finest = Math.min(...steps, ...values.filter(Boolean)) / unitNs;
  const decimals = Number.isFinite(finest) ? Math.min(Math.max(Math.ceil(-Math.log10(finest) - 1e-9), 0), 9) : 0;
  return (value) => (value === 0 ? "0" : `${(value / unitNs).toFixed(decimals)} ${unit}`);
}

/** The same with no tick between whole numbers. */
export function wholeTicks(least, greatest, most) {
  const found = ticks(least, greatest, Math.min(most, Math.max(greatest - least, 1)));
  return found.filter(Number.isInteger);
}

/** Powers of ten, and between them 2 and 5 times those, as far as there is room. */
export function logTicks(least, greatest, most) {
  const low = Math.max(least, Number.MIN_VALUE);
  for (const factors of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= greatest; power++) {
      found.push(...factors.map((factor) => factor * 10 ** power).filter((value) => value >= low && value <= greatest));
    }
    if (found.length <= most || factors.length === 1) return thinned(found, most);
  }
  return [];
}

function thinned(values, most) {
  const every = Math.ceil(values.length / Math.max(most, 1));
  return values.filter((_, index) => index % every === 0);
}

/** From `[least, greatest]` to pixels; a range of nothing goes to its middle. */
export function linear(least, greatest, from, to) {
  const span = greatest - least;
  return span > 0 ? (value) => from + ((value - least) / span) * (to - from) : () => (from + to) / 2;
}

/** A logarithmic scale. Values below 1 count as 1: durations are whole nanoseconds. */
export function logarithmic(least, greatest, from, to) {
  const log = (value) => Math.log10(Math.max(value, 1));
  const scale = linear(log(least), log(greatest), from, to);
  return (value) => scale(log(value));
}
