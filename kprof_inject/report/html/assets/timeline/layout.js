/** The layout of the canvas, in CSS pixels. */

export const GUTTER = 148;
export const RULER = 24;
export const SCROLLBAR = 12;

/** @returns the part in which rows are drawn */
export function plotOf(width, height) {
  return { x: GUTTER, y: RULER, width: Math.max(width - GUTTER - SCROLLBAR, 1), height: Math.max(height - RULER, 1) };
}

/** The scrollbar's thumb; null if all rows are in sight. */
export function thumbOf(state) {
  const { height, contentHeight, top } = state;
  if (contentHeight <= height) return null;
  const length = Math.max((height / contentHeight) * height, 24);
  return { y: RULER + (top / (contentHeight - height)) * (height - length), length };
}
