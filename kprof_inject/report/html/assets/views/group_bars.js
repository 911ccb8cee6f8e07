/** The mean duration of a scope in each warp or SM. */

import { counted, formatNs } from "#format";
import { drawing, leftAxis, svg } from "#views/svg";
import { linear, roundStep, timeText, wholeTicks } from "#views/axis";

const HEIGHT = 150;
const FRAME = { left: 64, right: 8, top: 10, bottom: 24 };
const LABEL_WIDTH = 26;
const WIDEST = 46;
const MAX_ROOM = 540;
const AROUND = 120;

/** How wide a card with these bars has to be for no bar to be narrower than it may be. */
export function roomOf({ ids }) {
  return Math.min(ids.length * WIDEST, MAX_ROOM) + AROUND;
}

/**
 * @param {{ids: number[], counts: number[], means_ns: number[]}} groups
 * @param {{color: string, noun: string, name: string, tooltip: Object, onChoose: (id: number) => void}} options
 */
export function groupBars({ ids, counts, means_ns: means }, { color, noun, name, tooltip, onChoose }) {
  const most = 1.05 * Math.max(...means, 1);
  return drawing(`${name} by ${noun}`, HEIGHT, (width) => {
    const [from, bottom] = [FRAME.left, HEIGHT - FRAME.bottom];
    const step = Math.min((width - FRAME.right - from) / ids.length, WIDEST);
    const to = from + step * ids.length;
    const y = linear(0, most, bottom, FRAME.top);
    const every = roundStep(LABEL_WIDTH / step);
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
          svg("rect", {
            class: "bar-target",
            x,
            y: FRAME.top,
            width: step,
            height: bottom - FRAME.top,
            on: { mousemove: (event) => tooltip.show(event, says), mouseleave: tooltip.hide, click: () => onChoose(id) },
          }),
        ];
      }),
    ];
  });
}
