/** Drawings: axes, and the durations of a scope as a histogram, over iterations, and by warp or SM. */

import { printable } from "#dom";
import { counted, formatCount, formatNs, formatShare, shortNs, UNITS } from "#format";

const STEPS = [1, 2, 5, 10];

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

/** Makes texts of an axis' times: all in one unit, with as many decimals as tell them apart. */
export function timeText(values) {
  const [unit, unitNs] = UNITS.find(([, size]) => Math.max(...values) >= size) ?? ["ns", 1];
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
    const every = Math.ceil(found.length / Math.max(most, 1));
    if (found.length <= most || factors.length === 1) return found.filter((_, index) => index % every === 0);
  }
  return [];
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

const SVG = "http://www.w3.org/2000/svg";
const MIN_WIDTH = 120;

/** @param {string} tag @param {Object<string, unknown>} [attributes] `text` is its text, `on` has listeners */
function svg(tag, attributes = {}, children = []) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name === "text") made.textContent = printable(String(value));
    else if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else made.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  }
  made.append(...children);
  return made;
}

/**
 * A drawing as wide as its place, from now on.
 * @param {string} label what it shows, for those who do not see it
 * @param {number} height in px
 * @param {(width: number) => SVGElement[]} draw
 * @returns {SVGElement}
 */
export function drawing(label, height, draw) {
  const root = svg("svg", { class: "drawing", role: "img", "aria-label": printable(label), height });
  let drawn = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    // A hidden view has no width.
    if (width < MIN_WIDTH || width === drawn) return;
    drawn = width;
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.replaceChildren(...draw(width));
  }).observe(root);
  return root;
}

/** An axis at the bottom: its line, ticks and their labels. `place` is from values to pixels. */
function bottomAxis({ values, place, text, y, from, to }) {
  return svg("g", { class: "axis" }, [
    svg("line", { x1: from, x2: to, y1: y, y2: y }),
    ...values.flatMap((value) => {
      const x = place(value);
      // Keeps text at an edge within the drawing.
      const anchor = x < from + 14 ? "start" : x > to - 14 ? "end" : "middle";
      return [
        svg("line", { x1: x, x2: x, y1: y, y2: y + 4 }),
        svg("text", { x, y: y + 17, "text-anchor": anchor, text: text(value) }),
      ];
    }),
  ]);
}

/** An axis at the left with lines across the drawing. */
function leftAxis({ values, place, text, x, to }) {
  return svg(
    "g",
    { class: "axis" },
    values.flatMap((value) => {
      const y = place(value);
      return [
        svg("line", { class: "grid-line", x1: x, x2: to, y1: y, y2: y }),
        svg("text", { x: x - 6, y: y + 4, "text-anchor": "end", text: text(value) }),
      ];
    }),
  );
}

const HEIGHT = 232;
const FRAME = { left: 56, right: 14, top: 58, bottom: 30 };
const TICK_WIDTH = 90;
const MIN_BAR = 1.5;

/**
 * @param {{edges_ns: number[], counts: number[], log: boolean}} histogram
 * @param {{label: string, ns: number}[]} marks quantiles, ascending
 * @param {{color: string, name: string, tooltip: Object, onChoose: (leastNs: number, belowNs: number) => void}} options
 */
