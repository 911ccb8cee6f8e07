/** Draws the rows that are in sight. */

import { printable } from "#dom";
import { formatNs, shortNs, smName } from "#format";
import { inkOn } from "#theme";
import { firstEndingAfter, LEVEL } from "#timeline/model";
import { ticks, timeText } from "#views/charts";

export const GUTTER = 132;
export const RULER = 24;
const BAR = 15;
const TICK_ROOM = 110;
const LABEL_FROM = 22;
const INSTANT = 2;
const DIMMED = 0.14;
const UNSURE = 0.4;

/** The colours of the picture, read from the page's style sheet. */
export function lookOf(theme, scopes) {
  const names = ["ground", "raised", "line", "ink", "quiet-ink", "row-line", "group-ground", "cta-bar", "hatch", "selection"];
  const css = Object.fromEntries(names.map((name) => [name, theme.css(name)]));
  const colors = scopes.map(({ colour }) => colour);
  return { css, font: theme.css("font"), colors, inks: colors.map(inkOn), names: scopes.map(({ name }) => printable(name)) };
}

/**
 * @param {CanvasRenderingContext2D} pen in CSS pixels
 * @param {Object} view model, rows, range (ns since each CTA's begin), top (what is scrolled away), width, height,
 *     lit (by kind, or null), selected and hovered (scopes, or -1)
 */
export function draw(pen, view, look) {
  const { rows, top, width, height, range } = view;
  const plot = Math.max(width - GUTTER, 1);
  const marks = ticks(...range, Math.max(Math.floor(plot / TICK_ROOM), 1));
  const toX = (ns) => GUTTER + ((ns - range[0]) / (range[1] - range[0])) * plot;
  const job = { ...view, pen, look, toX, nsPerPixel: (range[1] - range[0]) / plot, hatching: hatchingOf(pen, look.css.hatch) };
  pen.fillStyle = look.css.ground;
  pen.fillRect(0, 0, width, height);
  pen.textBaseline = "middle";
  const inSight = rows.filter((row) => row.y + row.height > top && row.y < top + height);
  for (const row of inSight) drawGround(job, row, row.y - top + RULER);
  pen.fillStyle = look.css.line;
  for (const ns of marks) pen.fillRect(Math.round(toX(ns)), RULER, 1, height);
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, RULER, plot, height);
  pen.clip();
  for (const row of inSight) DRAW[row.kind](job, row, row.y - top + RULER);
  pen.restore();
  for (const row of inSight) drawName(job, row, row.y - top + RULER);
  drawRuler(job, marks);
}

function drawGround({ pen, look, width }, { kind, height }, y) {
  if (kind === "cta") {
    pen.fillStyle = look.css["group-ground"];
    pen.fillRect(0, y, width, height);
  }
  pen.fillStyle = kind === "cta" ? look.css.line : look.css["row-line"];
  pen.fillRect(0, y + height - 1, width, 1);
}

const DRAW = {
  cta: (job, { cta }, y) => {
    const { model, look } = job;
    const { begin, end } = model.ctas;
    const text = [`per ${model.meta.cta_name} ${formatNs(end[cta] - begin[cta])} with records, begins ${formatNs(begin[cta])} after the launch`];
    drawLine(job, [cta], { start: begin, end }, begin[cta], { y: y + 4, color: () => look.css["cta-bar"], ink: () => look.css.ink, text: () => text });
  },
  warp: (job, { cta, track, lines }, y) => {
    const { model, look, lit, pen, toX } = job;
    const { scopes } = model;
    const base = model.ctas.begin[cta];
    const style = {
      color: (index) => look.colors[scopes.scope[index]],
      ink: (index) => (isLit(job, index) ? look.inks[scopes.scope[index]] : look.css["quiet-ink"]),
      text: (index) => textsOf(look.names[scopes.scope[index]], scopes.iteration[index], scopes.duration[index]),
    };
    lines.forEach((line, level) => {
      const at = { ...style, y: y + 3 + level * LEVEL };
      drawLine(job, line, scopes, base, { ...at, alpha: lit ? DIMMED : 1 });
      // What stands out is drawn over what does not, however narrow it is.
      if (lit) drawLine(job, line.filter((index) => isLit(job, index)), scopes, base, at);
    });
    const lost = model.lostOfTrack.get(track);
    if (lost !== undefined) {
      const [from, to] = [scopes.incomplete.lostStart[lost], scopes.incomplete.lostEnd[lost]].map((ns) => toX(ns - base));
      pen.fillStyle = job.hatching;
      if (to > from) pen.fillRect(from, y + 2, Math.max(to - from, 1), model.levelCount * LEVEL);
    }
    for (const [index, thickness] of [[job.hovered, 1], [job.selected, 2]]) {
      if (index >= 0 && scopes.track[index] === track) outline(job, index, base, y, thickness);
    }
  },
  flight: (job, { cta, lines }, y) => {
    const { model, look } = job;
    const { flights, meta } = model;
    const base = model.ctas.begin[cta];
    const style = {
      color: (row) => look.colors[flights.scope[row]],
      ink: (row) => look.inks[flights.scope[row]],
      text: (row) => textsOf(meta.flight_works[flights.work[row]], -1, flights.inFlight[row]),
    };
    lines.forEach((line, lane) => {
      drawLine(job, line, flights, base, { ...style, y: y + 3 + lane * LEVEL, alpha: UNSURE, text: () => [] });
      drawLine(job, line, { start: flights.start, end: flights.known }, base, { ...style, y: y + 3 + lane * LEVEL });
    });
  },
};

