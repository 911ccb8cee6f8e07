/** Chosen CTAs as rows: for each CTA a bar, its warps, and its work in flight; and ranges of time. Nothing here draws. */

export const LEVEL = 17;
const HEADER = 24;
const GAP = 6;

/**
 * @typedef {Object} Row
 * @property {"cta" | "warp" | "flight"} kind
 * @property {number} cta its row in the launch's table of CTAs @property {number} [track] of a warp
 * @property {ArrayLike<number>[]} lines scopes (flights in a row of those) by start; those of a line never overlap
 * @property {number} y from the top of all rows @property {number} height in CSS pixels
 */

export class TimelineModel {
  #lines = new Map();

  /** @param {import("#data").Launch} launch */
  constructor({ meta, scopes, flights }) {
    Object.assign(this, { meta, scopes, flights, ctas: scopes.ctas, warps: meta.warp_ids });
    this.#countLevels();
    const { ctaRow, warp, length } = scopes.incomplete;
    /** By track the row in `incomplete` of a warp that lacks records. */
    this.lostOfTrack = new Map(Array.from({ length }, (_, row) => [this.trackOf(ctaRow[row], warp[row]), row]));
  }

  // Scopes of a lane never cross, so deeper scopes are drawn lower; each lane has its own lines below the previous lane.
  #countLevels() {
    const { meta, scopes } = this;
    const lanes = Math.max(0, ...meta.scopes.map(({ lane }) => lane)) + 1;
    const depths = Array.from({ length: lanes }, () => [Infinity, -1]);
    for (let index = 0; index < scopes.length; index++) {
      const found = depths[meta.scopes[scopes.scope[index]].lane];
      found[0] = Math.min(found[0], scopes.depth[index]);
      found[1] = Math.max(found[1], scopes.depth[index]);
    }
    this.levelCount = 0;
    const offsets = depths.map(([least, most]) => {
      if (most < 0) return 0;
      const offset = this.levelCount - least;
      this.levelCount += most - least + 1;
      return offset;
    });
    this.levelCount = Math.max(this.levelCount, 1);
    this.levelOffset = Int32Array.from(meta.scopes, ({ lane }) => offsets[lane]);
  }

  levelOf(index) {
    return this.scopes.depth[index] + this.levelOffset[this.scopes.scope[index]];
  }

  trackOf(cta, warp) {
    return cta * this.warps.length + this.warps.indexOf(warp);
  }

  ctaOf(track) {
    return Math.floor(track / this.warps.length);
  }

  /** The partition that a track's warp runs, and its function in the source, as far as they are known. */
  partitionOf(track) {
    const warp = this.warps[track % this.warps.length];
    const run = this.meta.partitions.filter(({ is_shared: isShared, warps }) => !isShared && warps.includes(warp));
    const joined = (field) => run.map((partition) => partition[field]).filter(Boolean).join(", ");
    return [joined("name"), joined("function")].filter(Boolean);
  }

  /** Returns whether the page has a CTA's scopes, or has nothing to show for it because all its records were lost. */
  has(cta) {
    const [first, behind] = [cta * this.warps.length, (cta + 1) * this.warps.length];
    const isLost = this.warps.some((_, place) => this.lostOfTrack.has(first + place));
    return cta >= 0 && cta < this.ctas.length && (this.scopes.trackStart[behind] > this.scopes.trackStart[first] || isLost);
  }

  /** The time from a CTA's begin to its end, or to the end of its last scope. */
  spanOf(cta) {
    const { scopes, ctas, warps } = this;
    let end = ctas.end[cta];
    for (let index = scopes.trackStart[cta * warps.length]; index < scopes.trackStart[(cta + 1) * warps.length]; index++) end = Math.max(end, scopes.end[index]);
    return end - ctas.begin[cta];
  }

  /** @param {number[]} ctas @returns {Row[]} */
  rowsOf(ctas) {
    const rows = [];
    let y = 0;
    const add = (row, height) => {
      rows.push({ ...row, y, height });
      y += height;
    };
    for (const cta of ctas) {
      add({ kind: "cta", cta, lines: [[cta]] }, HEADER);
      for (const warp of this.warps) {
        const track = this.trackOf(cta, warp);
        add({ kind: "warp", cta, track, lines: this.#linesOf(track) }, this.levelCount * LEVEL + GAP);
      }
      const lanes = this.#lanesOf(cta);
      if (lanes.length) add({ kind: "flight", cta, lines: lanes }, lanes.length * LEVEL + GAP);
    }
    return rows;
  }

  #linesOf(track) {
    if (!this.#lines.has(track)) {
      const lines = Array.from({ length: this.levelCount }, () => []);
      const { trackStart } = this.scopes;
      for (let index = trackStart[track]; index < trackStart[track + 1]; index++) lines[this.levelOf(index)].push(index);
      this.#lines.set(track, lines);
    }
    return this.#lines.get(track);
  }

  #lanesOf(cta) {
    const lanes = [];
    const { ctaRow, lane, length } = this.flights;
    for (let row = 0; row < length; row++) if (ctaRow[row] === cta) (lanes[lane[row]] ??= []).push(row);
    return lanes;
  }

  /** The scopes of kinds for which `lit` is not 0, in the order of CTA, warp and start. */
  matches(ctas, lit) {
    const { scopes, warps } = this;
    const found = [];
    for (const cta of ctas) {
      const behind = scopes.trackStart[(cta + 1) * warps.length];
      for (let index = scopes.trackStart[cta * warps.length]; index < behind; index++) if (lit[scopes.scope[index]]) found.push(index);
    }
    return found;
  }

  /** By kind, whether all words are in a scope's name, its source line or the text of that; null without words. */
  kindsWith(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    const textOf = ({ name, source, text: line }) => `${name}\n${source}\n${line}`.toLowerCase();
    return Uint8Array.from(this.meta.scopes, (scope) => Number(words.every((word) => textOf(scope).includes(word))));
  }
}

