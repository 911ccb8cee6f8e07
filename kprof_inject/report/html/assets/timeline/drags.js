/** Actions of dragging on the canvas. */

import { GUTTER, RULER, SCROLLBAR, thumbOf } from "#timeline/layout";

/** A window narrower than this is none. */
const MIN_BAND = 4;

/**
 * @param {import("#timeline/pointer").Pointer} pointer
 * @param {{x: number, y: number}} begin where it was pressed
 * @param {boolean} isShift
 * @returns {{move: (at: {x: number, y: number}) => void, end: () => void}}
 */
export function dragFrom(pointer, begin, isShift) {
  if (begin.x > pointer.canvas.clientWidth - SCROLLBAR) return thumbDrag(pointer.state, begin);
  if (begin.y < RULER) return bandDrag(pointer, begin, (range) => pointer.state.show(range));
  if (isShift) return bandDrag(pointer, begin, (range) => pointer.state.mark(range));
  return begin.x < GUTTER ? scrollDrag(pointer.state, begin) : panDrag(pointer, begin);
}

function scrollDrag(state, begin) {
  const top = state.top;
  return { move: (at) => state.scrollTo(top + begin.y - at.y), end: () => {} };
}

function panDrag(pointer, begin) {
  const { state } = pointer;
  const range = [...state.range];
  const nsPerPixel = (range[1] - range[0]) / pointer.plot.width;
  const scroll = scrollDrag(state, begin);
  const move = (at) => {
    scroll.move(at);
    state.show(range.map((ns) => ns + (begin.x - at.x) * nsPerPixel));
  };
  return { move, end: () => {} };
}

function thumbDrag(state, begin) {
  const thumb = thumbOf(state);
  const top = state.top;
  const perPixel = thumb ? (state.contentHeight - state.height) / Math.max(state.height - thumb.length, 1) : 0;
  return { move: (at) => state.scrollTo(top + (at.y - begin.y) * perPixel), end: () => {} };
}

/** A window in time, and what to do with it when the drag ends. */
function bandDrag(pointer, begin, onEnd) {
  const inPlot = (x) => Math.min(Math.max(x, GUTTER), GUTTER + pointer.plot.width);
  let band = [begin.x, begin.x];
  const move = (at) => {
    const [one, other] = [inPlot(begin.x), inPlot(at.x)];
    band = [Math.min(one, other), Math.max(one, other)];
    pointer.tell.band(band);
  };
  const end = () => {
    pointer.tell.band(null);
    if (band[1] - band[0] >= MIN_BAND) onEnd(band.map((x) => pointer.nsAt(x)));
  };
  return { move, end };
}
