/** How often a scope took how long. */

import { formatCount, formatNs, formatShare, shortNs } from "#format";
import { leftAxis, bottomAxis, drawing, svg } from "#views/svg";
import { linear, logarithmic, logTicks, timeText, wholeTicks } from "#views/axis";

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
      const target = svg("rect", {
        class: "bar-target",
        x: left,
        y: FRAME.top,
        width: Math.max(right - left, 1),
        height: bottom - FRAME.top,
        on: {
          mousemove: (event) => tooltip.show(event, says),
          mouseleave: tooltip.hide,
          click: () => onChoose(edges[index], edges[index + 1]),
        },
      });
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
