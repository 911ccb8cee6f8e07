/**
 * Finds scopes. A query is words that a scope's name, source line or that line's text has, in any case, and `cta:12`,
 * `sm:3`, `warp:0-3` for where it ran. All of them must hold.
 */

const PLACE = /^(cta|sm|warp):(\d+)(?:-(\d+))?$/;

/** @typedef {{words: string[], places: {of: "cta" | "sm" | "warp", first: number, last: number}[]}} Query */

/** @param {string} text @returns {Query | null} null if there is nothing in it */
export function parseQuery(text) {
  const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!parts.length) return null;
  const query = { words: [], places: [] };
  for (const part of parts) {
    const [, of, first, last] = PLACE.exec(part) ?? [];
    if (of) query.places.push({ of, first: Number(first), last: Number(last ?? first) });
    else query.words.push(part);
  }
  return query;
}

export class Search {
  /** @param {import("#timeline/model").TimelineModel} model @param {Query} query */
  constructor(model, { words, places }) {
    this.#model = model;
    this.#places = places;
    /** Which kinds of scopes match, by index in the scope table: 0 if one does not. */
    this.kinds = Uint8Array.from(model.meta.scopes, (scope) =>
      Number(words.every((word) => textOf(scope).includes(word))),
    );
    this.#isAnyKind = this.kinds.every(Boolean);
    this.count = this.#countUntil(model.scopes.length);
  }

  #model;
  #places;
  #isAnyKind;

  matchesTrack = (track) => {
    const { ctas } = this.#model;
    const row = this.#model.ctaRowOf(track);
    const values = { cta: ctas.cta[row], sm: ctas.sm[row], warp: this.#model.warpOf(track) };
    return this.#places.every(({ of, first, last }) => values[of] >= first && values[of] <= last);
  };

  matches(index) {
    const { scopes } = this.#model;
    return this.kinds[scopes.scope[index]] !== 0 && this.matchesTrack(scopes.track[index]);
  }

  /**
   * Returns the next match after (`direction` 1) or before (-1) a scope, in the order of CTA, warp and start. It wraps
   * around at the ends.
   * @param {number} from a scope, or -1
   * @returns {number} -1 if there is none
   */
  next(from, direction) {
    const { length } = this.#model.scopes;
    if (!this.count) return -1;
    let index = from < 0 && direction < 0 ? length : from;
    do index = (index + direction + length) % length;
    while (!this.matches(index));
    return index;
  }

  /** Which match this is, from 1; 0 if it is none. */
  numberOf(index) {
    return index >= 0 && this.matches(index) ? this.#countUntil(index + 1) : 0;
  }

  /** The row of the first CTA that the query names, or -1: it may have no scopes. */
  get firstCta() {
    const { ctas, warps } = this.#model;
    if (!this.#places.length) return -1;
    for (let row = 0; row < ctas.length; row++) {
      if (warps.some((_, place) => this.matchesTrack(row * warps.length + place))) return row;
    }
    return -1;
  }

  #countUntil(end) {
    const { scopes } = this.#model;
    const tracks = scopes.trackStart.length - 1;
    let count = 0;
    for (let track = 0; track < tracks && scopes.trackStart[track] < end; track++) {
      if (this.#places.length && !this.matchesTrack(track)) continue;
      const stop = Math.min(scopes.trackStart[track + 1], end);
      if (this.#isAnyKind) count += stop - scopes.trackStart[track];
      else for (let index = scopes.trackStart[track]; index < stop; index++) count += this.kinds[scopes.scope[index]];
    }
    return count;
  }
}

function textOf({ name, path, text }) {
  return `${name}\n${path}\n${text}`.toLowerCase();
}
