/** Which CTA was on which SM when, and a drawing of that. */

import { shortNs, smName } from "#format";
import { mixed } from "#theme";
import { linear, timeText, wholeTicks } from "#views/charts";

/**
 * @typedef {Object} Residents each array has an item for each CTA, in the order of their begins
 * @property {Int32Array} cta its row in the launch's table of CTAs
 * @property {Int32Array} row of its SM, -1 if that has none
 * @property {Float64Array} begin @property {Float64Array} end
 * @property {Int32Array} lane one of its SM's: CTAs in one lane never overlap
 * @property {Int32Array} wave from 0
 * @property {number} lanes of the SM that has most @property {number} waves
 * @property {Int32Array[]} of each row the items of its CTAs, by begin
 */

/**
 * @param {import("#data").Ctas} ctas
 * @param {number[]} sms in the order of the rows
 * @param {number} waveCtas how many CTAs are a wave
 * @returns {Residents}
 */
export function residentsOf(ctas, sms, waveCtas) {
  const rows = new Map(sms.map((sm, row) => [sm, row]));
  const order = Int32Array.from({ length: ctas.length }, (_, index) => index);
  order.sort((one, other) => ctas.begin[one] - ctas.begin[other] || ctas.cta[one] - ctas.cta[other]);
  const begin = Float64Array.from(order, (index) => ctas.begin[index]);
  const made = {
    cta: order,
    row: Int32Array.from(order, (index) => rows.get(ctas.sm[index]) ?? -1),
    begin,
    // Timers that contradict each other make no CTA run backwards.
    end: Float64Array.from(order, (index, item) => Math.max(ctas.end[index], begin[item])),
    lane: new Int32Array(ctas.length),
    wave: Int32Array.from(order, (_, item) => Math.floor(item / waveCtas)),
    waves: Math.ceil(ctas.length / waveCtas),
    lanes: 1,
    of: sms.map(() => []),
  };
  made.row.forEach((row, item) => row >= 0 && made.of[row].push(item));
  for (const items of made.of) made.lanes = Math.max(made.lanes, layLanes(items, made));
  return made;
}

/** Each CTA goes to the first lane that is free; returns how many lanes that took. */
function layLanes(items, { begin, end, lane }) {
  const freeAt = [];
  for (const item of items) {
    const found = freeAt.findIndex((free) => free <= begin[item]);
    lane[item] = found >= 0 ? found : freeAt.length;
    freeAt[lane[item]] = end[item];
  }
  return freeAt.length;
}

/**
 * How the durations of CTAs are spread: `reach` is the factor from the median at which a colour is full; a CTA in ten
 * may be further from it.
 *
 * @param {Residents} residents
 * @returns {{medianNs: number, reach: number}}
 */
export function durationSpread({ begin, end }) {
  const durations = Float64Array.from(begin, (ns, item) => Math.max(end[item] - ns, 1)).sort();
  const at = (share) => durations[Math.round(share * (durations.length - 1))] ?? 1;
  const medianNs = at(0.5);
  return { medianNs, reach: Math.max(at(0.95) / medianNs, medianNs / at(0.05), MIN_REACH) };
}

/** Less than this is no difference that a colour should make much of. */
const MIN_REACH = 1.1;

/** From -1, much shorter than the median, to 1, much longer. */
function durationShade({ begin, end }, { medianNs, reach }, item) {
  const shade = Math.log(Math.max(end[item] - begin[item], 1) / medianNs) / Math.log(reach);
  return Math.min(Math.max(shade, -1), 1);
}

/** How many CTAs all SMs together had at work, by column. */
export function atWork({ cells, sms, most }) {
  const total = new Float64Array(cells.length / sms.length);
  cells.forEach((level, at) => (total[at % total.length] += (level / 255) * most));
  return total;
}

/** Returns whether single CTAs are distinguishable in a picture of this width and row height. */
export function areDistinguishable({ begin, end, lanes }, spanNs, width, rowHeight) {
  if (!begin.length) return false;
  let taken = 0;
  for (let item = 0; item < begin.length; item++) taken += end[item] - begin[item];
  const widthOfOne = (taken / begin.length / Math.max(spanNs, 1)) * width;
  return widthOfOne >= 4 && rowHeight / lanes >= 2;
}

