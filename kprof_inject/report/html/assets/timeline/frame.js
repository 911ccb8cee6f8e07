/** One frame of the timeline: the painted rows, and on them text, hatching and outlines. */

import { arrowsInSight, drawArrows } from "#timeline/flag_arrows";
import { drawGutter } from "#timeline/gutter";
import { Labels } from "#timeline/labels";
import { GUTTER, RULER, plotOf } from "#timeline/layout";
import { lossBoxes } from "#timeline/losses";
import { firstEndingAfter } from "#timeline/paint";
import { paintRows } from "#timeline/picture";
import { FLIGHT, LEVEL, WARP, rowAt } from "#timeline/rows";
import { ticks } from "#timeline/ticks";

const TICK_ROOM = 110;
/** In CSS pixels; narrower hatching looks like a tint. */
const HATCHED_FROM = 3;

export class Frame {
  #canvas;
  #image = null;
  #labels = new Labels();
  #hatches = new Map();

  /** @param {HTMLCanvasElement} element */
  constructor(element) {
    this.element = element;
    this.#canvas = element.getContext("2d", { alpha: false });
  }

  /** Fits the canvas to the room it has. @returns {{width: number, height: number, ratio: number}} */
  resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    const ratio = devicePixelRatio || 1;
    this.size = { width, height, ratio };
    this.element.width = Math.max(Math.round(width * ratio), 1);
    this.element.height = Math.max(Math.round(height * ratio), 1);
    const plot = plotOf(width, height);
    this.#image = new ImageData(
      Math.max(Math.round(plot.width * ratio), 1),
      Math.max(Math.round(plot.height * ratio), 1),
    );
    return this.size;
  }

  /** @param {import("#timeline/state").TimelineState} state @param {number} hovered a scope, or -1 */
  draw(state, look, hovered) {
    const { ratio } = this.size;
    const plot = plotOf(this.size.width, this.size.height);
    const { width, height } = this.#image;
    const picture = { pixels: new Uint32Array(this.#image.data.buffer), width, height };
    const marks = ticks(state.range, plot.width / TICK_ROOM);
    const toPixel = (ns) => ((ns - state.range[0]) / (state.range[1] - state.range[0])) * width;
    const { range, top, isLitTrack } = state;
    const view = { range, top, ratio, isLitTrack, gridAt: marks.at.map(toPixel) };
    const labelled = paintRows(picture, state.model, state.rows, view, look);

    const canvas = this.#canvas;
    canvas.setTransform(1, 0, 0, 1, 0, 0);
    canvas.putImageData(this.#image, Math.round(GUTTER * ratio), Math.round(RULER * ratio));
    canvas.save();
    canvas.translate(Math.round(GUTTER * ratio), Math.round(RULER * ratio));
    canvas.beginPath();
    canvas.rect(0, 0, width, height);
    canvas.clip();
    this.#drawLost(canvas, state, look, toPixel);
    this.#drawUnsure(canvas, state, look, toPixel);
    this.#labels.draw(canvas, state.model, labelled, view, look);
    drawArrows(canvas, arrowsInSight(state, hovered), look, ratio, toPixel);
    this.#outline(canvas, state, look, hovered, toPixel, 1);
    this.#outline(canvas, state, look, state.selected, toPixel, 2);
    canvas.restore();
    canvas.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawGutter(canvas, state, look, this.size);
    drawRuler(canvas, look, this.size, plot, marks, (ns) => toPixel(ns) / ratio);
  }

  #drawLost(canvas, { rows, top, model }, look, toPixel) {
    const { ratio, height } = this.size;
    canvas.fillStyle = this.#hatching(look.css.hatch);
    for (let row = Math.max(rowAt(rows, top), 0); row < rows.count && rows.y[row] - top < height; row++) {
      for (const box of lossBoxes(model, rows, row)) {
        const left = Math.max(toPixel(box.from), -1);
        const right = Math.min(toPixel(box.to), this.#image.width + 1);
        canvas.fillRect(left, (rows.y[row] - top + box.y) * ratio, Math.max(right - left, ratio), box.height * ratio);
      }
    }
  }

  /** Where asynchronous work may have been complete. */
  #drawUnsure(canvas, { rows, top, range, model }, look, toPixel) {
    const { ratio, height } = this.size;
    const { known, end } = model.flights;
    canvas.fillStyle = this.#hatching(look.quietInk);
    for (let row = Math.max(rowAt(rows, top), 0); row < rows.count && rows.y[row] - top < height; row++) {
      if (rows.kind[row] !== FLIGHT) continue;
      model.flightLanes.of(rows.ref[row]).forEach(({ order }, lane) => {
        const y = (rows.y[row] - top + 2 + lane * LEVEL) * ratio;
        for (let at = firstEndingAfter(order, end, range[0], 0); at < order.length; at++) {
          const [left, right] = [toPixel(known[order[at]]), toPixel(end[order[at]])];
          if (left > this.#image.width) break;
          if (right - left >= HATCHED_FROM * ratio) canvas.fillRect(left, y, right - left, 15 * ratio);
        }
      });
    }
  }

  #hatching(color) {
    const { ratio } = this.size;
    const key = `${color} ${ratio}`;
    if (!this.#hatches.has(key)) {
      const side = 8 * Math.ceil(ratio);
      const tile = Object.assign(document.createElement("canvas"), { width: side, height: side });
      const pen = tile.getContext("2d");
      pen.strokeStyle = color;
      pen.lineWidth = 1.2 * ratio;
      pen.globalAlpha = 0.75;
      for (const shift of [-side, 0, side]) {
        pen.moveTo(shift, side);
        pen.lineTo(shift + side, 0);
      }
      pen.stroke();
      this.#hatches.set(key, this.#canvas.createPattern(tile, "repeat"));
    }
    return this.#hatches.get(key);
  }

  #outline(canvas, { rows, top, model }, look, scope, toPixel, thickness) {
    if (scope < 0) return;
    const { scopes } = model;
    const row = this.#rowInSight(rows, top, scopes.track[scope]);
    if (row < 0) return;
    const { ratio } = this.size;
    const left = Math.max(Math.floor(toPixel(scopes.start[scope])), -4);
    const right = Math.min(Math.max(Math.floor(toPixel(scopes.end[scope])), left + 2 * ratio), this.#image.width + 4);
    const y = (rows.y[row] - top + 2 + model.levelOf(scope) * LEVEL) * ratio;
    const half = (thickness * ratio) / 2;
    canvas.strokeStyle = look.css.selection;
    canvas.lineWidth = thickness * ratio;
    canvas.strokeRect(left + half, y + half, right - left - 2 * half, 15 * ratio - 2 * half);
  }

  #rowInSight(rows, top, track) {
    for (let row = Math.max(rowAt(rows, top), 0); row < rows.count && rows.y[row] - top < this.size.height; row++) {
      if (rows.kind[row] === WARP && rows.ref[row] === track) return row;
    }
    return -1;
  }
}

function drawRuler(canvas, look, size, plot, marks, toX) {
  canvas.fillStyle = look.css.raised;
  canvas.fillRect(0, 0, size.width, RULER);
  canvas.fillStyle = look.css.line;
  canvas.fillRect(0, RULER - 1, size.width, 1);
  canvas.font = `11px ${look.font}`;
  canvas.textBaseline = "middle";
  let endOfLabel = 0;
  marks.at.forEach((ns, index) => {
    const x = toX(ns);
    if (x < 0 || x > plot.width) return;
    canvas.fillStyle = look.css["quiet-ink"];
    canvas.fillRect(GUTTER + Math.round(x), RULER - 7, 1, 6);
    const room = canvas.measureText(marks.labels[index]).width;
    // The last label is to the left of its line if there is no room to the right.
    const left = x + room + 6 < plot.width ? x + 4 : x - room - 4;
    if (left > endOfLabel) {
      canvas.fillText(marks.labels[index], GUTTER + left, RULER / 2);
      endOfLabel = left + room;
    }
  });
  canvas.fillStyle = look.css["quiet-ink"];
  canvas.fillText("since launch start", 8, RULER / 2);
}
