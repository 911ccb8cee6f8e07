/** Actions of the pointer on the canvas: pointing, selecting, moving, zooming. */

import { dragFrom } from "#timeline/drags";
import { hitAt } from "#timeline/hit";
import { GUTTER, RULER, plotOf } from "#timeline/layout";
import { around } from "#timeline/range";
import { CTA, SM, rowAt } from "#timeline/rows";

/** A press that moves less than this is a click. */
const CLICK_PIXELS = 4;
const WHEEL_ZOOM = 0.0022;
const LINE_PIXELS = 40;

export class Pointer {
  /** Where it was last, in the canvas. */
  at = { x: 0, y: 0, isInside: false };

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("#timeline/state").TimelineState} state
   * @param {{hover: (hit: import("#timeline/hit").Hit | null) => void,
   *     band: (band: [number, number] | null) => void}} tell
   */
  constructor(canvas, state, tell) {
    Object.assign(this, { canvas, state, tell });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerleave", () => this.#leave());
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("dblclick", (event) => this.#zoomToHit(event));
  }

  get plot() {
    return plotOf(this.canvas.clientWidth, this.canvas.clientHeight);
  }

  /** The time at a place on the canvas. */
  nsAt(x) {
    const [from, to] = this.state.range;
    return from + ((x - GUTTER) / this.plot.width) * (to - from);
  }

  /** The time under the pointer, or undefined if it is not over the rows. */
  ns() {
    return this.at.isInside && this.at.x >= GUTTER ? this.nsAt(this.at.x) : undefined;
  }

  hit() {
    const { x, y, isInside } = this.at;
    if (!isInside || y < RULER || x < GUTTER || x > GUTTER + this.plot.width) return null;
    const { state } = this;
    const nsPerPixel = (state.range[1] - state.range[0]) / this.plot.width;
    return hitAt(state.model, state.rows, this.nsAt(x), y - RULER + state.top, nsPerPixel);
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    this.at = { x: event.clientX - box.left, y: event.clientY - box.top, isInside: true };
    return this.at;
  }

  #move(event) {
    const { x, y } = this.#place(event);
    if (event.buttons) return;
    const hit = this.hit();
    const isButton = x < GUTTER && y > RULER;
    this.canvas.style.cursor = hit?.scope !== undefined || hit?.flight !== undefined || isButton ? "pointer" : "default";
    this.tell.hover(hit);
  }

  #leave() {
    this.at.isInside = false;
    this.tell.hover(null);
  }

  // As in Perfetto: the wheel scrolls, with Ctrl (which a pinch sends too) it zooms. Over the ruler it always zooms.
  #wheel(event) {
    event.preventDefault();
    const { x, y } = this.#place(event);
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PIXELS : 1;
    const [sideways, down] = event.shiftKey ? [event.deltaY + event.deltaX, 0] : [event.deltaX, event.deltaY];
    const isZoom = event.ctrlKey || event.metaKey || y < RULER || this.state.contentHeight <= this.state.height;
    if (isZoom && down) this.state.zoom(Math.exp(down * unit * WHEEL_ZOOM), x >= GUTTER ? this.nsAt(x) : undefined);
    else if (Math.abs(sideways) > Math.abs(down)) this.state.pan((sideways * unit) / this.plot.width);
    else this.state.scroll(down * unit);
    this.tell.hover(this.hit());
  }

  #press(event) {
    if (event.button !== 0) return;
    const begin = this.#place(event);
    const drag = dragFrom(this, begin, event.shiftKey);
    let isDrag = false;
    const move = (moved) => {
      const at = this.#place(moved);
      isDrag ||= Math.hypot(at.x - begin.x, at.y - begin.y) >= CLICK_PIXELS;
      if (isDrag) drag.move(at);
    };
    const stop = () => {
      this.canvas.removeEventListener("pointermove", move);
      this.canvas.removeEventListener("pointerup", stop);
      this.canvas.removeEventListener("pointercancel", stop);
      if (isDrag) drag.end();
      else this.#click(begin);
    };
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", stop);
    this.canvas.addEventListener("pointercancel", stop);
    this.tell.hover(null);
  }

  #click({ x, y }) {
    const { state } = this;
    if (y < RULER || x > GUTTER + this.plot.width) return;
    if (x < GUTTER) {
      const row = rowAt(state.rows, y - RULER + state.top);
      if (row >= 0) state.toggle(state.rows.kind[row], state.rows.ref[row]);
      return;
    }
    const hit = this.hit();
    if (hit?.kind === SM && hit.cta !== undefined) state.revealInside(hit.cta);
    else if (hit?.kind === SM || hit?.kind === CTA) state.toggle(hit.kind, hit.ref);
    else if (hit?.flight !== undefined) state.select(state.model.scopeOfFlight(hit.flight));
    else state.select(hit?.scope ?? -1);
  }

  #zoomToHit(event) {
    this.#place(event);
    const hit = this.hit();
    const { model } = this.state;
    if (hit?.scope !== undefined)
      this.state.show(around(model.scopes.start[hit.scope], model.scopes.end[hit.scope], model.spanNs));
    else if (hit?.flight !== undefined)
      this.state.show(around(model.flights.start[hit.flight], model.flights.end[hit.flight], model.spanNs));
    else if (hit?.cta !== undefined)
      this.state.show(around(model.ctas.begin[hit.cta], model.ctas.end[hit.cta], model.spanNs));
  }
}
