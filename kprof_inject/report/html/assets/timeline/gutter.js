/** The names of the rows, and the scrollbar. */

import { counted, smName } from "#format";
import { GUTTER, RULER, SCROLLBAR, thumbOf } from "#timeline/layout";
import { CTA, FLIGHT, LEVEL, SM, WARP, rowAt } from "#timeline/rows";

const INDENT = 14;

/** @param {CanvasRenderingContext2D} canvas in CSS pixels */
export function drawGutter(canvas, state, look, size) {
  const { rows, top, model } = state;
  canvas.save();
  canvas.beginPath();
  canvas.rect(0, RULER, GUTTER, size.height - RULER);
  canvas.clip();
  canvas.fillStyle = look.css.raised;
  canvas.fillRect(0, RULER, GUTTER, size.height - RULER);
  canvas.textBaseline = "middle";
  for (let row = Math.max(rowAt(rows, top), 0); row < rows.count && rows.y[row] - top < size.height; row++) {
    const y = rows.y[row] - top + RULER;
    const height = rows.y[row + 1] - rows.y[row];
    NAME[rows.kind[row]](canvas, state, rows.ref[row], y, look);
    canvas.fillStyle = look.css.line;
    canvas.fillRect(0, y + height - 1, GUTTER, 1);
  }
  if (!rows.count) {
    canvas.fillStyle = look.css["quiet-ink"];
    canvas.fillText("no CTA ran", INDENT, RULER + 16);
  }
  canvas.restore();
  canvas.fillStyle = look.css.line;
  canvas.fillRect(GUTTER - 1, 0, 1, size.height);
  drawScrollbar(canvas, state, look, size, model);
}

const NAME = {
  [SM]: (canvas, { model, open }, group, y, look) => {
    const count = model.groups.start[group + 1] - model.groups.start[group];
    arrow(canvas, 9, y + 10, open.sms.has(group), look);
    text(canvas, smName(model.groups.sm[group]), 20, y + 10.5, look.css.ink, `600 12px ${look.font}`);
    right(canvas, counted(count, model.meta.cta_name), y + 10.5, look);
  },
  [CTA]: (canvas, { model, open }, cta, y, look) => {
    arrow(canvas, 9 + INDENT, y + 10, open.ctas.has(cta), look);
    text(canvas, `${model.meta.cta_name} ${model.ctas.cta[cta]}`, 20 + INDENT, y + 10.5, look.css.ink, `12px ${look.font}`);
  },
  [WARP]: (canvas, { model }, track, y, look) => {
    const name = `${model.meta.warp_name} ${model.warpOf(track)}`;
    text(canvas, name, 20 + 2 * INDENT, y + 10, look.css["quiet-ink"], `12px ${look.font}`);
    drawPartition(canvas, model, track, y, look);
    model.laneOfLevel.forEach((lane, level) => {
      const isFirst = lane > 0 && model.laneOfLevel[level - 1] !== lane;
      if (isFirst && level > 0) right(canvas, "crossing", y + 10 + level * LEVEL, look);
    });
  },
  [FLIGHT]: (canvas, { model }, cta, y, look) => {
    text(canvas, "in flight", 20 + 2 * INDENT, y + 10, look.css["quiet-ink"], `12px ${look.font}`);
    model.flightLanes.of(cta).forEach(({ work }, lane, lanes) => {
      if (lanes[lane - 1]?.work !== work) right(canvas, model.meta.flight_works[work], y + 10 + lane * LEVEL, look);
    });
  },
};

/** Draws the partition below the warp's name if there is room, else next to it. */
function drawPartition(canvas, model, track, y, look) {
  const lines = [model.partitionOf(track), model.functionOf(track)].filter(Boolean);
  if (model.levelCount === 1) {
    if (lines.length) right(canvas, lines[0], y + 10, look);
    return;
  }
  lines.slice(0, model.levelCount - 1).forEach((line, index) => {
    text(canvas, line, 20 + 2 * INDENT, y + 10 + (index + 1) * LEVEL, look.css["quiet-ink"], `11px ${look.font}`);
  });
}

function arrow(canvas, x, y, isOpen, look) {
  canvas.fillStyle = look.css["quiet-ink"];
  canvas.beginPath();
  if (isOpen) {
    canvas.moveTo(x - 4, y - 2.5);
    canvas.lineTo(x + 4, y - 2.5);
    canvas.lineTo(x, y + 3);
  } else {
    canvas.moveTo(x - 2.5, y - 4);
    canvas.lineTo(x + 3, y);
    canvas.lineTo(x - 2.5, y + 4);
  }
  canvas.fill();
}

function text(canvas, words, x, y, ink, font) {
  canvas.font = font;
  canvas.fillStyle = ink;
  canvas.textAlign = "left";
  canvas.fillText(words, x, y);
}

function right(canvas, words, y, look) {
  canvas.font = `11px ${look.font}`;
  canvas.fillStyle = look.css["quiet-ink"];
  canvas.textAlign = "right";
  canvas.fillText(words, GUTTER - 8, y);
  canvas.textAlign = "left";
}

function drawScrollbar(canvas, state, look, size) {
  const x = size.width - SCROLLBAR;
  canvas.fillStyle = look.css.raised;
  canvas.fillRect(x, 0, SCROLLBAR, size.height);
  const thumb = thumbOf(state);
  if (!thumb) return;
  canvas.fillStyle = look.css["quiet-ink"];
  canvas.globalAlpha = 0.55;
  canvas.beginPath();
  canvas.roundRect(x + 3, thumb.y + 1, SCROLLBAR - 6, thumb.length - 2, 3);
  canvas.fill();
  canvas.globalAlpha = 1;
}
