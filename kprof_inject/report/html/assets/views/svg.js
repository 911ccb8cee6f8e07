/** Drawings that are redrawn when their width changes, so that text is never scaled. */

import { printable } from "#dom";

const SVG = "http://www.w3.org/2000/svg";
const MIN_WIDTH = 120;

/** @param {string} tag @param {Object<string, unknown>} [attributes] `text` is its text, `on` has listeners */
export function svg(tag, attributes = {}, children = []) {
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
export function bottomAxis({ values, place, text, y, from, to }) {
  return svg("g", { class: "axis" }, [
    svg("line", { x1: from, x2: to, y1: y, y2: y }),
    ...values.flatMap((value) => {
      const x = place(value);
      return [
        svg("line", { x1: x, x2: x, y1: y, y2: y + 4 }),
        svg("text", { x, y: y + 17, "text-anchor": anchorAt(x, from, to), text: text(value) }),
      ];
    }),
  ]);
}

/** Keeps text at an edge within the drawing. */
function anchorAt(x, from, to) {
  if (x < from + 14) return "start";
  return x > to - 14 ? "end" : "middle";
}

/** An axis at the left with lines across the drawing. */
export function leftAxis({ values, place, text, x, to }) {
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