const STRIP = 46;
const AXIS = 26;
export const LEFT = 58;
export const RIGHT = 14;
export const TOP = STRIP + AXIS;
const BELOW = 4;
const LABEL_HEIGHT = 15;
const TICK_WIDTH = 110;
const FONT = "12px";

/** The colours of the picture, read from the page's style sheet. */
export function lookOf(theme) {
  const [ground, ink, quiet, line, last, tail] = ["ground", "ink", "quiet-ink", "line", "bar-time", "hatch"].map(theme.css);
  const full = theme.css("view-full");
  return {
    ground,
    ink,
    quiet,
    line,
    last,
    font: `${FONT} ${theme.css("font")}`,
    level: (share) => mixed(theme.css("view-empty"), full, share),
    waves: [full, mixed(full, ground, 0.42)],
    duration: (shade) => mixed(theme.css("view-middle"), shade < 0 ? full : last, Math.abs(shade)),
    tail,
    idle: mixed(ground, tail, 0.16),
  };
}

export function heightOf(rows, rowHeight) {
  return TOP + rows * rowHeight + BELOW;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Object} model picture, residents, total (by column), colouring, spread, rowHeight, width
 */
export function paint(canvas, model, look) {
  const { picture, rowHeight, width } = model;
  const height = heightOf(picture.sms.length, rowHeight);
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const draw = canvas.getContext("2d");
  draw.setTransform(scale, 0, 0, scale, 0, 0);
  draw.fillStyle = look.ground;
  draw.fillRect(0, 0, width, height);
  draw.font = look.font;
  const x = linear(picture.begin_ns, picture.end_ns, LEFT, width - RIGHT);
  const bottom = TOP + picture.sms.length * rowHeight;
  if (COLOUR_OF_CTA[model.colouring]) {
    draw.fillStyle = look.level(0);
    draw.fillRect(LEFT, TOP, width - LEFT - RIGHT, bottom - TOP);
    paintIdle(draw, model, look, x);
    paintCtas(draw, model, look, x);
  } else {
    paintCells(draw, model, look);
    paintIdle(draw, model, look, x);
  }
  paintStrip(draw, model, look);
  nameTail(draw, model, look, x, bottom);
  paintRowNames(draw, model, look);
  paintAxis(draw, model, look, x);
}

function paintCells(draw, { picture: { cells, sms }, total, rowHeight, width }, look) {
  const columns = total.length;
  const step = (width - LEFT - RIGHT) / columns;
  const colors = Array.from({ length: 256 }, (_, level) => look.level(level / 255));
  const gap = rowHeight >= 5 ? 1 : 0;
  sms.forEach((_, row) => {
    const y = TOP + row * rowHeight;
    for (let column = 0; column < columns; column++) {
      draw.fillStyle = colors[cells[row * columns + column]];
      const left = Math.floor(LEFT + column * step);
      draw.fillRect(left, y, Math.ceil(LEFT + (column + 1) * step) - left, rowHeight - gap);
    }
  });
}

/** The colour of each CTA by the chosen colouring; not used where CTAs are too small to distinguish. */
const COLOUR_OF_CTA = {
  "CTA duration": ({ residents, spread }, look, item) => look.duration(durationShade(residents, spread, item)),
  waves: ({ residents: { wave, waves } }, look, item) =>
    waves > 1 && wave[item] === waves - 1 ? look.last : look.waves[wave[item] % look.waves.length],
};

function paintCtas(draw, model, look, x) {
  const { residents, rowHeight } = model;
  const { begin, end, lane, lanes, of } = residents;
  const colourOf = COLOUR_OF_CTA[model.colouring];
  const laneHeight = (rowHeight - (rowHeight >= 5 ? 1 : 0.6)) / lanes;
  const pixel = 1 / (devicePixelRatio || 1);
  // Between two pixels a colour would blend with its neighbour, and could not be compared with the legend.
  const snapped = (y) => Math.round(y / pixel) * pixel;
  of.forEach((items, row) => {
    for (const item of items) {
      const left = x(begin[item]);
      draw.fillStyle = colourOf(model, look, item);
      const right = x(end[item]);
      // A gap separates neighbours where there is room for one.
      const barWidth = Math.max(right - left - (right - left > 5 ? 1 : 0), 0.7);
      const [top, bottom] = [lane[item], lane[item] + 1].map((at) => snapped(TOP + row * rowHeight + at * laneHeight));
      draw.fillRect(left, top, barWidth, Math.max(bottom - top - (laneHeight > 3 ? pixel : 0), pixel));
    }
  });
}

