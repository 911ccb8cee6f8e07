/** Paints the rows that are in sight into a picture, pixel by pixel; text comes on top of it later. */

import { paintBoxes } from "#timeline/paint";
import { CTA, FLIGHT, LEVEL, SM, WARP, laneHeight, rowAt } from "#timeline/rows";

/** Of a level's height, what its boxes take. */
const BAR = 15;
const PADDING = 2;
/** Of a CTA's bar, the strip that shows what its first warp does. */
const STRIP = 4;
const STRIP_FROM_HEIGHT = 9;
/** In CSS pixels. */
const LABEL_FROM = 22;
const INSTANT = 2;

/**
 * @typedef {{pixels: Uint32Array, width: number, height: number}} Picture
 *
 * @typedef {Object} View
 * @property {[number, number]} range in ns @property {number} top what is scrolled away above, in CSS pixels
 * @property {number} ratio pixels of the picture in a CSS pixel
 * @property {number[]} gridAt positions of the vertical lines, in pixels
 * @property {(track: number) => boolean} isLitTrack
 *
 * @typedef {Object} Labelled boxes of one line that have room for a label
 * @property {number} kind of the row @property {number} y @property {number} height in pixels
 * @property {number[]} wide as `paintBoxes` fills it
 * @property {boolean} isLit
 */

/** @returns {Labelled[]} */
export function paintRows(picture, model, rows, view, look) {
  const job = new Job(picture, model, view, look);
  picture.pixels.fill(look.ground);
  const last = picture.height / view.ratio + view.top;
  for (let row = Math.max(rowAt(rows, view.top), 0); row < rows.count && rows.y[row] < last; row++) {
    const top = rows.y[row] - view.top;
    const bottom = rows.y[row + 1] - view.top;
    PAINT[rows.kind[row]](job, rows.ref[row], top, bottom - top);
    job.rule(bottom, rows.kind[row]);
  }
  // Below the last row the grid goes on.
  job.background(rows.y[rows.count] - view.top, picture.height / view.ratio, job.plain);
  return job.labelled;
}

class Job {
  constructor(picture, model, view, look) {
    Object.assign(this, { picture, model, view, look });
    const { width } = picture;
    const [from, to] = view.range;
    this.scale = {
      from,
      perNs: width / (to - from),
      width,
      instantWidth: Math.max(1, Math.round(INSTANT * view.ratio)),
      wideFrom: LABEL_FROM * view.ratio,
    };
    this.line = new Uint32Array(width);
    this.plain = this.#grid(look.ground, look.grid);
    this.group = this.#grid(look.groupGround, look.groupGrid);
    this.labelled = [];
  }