function isLit({ lit, model }, index) {
  return !lit || lit[model.scopes.scope[index]] !== 0;
}

/** Boxes that never overlap. Those that share a pixel are drawn as the first of them, so the work goes with the width. */
function drawLine({ pen, range, toX, nsPerPixel, width, look, model }, line, { start, end }, base, { y, color, ink, text, alpha = 1 }) {
  const wide = [];
  pen.globalAlpha = alpha;
  let drawn = GUTTER;
  for (let at = firstEndingAfter(line, end, range[0] + base); at < line.length; ) {
    const box = line[at];
    const [left, right] = [Math.max(toX(start[box] - base), drawn), toX(end[box] - base)];
    if (left >= width) break;
    const size = Math.max(right - left, start[box] === end[box] ? INSTANT : 1);
    pen.fillStyle = color(box);
    pen.fillRect(left, y, size > 4 ? size - 1 : size, BAR);
    if (size >= LABEL_FROM) wide.push([box, left, Math.min(left + size, width)]);
    drawn = left + size;
    at = Math.max(at + 1, firstEndingAfter(line, end, base + range[0] + (drawn - GUTTER) * nsPerPixel, at + 1));
  }
  pen.globalAlpha = 1;
  pen.font = `11px ${look.font}`;
  for (const [box, left, right] of wide) {
    const fitting = text(box, model).find((words) => pen.measureText(words).width <= right - left - 8);
    pen.fillStyle = ink(box);
    if (fitting) pen.fillText(fitting, left + 4, y + BAR / 2 + 0.5);
  }
}

/** What a box may say, longest first: an iteration's number tells it from its neighbours, the beginning of a name from nothing. */
function textsOf(name, iteration, ns) {
  if (iteration >= 0) return [`${name} ${iteration}   ${shortNs(ns)}`, `${name} ${iteration}`, String(iteration)];
  return [`${name}   ${shortNs(ns)}`, name, ...[18, 12, 8, 5, 3].filter((letters) => letters < name.length).map((letters) => `${name.slice(0, letters)}…`)];
}

function outline({ pen, model, toX, look }, index, base, y, thickness) {
  const { start, end } = model.scopes;
  const left = Math.max(toX(start[index] - base), GUTTER - 4);
  const right = Math.max(toX(end[index] - base), left + 2);
  pen.strokeStyle = look.css.selection;
  pen.lineWidth = thickness;
  pen.strokeRect(left, y + 3 + model.levelOf(index) * LEVEL, right - left, BAR);
}

function hatchingOf(pen, color) {
  const tile = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const line = tile.getContext("2d");
  line.strokeStyle = color;
  line.globalAlpha = 0.75;
  for (const shift of [-8, 0, 8]) {
    line.moveTo(shift, 8);
    line.lineTo(shift + 8, 0);
  }
  line.stroke();
  return pen.createPattern(tile, "repeat");
}

/** The gutter, on what may be drawn below it. */
function drawName({ pen, look, model }, { kind, cta, track, lines, height }, y) {
  const { meta, ctas, flights } = model;
  pen.fillStyle = kind === "cta" ? look.css["group-ground"] : look.css.raised;
  pen.fillRect(0, y, GUTTER - 1, height - 1);
  pen.fillStyle = look.css.line;
  pen.fillRect(GUTTER - 1, y, 1, height);
  const write = (text, line, ink, font) => {
    pen.font = `${font} ${look.font}`;
    pen.fillStyle = ink;
    pen.fillText(text, kind === "cta" ? 10 : 22, y + 11 + line * LEVEL, GUTTER - 28);
  };
  if (kind === "cta") return write(`${meta.cta_name} ${ctas.cta[cta]}, ${smName(ctas.sm[cta])}`, 0, look.css.ink, "600 12px");
  if (kind === "flight") {
    lines.forEach((line, lane) => write(`${meta.flight_works[flights.work[line[0]]]} in flight`, lane, look.css["quiet-ink"], "11px"));
    return;
  }
  write(`${meta.warp_name} ${model.warps[track % model.warps.length]}`, 0, look.css["quiet-ink"], "12px");
  const partition = model.partitionOf(track).slice(0, model.levelCount - 1);
  partition.forEach((text, line) => write(text, line + 1, look.css["quiet-ink"], "11px"));
}

function drawRuler({ pen, look, toX, width, height }, marks) {
  pen.fillStyle = look.css.raised;
  pen.fillRect(0, 0, width, RULER);
  pen.fillStyle = look.css.line;
  pen.fillRect(0, RULER - 1, width, 1);
  pen.fillRect(GUTTER - 1, 0, 1, height);
  pen.font = `11px ${look.font}`;
  pen.fillStyle = look.css["quiet-ink"];
  pen.fillText("since CTA begin", 10, RULER / 2);
  const text = timeText(marks);
  for (const ns of marks) {
    const [x, words] = [toX(ns), text(ns).replace("-", "−")];
    const room = pen.measureText(words).width;
    pen.fillText(words, x + room + 8 < width ? x + 4 : x - room - 4, RULER / 2);
    pen.fillRect(Math.round(x), RULER - 7, 1, 6);
  }
}