/** All SMs together: how many CTAs were at work. */
function paintStrip(draw, { total, width }, look) {
  const most = Math.max(...total, 1);
  const step = (width - LEFT - RIGHT) / total.length;
  const y = linear(0, most, STRIP, 6);
  draw.fillStyle = look.level(0.55);
  draw.beginPath();
  draw.moveTo(LEFT, STRIP);
  total.forEach((count, column) => {
    draw.lineTo(LEFT + column * step, y(count));
    draw.lineTo(LEFT + (column + 1) * step, y(count));
  });
  draw.lineTo(width - RIGHT, STRIP);
  draw.fill();
  draw.fillStyle = look.line;
  draw.fillRect(LEFT, STRIP, width - LEFT - RIGHT, 1);
  draw.fillStyle = look.quiet;
  draw.textAlign = "right";
  draw.textBaseline = "middle";
  draw.fillText(String(Math.round(most)), LEFT - 8, 10);
  draw.fillText("CTAs", LEFT - 8, STRIP - 9);
}

/** Of each SM from when it had done the last of its work. Nothing shines through: a colour means one thing. */
function paintIdle(draw, { picture, rowHeight, width }, look, x) {
  draw.fillStyle = look.idle;
  picture.done_ns.forEach((ns, row) => {
    const from = x(ns);
    draw.fillRect(from, TOP + row * rowHeight, width - RIGHT - from, rowHeight);
  });
}

function nameTail(draw, { picture, width }, look, x, bottom) {
  const from = x(picture.tail_ns);
  const to = width - RIGHT;
  if (to - from < 1) return;
  draw.strokeStyle = look.tail;
  draw.setLineDash([4, 3]);
  draw.beginPath();
  draw.moveTo(from, 0);
  draw.lineTo(from, bottom);
  draw.stroke();
  draw.setLineDash([]);
  const text = `tail ${shortNs(picture.end_ns - picture.tail_ns)}`;
  const textWidth = draw.measureText(text).width;
  const fits = textWidth + 12 < to - from;
  draw.fillStyle = look.ground;
  draw.fillRect(fits ? from + 3 : from - 9 - textWidth, STRIP - 19, textWidth + 6, 16);
  draw.fillStyle = look.ink;
  draw.textBaseline = "top";
  draw.textAlign = fits ? "left" : "right";
  draw.fillText(text, fits ? from + 6 : from - 6, STRIP - 17);
}

function paintRowNames(draw, { picture, rowHeight }, look) {
  const every = Math.ceil(LABEL_HEIGHT / rowHeight);
  draw.fillStyle = look.quiet;
  draw.textAlign = "right";
  draw.textBaseline = "middle";
  picture.sms.forEach((sm, row) => {
    if (row % every === 0) draw.fillText(smName(sm), LEFT - 8, TOP + (row + 0.5) * rowHeight);
  });
}

/** Between the strip and the rows, where it is in sight with the first of them. */
function paintAxis(draw, { picture, width }, look, x) {
  const [from, to] = [LEFT, width - RIGHT];
  const duration = picture.end_ns - picture.begin_ns;
  draw.strokeStyle = look.line;
  draw.fillStyle = look.quiet;
  draw.textBaseline = "top";
  const values = wholeTicks(0, duration, Math.floor((to - from) / TICK_WIDTH));
  const text = timeText(values);
  for (const ns of values) {
    const at = x(picture.begin_ns + ns);
    draw.beginPath();
    draw.moveTo(at, STRIP);
    draw.lineTo(at, STRIP + 5);
    draw.stroke();
    draw.textAlign = at > to - 30 ? "right" : at < from + 14 ? "left" : "center";
    draw.fillText(text(ns), at, STRIP + 8);
  }
}