export function histogramPlot(histogram, marks, { color, name, tooltip, onChoose }) {
  const { edges_ns: edges, counts, log } = histogram;
  const total = counts.reduce((sum, count) => sum + count, 0);
  const most = Math.max(...counts);
  const [least, greatest] = [edges[0], edges.at(-1)];
  return drawing(`Durations of ${name}`, HEIGHT, (width) => {
    const [from, to, bottom] = [FRAME.left, width - FRAME.right, HEIGHT - FRAME.bottom];
    const x = (log ? logarithmic : linear)(least, greatest, from, to);
    const y = linear(0, most, bottom, FRAME.top);
    const room = Math.floor((to - from) / TICK_WIDTH);
    const values = log ? logTicks(Math.max(least, 1), greatest, room) : wholeTicks(least, greatest, room);
    const bars = counts.flatMap((count, index) => {
      if (!count) return [];
      const [left, right] = [x(edges[index]), x(edges[index + 1])];
      const top = Math.min(y(count), bottom - MIN_BAR);
      const says = [
        `${formatNs(edges[index])} to under ${formatNs(edges[index + 1])}`,
        `${formatCount(count)} scopes, ${formatShare(count / total)}`,
        "click: one of them in the timeline",
      ];
      const bar = svg("rect", { x: left, y: top, width: Math.max(right - left - 0.6, 0.8), height: bottom - top, fill: color });
      const target = barTarget([left, FRAME.top, right - left, bottom - FRAME.top], says, tooltip, () => onChoose(edges[index], edges[index + 1]));
      return [bar, target];
    });
    return [
      leftAxis({ values: wholeTicks(0, most, 4), place: y, text: formatCount, x: from, to }),
      ...bars,
      bottomAxis({ values, place: x, text: log ? shortNs : timeText(values), y: bottom, from, to }),
      ...marks.map((mark, row) => quantileMark(mark, row, x(mark.ns), bottom, to)),
    ];
  });
}

/** Each mark has a row of its own for its label: quantiles may all be at one place. */
function quantileMark({ label, ns }, row, x, bottom, to) {
  const top = 14 + row * 16;
  const isRight = x > to - 130;
  return svg("g", { class: "quantile" }, [
    svg("line", { x1: x, x2: x, y1: top - 9, y2: bottom, "stroke-dasharray": row ? "3 3" : null }),
    svg("text", { x: isRight ? x - 5 : x + 5, y: top, "text-anchor": isRight ? "end" : "start", text: `${label} ${shortNs(ns)}` }),
  ]);
}

const LOOP_FRAME = { left: 64, right: 84, top: 16, bottom: 44 };
const LOOP_TICK_WIDTH = 70;
// With more points, dots would hide the line.
const MAX_DOTS = 64;

/**
 * @param {Object} bands `IterationBands` of pictures.py
 * @param {number | null} steady the time of iterations that are neither first nor last
 * @param {{color: string, name: string, tooltip: Object, onChoose: (first: number, last: number) => void}} options
 */
export function iterationPlot(bands, steady, { color, name, tooltip, onChoose }) {
  const { p10_ns: low, p50_ns: middle, p90_ns: high } = bands;
  const numbers = bands.first.map((first, index) => (first + bands.last[index]) / 2);
  const most = 1.06 * Math.max(...high, 1);
  return drawing(`Iterations of ${name}`, HEIGHT, (width) => {
    const [from, to, bottom] = [LOOP_FRAME.left, width - LOOP_FRAME.right, HEIGHT - LOOP_FRAME.bottom];
    const x = linear(bands.first[0] - 0.5, bands.last.at(-1) + 0.5, from, to);
    const y = linear(0, most, bottom, LOOP_FRAME.top);
    const room = Math.max(Math.floor((to - from) / LOOP_TICK_WIDTH), 1);
    const at = numbers.map(x);
    const times = wholeTicks(0, most, 5);
    return [
      leftAxis({ values: times, place: y, text: timeText(times), x: from, to }),
      svg("polygon", { class: "tenths", fill: color, points: [...pairs(at, high.map(y)), ...pairs(at, low.map(y)).reverse()].join(" ") }),
      ...steadyLine(steady, y, from, to),
      svg("polyline", { class: "median", points: pairs(at, middle.map(y)).join(" ") }),
      ...(numbers.length <= MAX_DOTS ? at.map((cx, index) => svg("circle", { class: "median-dot", cx, cy: y(middle[index]), r: 2.6 })) : []),
      ...[0, at.length - 1].map((index) => svg("circle", { class: "end-dot", cx: at[index], cy: y(middle[index]), r: 5 })),
      bottomAxis({ values: wholeTicks(bands.first[0], bands.last.at(-1), room), place: x, text: formatCount, y: bottom, from, to }),
      svg("text", { class: "axis-title", x: (from + to) / 2, y: HEIGHT - 6, "text-anchor": "middle", text: "iteration" }),
      ...numbers.map((_, index) => pointTarget(bands, index, x, bottom, tooltip, onChoose)),
    ];
  });
}

