/** Labels in boxes that have room for them. */

import { shortNs } from "#format";
import { CTA, FLIGHT, SM, WARP } from "#timeline/rows";

const MIN_LETTERS = 3;
const PADDING = 4;
const FONT_SIZE = 11;
const MAX_LABELS = 1500;

export class Labels {
  #widths = new Map();
  #font = "";

  /**
   * @param {CanvasRenderingContext2D} canvas with its origin at the picture's
   * @param {import("#timeline/picture").Labelled[]} labelled
   */
  draw(canvas, model, labelled, view, look) {
    this.#use(canvas, `${FONT_SIZE * view.ratio}px ${look.font}`);
    canvas.textBaseline = "middle";
    let drawn = 0;
    for (const { kind, y, height, wide, isLit } of labelled) {
      if (height < FONT_SIZE * view.ratio) continue;
      for (let at = 0; at < wide.length && drawn < MAX_LABELS; at += 3, drawn++) {
        const [name, number, ink, ns] = TEXT[kind](model, wide[at], look, isLit);
        const room = wide[at + 2] - wide[at + 1] - 2 * PADDING * view.ratio;
        const text = this.#fitting(canvas, name, number, ns, room);
        if (!text) continue;
        const place = [wide[at + 1] + PADDING * view.ratio, y + height / 2 + 0.5 * view.ratio];
        if (isHatched(model, kind, wide[at])) this.#clear(canvas, text, place, view, look);
        canvas.fillStyle = ink;
        canvas.fillText(text, ...place);
      }
    }
  }

  /** No hatching goes through the letters. */
  #clear(canvas, text, place, view, look) {
    canvas.lineWidth = 4 * view.ratio;
    canvas.lineJoin = "round";
    canvas.strokeStyle = look.ctaGround;
    canvas.strokeText(text, ...place);
  }

  #use(canvas, font) {
    canvas.font = font;
    if (font === this.#font) return;
    this.#font = font;
    this.#widths.clear();
  }

  /** As much as there is room for: with the time it took, with its number, that alone, or the name's beginning. */
  #fitting(canvas, name, number, ns, room) {
    if (number < 0)
      return this.#named(canvas, name, this.#width(canvas, name), ns, room) || this.#cut(canvas, name, room);
    const digits = String(number).length * this.#width(canvas, "0");
    const width = this.#width(canvas, name) + this.#width(canvas, " ") + digits;
    // The number distinguishes it from its neighbours.
    return this.#named(canvas, `${name} ${number}`, width, ns, room) || (digits <= room ? String(number) : "");
  }

  #named(canvas, name, width, ns, room) {
    if (width > room) return "";
    return width + this.#width(canvas, "   000.0 µs") <= room ? `${name}   ${shortNs(ns)}` : name;
  }

  #cut(canvas, name, room) {
    let letters = Math.min(Math.floor((room / this.#width(canvas, name)) * name.length), name.length - 1);
    while (letters >= MIN_LETTERS && this.#width(canvas, `${name.slice(0, letters)}…`) > room) letters--;
    return letters >= MIN_LETTERS ? `${name.slice(0, letters)}…` : "";
  }

  #width(canvas, text) {
    let width = this.#widths.get(text);
    if (width === undefined) {
      width = canvas.measureText(text).width;
      this.#widths.set(text, width);
    }
    return width;
  }
}

function scopeText({ scopes }, index, look, isLit) {
  const kind = scopes.scope[index];
  const ink = isLit && look.isLitKind(kind) ? look.scopeInks[kind] : look.quietInk;
  return [look.scopeNames[kind], scopes.iteration[index], ink, scopes.duration[index]];
}

function flightText({ meta, flights }, row, look, isLit) {
  const kind = flights.scope[row];
  const ink = isLit && look.isLitKind(kind) ? look.scopeInks[kind] : look.quietInk;
  return [meta.flight_works[flights.work[row]], -1, ink, flights.inFlight[row]];
}

function isHatched({ lossOfCta }, kind, row) {
  return (kind === SM || kind === CTA) && lossOfCta.has(row);
}

function ctaText({ meta, ctas }, row, look) {
  return [meta.cta_name, ctas.cta[row], look.ctaInk, ctas.end[row] - ctas.begin[row]];
}

const TEXT = { [SM]: ctaText, [CTA]: ctaText, [WARP]: scopeText, [FLIGHT]: flightText };
