/** A text of any length as rows of one height, of which only those that are looked at exist. */

import { element } from "#dom";

const ROW_HEIGHT = 20;
const BEYOND = 12;

/** Returns the first row to draw and the one after the last: the visible rows and some around them. */
export function rowsInSight(scrollTop, height, count, rowHeight = ROW_HEIGHT, beyond = BEYOND) {
  const first = Math.floor(scrollTop / rowHeight) - beyond;
  const after = Math.ceil((scrollTop + height) / rowHeight) + beyond;
  return [Math.min(Math.max(first, 0), count), Math.min(Math.max(after, 0), count)];
}

export class LineList {
  #rows = new Map();
  #sizer = element("div", { class: "line-sizer" });
  #render;
  #count = 0;
  #current = -1;
  #isAsked = false;

  /** @param {(row: number) => HTMLElement} render makes a row */
  constructor(render, label) {
    this.#render = render;
    this.element = element("div", { class: "line-list", tabindex: "0", role: "region", "aria-label": label }, [this.#sizer]);
    this.element.addEventListener("scroll", () => this.#ask(), { passive: true });
    new ResizeObserver(() => this.#ask()).observe(this.element);
  }

  /** Shows another text: `count` rows, of which the longest has `width` characters. */
  setRows(count, width) {
    this.#count = count;
    this.#current = -1;
    this.#sizer.style.height = `${count * ROW_HEIGHT}px`;
    this.#sizer.style.setProperty("--characters", String(width));
    this.refresh();
  }

  /** Makes all rows in sight anew. */
  refresh() {
    for (const made of this.#rows.values()) made.remove();
    this.#rows.clear();
    this.#fill();
  }

  /** The row that is marked, or -1. */
  get current() {
    return this.#current;
  }

  /** Marks a row, and brings it into sight, with some room above. */
  goTo(row) {
    this.mark(row);
    const { scrollTop, clientHeight } = this.element;
    const top = row * ROW_HEIGHT;
    if (top < scrollTop + ROW_HEIGHT || top > scrollTop + clientHeight - 2 * ROW_HEIGHT) {
      this.element.scrollTop = Math.max(top - clientHeight / 3, 0);
    }
    this.#fill();
  }

  mark(row) {
    this.#rows.get(this.#current)?.classList.remove("current");
    this.#current = row;
    this.#rows.get(row)?.classList.add("current");
  }

  #ask() {
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.#fill();
    });
  }

  #fill() {
    const { scrollTop, clientHeight } = this.element;
    const [first, after] = rowsInSight(scrollTop, clientHeight, this.#count);
    for (const [row, made] of this.#rows) {
      if (row >= first && row < after) continue;
      made.remove();
      this.#rows.delete(row);
    }
    for (let row = first; row < after; row++) {
      if (this.#rows.has(row)) continue;
      const made = this.#render(row);
      made.style.top = `${row * ROW_HEIGHT}px`;
      made.classList.toggle("current", row === this.#current);
      this.#rows.set(row, made);
      this.#sizer.append(made);
    }
  }
}