  #grid(ground, color) {
    const line = new Uint32Array(this.picture.width).fill(ground);
    for (const at of this.view.gridAt) if (at >= 0 && at < line.length) line[Math.round(at)] = color;
    return line;
  }

  /** In pixels of the picture, from its top. */
  y(css) {
    return Math.min(Math.max(Math.round(css * this.view.ratio), 0), this.picture.height);
  }

  background(top, bottom, line) {
    const { pixels, width } = this.picture;
    for (let y = this.y(top), end = this.y(bottom); y < end; y++) pixels.set(line, y * width);
  }

  rule(bottom, kind) {
    const { pixels, width } = this.picture;
    const y = this.y(bottom) - 1;
    if (y >= 0) pixels.fill(kind === WARP || kind === FLIGHT ? this.look.rowLine : this.look.groupLine, y * width, (y + 1) * width);
  }

  /** Draws a row of boxes; `background` is one line of the pixels below them. */
  boxes(boxes, top, height, background, tints, kind, isLit) {
    const [begin, end] = [this.y(top), this.y(top + height)];
    if (end <= begin) return;
    const wide = [];
    this.line.set(background);
    paintBoxes(
      this.line,
      boxes,
      this.scale,
      tints,
      background === this.group ? this.look.groupGround : this.look.ground,
      wide,
    );
    this.#copyLine(begin, end);
    if (!wide.length) return;
    const full = Math.round(top * this.view.ratio);
    this.labelled.push({ kind, y: full, height: Math.round(height * this.view.ratio), wide, isLit });
    if (kind !== WARP && height >= STRIP_FROM_HEIGHT) this.#firstWarps(wide, top + height);
  }

  /** Asynchronous work: pale as long as it may have been under way, and on that in full as long as it was for sure. */
  flights({ order, possible, sure }, top, isLit) {
    const [begin, end] = [this.y(top), this.y(top + BAR)];
    if (end <= begin) return;
    const { look, model, scale } = this;
    const { start, known, end: until, scope: kind } = model.flights;
    const wide = [];
    this.line.set(this.plain);
    paintBoxes(this.line, { order, covered: possible, start, end: until, kind }, scale, look.dimTints, look.ground, []);
    const tints = isLit ? look.scopeTints : look.dimTints;
    paintBoxes(this.line, { order, covered: sure, start, end: known, kind }, scale, tints, look.ground, wide);
    this.#copyLine(begin, end);
    const [y, height] = [Math.round(top * this.view.ratio), Math.round(BAR * this.view.ratio)];
    if (wide.length) this.labelled.push({ kind: FLIGHT, y, height, wide, isLit });
  }

  /** At the bottom of CTAs' bars what their first warps do: the innermost scope at each time. */
  #firstWarps(wide, bottom) {
    const { model, look } = this;
    for (let at = 0; at < wide.length; at += 3) {
      const track = wide[at] * model.warps.length;
      if (!this.view.isLitTrack(track)) continue;
      for (const boxes of scopeBoxes(model, track))
        paintBoxes(this.line, boxes, this.scale, look.stripTints, look.groupGround, []);
    }
    this.#copyLine(this.y(bottom - STRIP), this.y(bottom));
  }

  #copyLine(begin, end) {
    const { pixels, width } = this.picture;
    for (let y = begin; y < end; y++) pixels.set(this.line, y * width);
  }
}

/** The boxes of each of a warp's levels. */
function scopeBoxes(model, track) {
  const { start, end, scope: kind } = model.scopes;
  return model.levels(track).map((level) => ({ ...level, start, end, kind, isInstant: model.isInstant }));
}

const PAINT = {
  [SM]: (job, group, top, height) => {
    const { groups, ctas } = job.model;
    const first = groups.laneStart[group];
    const lanes = groups.laneStart[group + 1] - first;
    const each = laneHeight(lanes);
    job.background(top, top + height, job.group);
    for (let lane = 0; lane < lanes; lane++) {
      const boxes = { ...groups.lanes[first + lane], start: ctas.begin, end: ctas.end, kind: job.look.ctaKinds };
      const gap = each > 8 ? 2 : 1;
      job.boxes(boxes, top + PADDING + lane * each, each - gap, job.group, job.look.ctaTints, SM, true);
    }
  },
  [CTA]: (job, cta, top, height) => {
    const { ctas } = job.model;
    const order = Uint32Array.of(cta);
    const covered = Float64Array.of(0, ctas.end[cta] - ctas.begin[cta]);
    const boxes = { order, covered, start: ctas.begin, end: ctas.end, kind: job.look.ctaKinds };
    job.background(top, top + height, job.group);
    job.boxes(boxes, top + PADDING, height - 2 * PADDING - 1, job.group, job.look.ctaTints, CTA, true);
  },
  [WARP]: (job, track, top, height) => {
    const isLit = job.view.isLitTrack(track);
    const tints = isLit ? job.look.scopeTints : job.look.dimTints;
    job.background(top, top + height, job.plain);
    scopeBoxes(job.model, track).forEach((boxes, number) => {
      job.boxes(boxes, top + PADDING + number * LEVEL, BAR, job.plain, tints, WARP, isLit);
    });
  },
  [FLIGHT]: (job, cta, top, height) => {
    const isLit = job.view.isLitTrack(cta * job.model.warps.length);
    job.background(top, top + height, job.plain);
    job.model.flightLanes.of(cta).forEach((lane, number) => {
      job.flights(lane, top + PADDING + number * LEVEL, isLit);
    });
  },
};