/** The first place in a line whose box ends after this time; the length of `line` if none does. */
export function firstEndingAfter(line, end, ns, from = 0) {
  let [low, high] = [from, line.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[line[middle]] <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The box of a line that is at this time, else the nearest one that is at most `reach` away; undefined if there is none. */
export function boxAt(line, { start, end }, ns, reach) {
  const at = firstEndingAfter(line, end, ns);
  if (at < line.length && start[line[at]] <= ns) return line[at];
  const after = at < line.length ? start[line[at]] - ns : Infinity;
  const before = at > 0 ? ns - end[line[at - 1]] : Infinity;
  if (Math.min(after, before) > reach) return undefined;
  return after < before ? line[at] : line[at - 1];
}

// Which time is shown: `[from, to]` in ns since the begin of each CTA.

const SHORTEST_NS = 10;
/** A scope that is shown in more than so many times its length is no more than a line. */
const MAX_OF_SCOPE = 150;

/** All of the longest CTA, with a little room at its ends. */
export function wholeRange(spanNs) {
  const span = Math.max(spanNs, SHORTEST_NS);
  return [-0.01 * span, 1.01 * span];
}

/** The range, made as long as can be shown and moved to where the CTA is. */
export function clamped([from, to], spanNs) {
  const whole = wholeRange(spanNs);
  const length = Math.min(Math.max(to - from, SHORTEST_NS), whole[1] - whole[0]);
  const begin = Math.min(Math.max((from + to - length) / 2, whole[0]), whole[1] - length);
  return [begin, begin + length];
}

/** `factor` times as long (below 1: closer), with what is at `atNs` staying where it is. */
export function zoomed([from, to], factor, atNs, spanNs) {
  const whole = wholeRange(spanNs);
  const length = Math.min(Math.max((to - from) * factor, SHORTEST_NS), whole[1] - whole[0]);
  const begin = atNs - ((atNs - from) / (to - from)) * length;
  return clamped([begin, begin + length], spanNs);
}

/** Later by so many of its lengths. */
export function panned([from, to], lengths, spanNs) {
  const by = lengths * (to - from);
  return clamped([from + by, to + by], spanNs);
}

/** Around a scope, with room on both sides. */
export function around(startNs, endNs, spanNs) {
  const room = Math.max((endNs - startNs) * 0.25, SHORTEST_NS / 2);
  return clamped([startNs - room, endNs + room], spanNs);
}

/** The range, moved and made shorter or longer only as far as it takes to see a scope. */
export function revealing([from, to], startNs, endNs, spanNs) {
  const duration = Math.max(endNs - startNs, 1);
  if (duration > to - from) return around(startNs, endNs, spanNs);
  const length = Math.min(to - from, duration * MAX_OF_SCOPE);
  if (length === to - from && startNs >= from && endNs <= to) return [from, to];
  const middle = (startNs + endNs) / 2;
  return clamped([middle - length / 2, middle + length / 2], spanNs);
}
