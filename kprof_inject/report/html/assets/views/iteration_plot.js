/** How an iteration's time goes over its loop: the median, and the band that four of five lie in. */

import { formatCount, formatNs, shortNs } from "#format";
import { bottomAxis, drawing, leftAxis, svg } from "#views/svg";
import { linear, timeText, wholeTicks } from "#views/axis";

const HEIGHT = 232;
const FRAME = { left: 64, right: 84, top: 16, bottom: 44 };
const TICK_WIDTH = 70;
// With more points, dots would hide the line.
const MAX_DOTS = 64;

/**
 * @param {Object} bands an `IterationPlot` of page_schema.py
 * @param {{color: string, name: string, tooltip: Object, onChoose: (first: number, last: number) => void}} options
 */
export function iterationPlot(bands, { color, name, tooltip, onChoose }) {
  const { p10_ns: low, p50_ns: middle, p90_ns: high, steady_ns: steady } = bands;
  const numbers = bands.first.map((first, index) => (first + bands.last[index]) / 2);
  const most = 1.06 * Math.max(...high, 1);
  return drawing(`Iterations of ${name}`, HEIGHT, (width) => {
    const [from, to, bottom] = [FRAME.left, width - FRAME.right, HEIGHT - FRAME.bottom];
    const x = linear(bands.first[0] - 0.5, bands.last.at(-1) + 0.5, from, to);
    const y = linear(0, most, bottom, FRAME.top);
    const room = Math.max(Math.floor((to - from) / TICK_WIDTH), 1);
    const at = numbers.map(x);
    const times = wholeTicks(0, most, 5);
    return [
      leftAxis({ values: times, place: y, text: timeText(times), x: from, to }),
      svg("polygon", { class: "tenths", fill: color, points: [...pairs(at, high.map(y)), ...pairs(at, low.map(y)).reverse()].join(" ") }),
      ...steadyLine(steady, y, from, to),
      svg("polyline", { class: "median", points: pairs(at, middle.map(y)).join(" ") }),
      ...(numbers.length <= MAX_DOTS ? at.map((cx, index) => svg("circle", { class: "median-dot", cx, cy: y(middle[index]), r: 2.6 })) : []),
      ...ends(bands, at, y),
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

/** The first and the last point are emphasised. */
function ends(bands, at, y) {
  return [0, at.length - 1].map((index) => svg("circle", { class: "end-dot", cx: at[index], cy: y(bands.p50_ns[index]), r: 5 }));
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
  return svg("rect", {
    class: "bar-target",
    x: left,
    y: FRAME.top,
    width: Math.max(x(last + 0.5) - left, 1),
    height: bottom - FRAME.top,
    on: {
      mousemove: (event) => tooltip.show(event, says),
      mouseleave: tooltip.hide,
      click: () => onChoose(first, last),
    },
  });
}
