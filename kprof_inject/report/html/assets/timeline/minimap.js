/** The whole launch at a glance: how many CTAs are at work, and which part the timeline shows. */

import { GUTTER, SCROLLBAR } from "#timeline/layout";

/**
 * How many CTAs are at work in each of `columns` equal parts of the launch, on average.
 * @param {import("#scopes").Ctas} ctas
 */
export function atWork(ctas, spanNs, columns) {
  const steps = new Float64Array(columns + 2);
  const perColumn = Math.max(spanNs, 1) / columns;
  // A line that rises at each begin and falls at each end, summed twice: what is left in a column is the mean over it.
  const turn = (ns, sign) => {
    const place = Math.min(Math.max(ns / perColumn, 0), columns);
    const column = Math.min(Math.floor(place), columns - 1);
    steps[column] += sign * (column + 1 - place);
    steps[column + 1] += sign * (place - column);
  };
  for (let row = 0; row < ctas.length; row++) {
    turn(ctas.begin[row], 1);
    turn(ctas.end[row], -1);
  }
  const counts = new Float64Array(columns);
  let sum = 0;
  for (let column = 0; column < columns; column++) counts[column] = sum += steps[column];
  return counts;
}

export class Minimap {
  #canvas;
  #element;
  #state;

  /** @param {HTMLCanvasElement} element @param {import("#timeline/state").TimelineState} state */
  constructor(element, state) {
    this.#element = element;
    this.#canvas = element.getContext("2d");
    this.#state = state;
    element.addEventListener("pointerdown", (event) => this.#drag(event));
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.#element;
    this.size = { width, height, ratio };
    this.#element.width = Math.max(Math.round(width * ratio), 1);
    this.#element.height = Math.max(Math.round(height * ratio), 1);
    this.plot = Math.max(width - GUTTER - SCROLLBAR, 1);
    const { model } = this.#state;
    this.counts = atWork(model.ctas, model.spanNs, Math.max(Math.floor(this.plot), 1));
    this.most = this.counts.reduce((most, count) => Math.max(most, count), 0);
  }

  draw(look) {
    const canvas = this.#canvas;
    const { width, height, ratio } = this.size;
    canvas.setTransform(ratio, 0, 0, ratio, 0, 0);
    canvas.fillStyle = look.css.raised;
    canvas.fillRect(0, 0, width, height);
    const room = height - 5;
    canvas.fillStyle = look.css["quiet-ink"];
    canvas.globalAlpha = 0.5;
    canvas.beginPath();
    canvas.moveTo(GUTTER, height);
    this.counts.forEach((count, column) => {
      const y = height - (this.most ? (count / this.most) * room : 0);
      canvas.lineTo(GUTTER + column, y);
      canvas.lineTo(GUTTER + column + 1, y);
    });
    canvas.lineTo(GUTTER + this.plot, height);
    canvas.fill();
    canvas.globalAlpha = 1;
    this.#drawWindow(canvas, look, height);
    canvas.font = `11px ${look.font}`;
    canvas.textBaseline = "middle";
    canvas.fillStyle = look.css["quiet-ink"];
    canvas.fillText(`CTAs at work (≤ ${Math.round(this.most)})`, 8, height / 2);
  }

  #drawWindow(canvas, look, height) {
    const [left, right] = this.#state.range.map((ns) => this.#x(ns));
    canvas.fillStyle = look.css.ground;
    canvas.globalAlpha = 0.65;
    canvas.fillRect(GUTTER, 0, left - GUTTER, height);
    canvas.fillRect(right, 0, GUTTER + this.plot - right, height);
    canvas.globalAlpha = 1;
    canvas.strokeStyle = look.css.accent;
    canvas.lineWidth = 1.5;
    canvas.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 2), height - 1.5);
  }

  #x(ns) {
    const place = Math.min(Math.max(ns / Math.max(this.#state.model.spanNs, 1), 0), 1);
    return GUTTER + place * this.plot;
  }

  /** The middle of the window follows the pointer. */
  #drag(event) {
    const follow = ({ clientX }) => {
      const place = (clientX - this.#element.getBoundingClientRect().left - GUTTER) / this.plot;
      const [from, to] = this.#state.range;
      const middle = place * this.#state.model.spanNs;
      this.#state.show([middle - (to - from) / 2, middle + (to - from) / 2]);
    };
    this.#element.setPointerCapture(event.pointerId);
    follow(event);
    const stop = () => this.#element.removeEventListener("pointermove", follow);
    this.#element.addEventListener("pointermove", follow);
    this.#element.addEventListener("pointerup", stop, { once: true });
    this.#element.addEventListener("pointercancel", stop, { once: true });
  }
}
