/** What ended each wait for a flag, and the arrows from there that are in sight. */

import { CTA, LEVEL, SM, WARP } from "#timeline/rows";
import { unpacked } from "#views/packed";

const MAX_NAMED = 4;
/** More cannot be told apart: then only those of the chosen scope and of the one at the pointer are drawn. */
const MAX_ARROWS = 400;
const NONE = { wait: [], change: [], launch: [], cta: [], scope: [] };

export class FlagArrows {
  #names;
  #ofWait = new Map();
  #ofChange = new Map();

  /** @param {Object | undefined} flags a `FlagArrows` of page_schema.py, if the launch has one */
  constructor(flags) {
    this.#names = { launches: flags?.launches ?? [], scopes: flags?.scopes ?? [] };
    for (const name of Object.keys(NONE)) this[name] = flags ? unpacked(flags[name]) : NONE[name];
    this.length = this.wait.length;
    for (let arrow = 0; arrow < this.length; arrow++) {
      this.#ofWait.set(this.wait[arrow], arrow);
      const change = this.change[arrow];
      if (change < 0) continue;
      if (!this.#ofChange.has(change)) this.#ofChange.set(change, []);
      this.#ofChange.get(change).push(arrow);
    }
  }

  /** Who ended a wait; empty if no other CTA did. @param {number} scope an index in the page's scopes */
  endedBy(scope, ctaName) {
    const arrow = this.#ofWait.get(scope);
    if (arrow === undefined) return "";
    const who = `${ctaName} ${this.cta[arrow]}, ${this.#names.scopes[this.scope[arrow]]}`;
    return this.launch[arrow] < 0 ? who : `${this.#names.launches[this.launch[arrow]]}, ${who}`;
  }

  /** The scope that ended a wait; -1 if it is not on the page. */
  changeOf(scope) {
    const arrow = this.#ofWait.get(scope);
    return arrow === undefined ? -1 : this.change[arrow];
  }

  /** The waits of this launch that a scope ended. */
  waitsOf(scope) {
    return (this.#ofChange.get(scope) ?? []).map((arrow) => this.wait[arrow]);
  }
}

/** @returns {[string, string][]} facts on who ended a wait, and whose waits a scope ended */
export function flagFacts({ meta, scopes, flagArrows }, index) {
  const facts = [];
  const by = flagArrows.endedBy(index, meta.cta_name);
  if (by) facts.push(["ended by", by]);
  const ctas = flagArrows.waitsOf(index).map((wait) => scopes.cta[wait]);
  if (ctas.length) {
    const more = ctas.length > MAX_NAMED ? `, ${ctas.length - MAX_NAMED} more` : "";
    facts.push(["ends waits of", `${meta.cta_name} ${ctas.slice(0, MAX_NAMED).join(", ")}${more}`]);
  }
  return facts;
}

/**
 * @typedef {Object} Arrow from the end of the scope that changed the flag to the end of the wait
 * @property {number} fromNs @property {number} fromY in CSS pixels from the top of the picture
 * @property {number} toNs @property {number} toY
 * @property {boolean} isChosen
 */

/**
 * The arrows between open warps, and those of chosen scopes, which may begin or end at a closed CTA or SM.
 *
 * @param {import("#timeline/state").TimelineState} state @param {number} hovered a scope, or -1
 * @returns {Arrow[]} the chosen ones last
 */
export function arrowsInSight(state, hovered) {
  const { model, range, height, selected } = state;
  const { flagArrows, scopes } = model;
  const [plain, chosen] = [[], []];
  if (!flagArrows.length) return plain;
  const places = placesOf(state);
  for (let arrow = 0; arrow < flagArrows.length; arrow++) {
    const [wait, change] = [flagArrows.wait[arrow], flagArrows.change[arrow]];
    if (change < 0) continue;
    const isChosen = [wait, change].some((scope) => scope >= 0 && (scope === selected || scope === hovered));
    const toNs = scopes.end[wait];
    const fromNs = Math.min(scopes.end[change], toNs);
    if (toNs < range[0] || fromNs > range[1]) continue;
    const [from, to] = [places(change, isChosen), places(wait, isChosen)];
    if (from === null || to === null) continue;
    if (Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
    (isChosen ? chosen : plain).push({ fromNs, fromY: from, toNs, toY: to, isChosen });
  }
  return plain.length > MAX_ARROWS ? chosen : [...plain, ...chosen];
}

/** A new layout has new rows, so each is indexed once, not for each frame. */
const INDICES = new WeakMap();

/** Where each row is, by its kind and `ref`. */
function indexOf(rows) {
  let index = INDICES.get(rows);
  if (!index) {
    index = new Map();
    for (let row = 0; row < rows.count; row++) index.set(4 * rows.ref[row] + rows.kind[row], row);
    INDICES.set(rows, index);
  }
  return index;
}

/** The height at which a scope is drawn: null if its warp's row is closed, or with `isAny` that of its CTA or SM. */
function placesOf({ model, rows, top }) {
  const index = indexOf(rows);
  const find = (kind, ref) => index.get(4 * ref + kind);
  const middle = (row) => (rows.y[row] + rows.y[row + 1]) / 2 - top;
  return (scope, isAny) => {
    const track = model.scopes.track[scope];
    const row = find(WARP, track);
    if (row !== undefined) return rows.y[row] - top + (model.levelOf(scope) + 0.5) * LEVEL;
    if (!isAny) return null;
    const cta = model.ctaRowOf(track);
    return middle(find(CTA, cta) ?? find(SM, model.groups.groupOfCta[cta]));
  };
}

const HEAD = 6;

/** @param {CanvasRenderingContext2D} canvas with its origin at the picture's @param {(ns: number) => number} toPixel */
export function drawArrows(canvas, arrows, look, ratio, toPixel) {
  for (const { fromNs, fromY, toNs, toY, isChosen } of arrows) {
    const [x0, y0, x1, y1] = [toPixel(fromNs), fromY * ratio, toPixel(toNs), toY * ratio];
    const length = Math.hypot(x1 - x0, y1 - y0);
    if (!length) continue;
    const [dx, dy] = [((x1 - x0) / length) * HEAD * ratio, ((y1 - y0) / length) * HEAD * ratio];
    canvas.globalAlpha = isChosen ? 1 : 0.6;
    canvas.strokeStyle = canvas.fillStyle = isChosen ? look.css.match : look.css.ink;
    canvas.lineWidth = (isChosen ? 2 : 1) * ratio;
    canvas.beginPath();
    canvas.moveTo(x0, y0);
    canvas.lineTo(x1 - dx, y1 - dy);
    canvas.stroke();
    canvas.beginPath();
    canvas.moveTo(x1, y1);
    canvas.lineTo(x1 - dx - dy / 2, y1 - dy + dx / 2);
    canvas.lineTo(x1 - dx + dy / 2, y1 - dy - dx / 2);
    canvas.fill();
  }
  canvas.globalAlpha = 1;
}