function pairs(xs, ys) {
  return xs.map((x, index) => `${x.toFixed(1)},${ys[index].toFixed(1)}`);
}

function steadyLine(steady, y, from, to) {
  if (steady === null) return [];
  return [
    svg("line", { class: "steady", x1: from, x2: to, y1: y(steady), y2: y(steady) }),
    svg("text", { class: "steady-text", x: to + 6, y: y(steady) - 2, text: "steady" }),
    svg("text", { class: "steady-text", x: to + 6, y: y(steady) + 12, text: shortNs(steady) }),
  ];
}

function pointTarget(bands, index, x, bottom, tooltip, onChoose) {
  const [first, last] = [bands.first[index], bands.last[index]];
  const left = x(first - 0.5);
  const says = [
    first === last ? `iteration ${first}` : `iterations ${first} to ${last}`,
    `median ${formatNs(bands.p50_ns[index])}`,
    `p10 to p90: ${formatNs(bands.p10_ns[index])} to ${formatNs(bands.p90_ns[index])}`,
    `${formatCount(bands.counts[index])} in all`,
    "click: one of them in the timeline",
  ];
  return barTarget([left, LOOP_FRAME.top, x(last + 0.5) - left, bottom - LOOP_FRAME.top], says, tooltip, () => onChoose(first, last));
}

/** What is above and below a bar leads to it, too. */
function barTarget([x, y, width, height], says, tooltip, onClick) {
  const on = { mousemove: (event) => tooltip.show(event, says), mouseleave: tooltip.hide, click: onClick };
  return svg("rect", { class: "bar-target", x, y, width: Math.max(width, 1), height, on });
}

const BARS_HEIGHT = 150;
const BARS_FRAME = { left: 64, right: 8, top: 10, bottom: 24 };
const LABEL_WIDTH = 26;
const WIDEST = 46;
const MAX_ROOM = 540;
const AROUND = 120;

/** How wide a card with these bars has to be for no bar to be narrower than it may be. */
export function roomOf({ ids }) {
  return Math.min(ids.length * WIDEST, MAX_ROOM) + AROUND;
}

/**
 * @param {{ids: number[], counts: number[], totals_ns: number[]}} groups
 * @param {{color: string, noun: string, name: string, tooltip: Object, onChoose: (id: number) => void}} options
 */
export function groupBars({ ids, counts, totals_ns: totals }, { color, noun, name, tooltip, onChoose }) {
  const means = totals.map((total, index) => total / Math.max(counts[index], 1));
  const most = 1.05 * Math.max(...means, 1);
  return drawing(`${name} by ${noun}`, BARS_HEIGHT, (width) => {
    const [from, bottom] = [BARS_FRAME.left, BARS_HEIGHT - BARS_FRAME.bottom];
    const step = Math.min((width - BARS_FRAME.right - from) / ids.length, WIDEST);
    const to = from + step * ids.length;
    const y = linear(0, most, bottom, BARS_FRAME.top);
    // The next round number of items of which every one gets a label.
    const power = 10 ** Math.floor(Math.log10(Math.max(LABEL_WIDTH / step, 1)));
    const every = power * STEPS.find((factor) => factor * power >= LABEL_WIDTH / step);
    const values = wholeTicks(0, most, 3);
    return [
      leftAxis({ values, place: y, text: timeText(values), x: from, to }),
      ...ids.flatMap((id, index) => {
        const x = from + index * step;
        const says = [
          `${noun} ${id}`,
          `mean ${formatNs(means[index])}`,
          counted(counts[index], "scope"),
          "click: one of them in the timeline",
        ];
        return [
          svg("rect", { x: x + step * 0.08, y: y(means[index]), width: Math.max(step * 0.84, 0.8), height: bottom - y(means[index]), fill: color }),
          ...(index % every === 0 ? [svg("text", { class: "tick-text", x: x + step / 2, y: bottom + 15, "text-anchor": "middle", text: id })] : []),
          barTarget([x, BARS_FRAME.top, step, bottom - BARS_FRAME.top], says, tooltip, () => onChoose(id)),
        ];
      }),
    ];
  });
}
