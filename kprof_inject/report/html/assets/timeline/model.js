/** The timeline's data of a launch, in the order of drawing. */

import { FlagArrows } from "#timeline/flag_arrows";
import { FlightLanes } from "#timeline/flight_lanes";
import { lossByCta } from "#timeline/losses";
import { smGroups } from "#timeline/sms";

/**
 * @typedef {Object} Level a row of boxes that never overlap
 * @property {Uint32Array} order the scopes on it, by start
 * @property {Float64Array} covered what all before the one at this place take, in ns; has one item more than `order`
 */

export class TimelineModel {
  #levelsOfTrack = new Map();

  /** @param {import("#data").Launch} launch */
  constructor({ meta, scopes, flights, sections }) {
    this.meta = meta;
    this.scopes = scopes;
    this.ctas = scopes.ctas;
    this.flights = flights;
    this.flightLanes = new FlightLanes(flights);
    this.flagArrows = new FlagArrows(sections.flags);
    this.spanNs = meta.span_ns;
    this.warps = meta.warps;
    this.groups = smGroups(scopes.ctas);
    this.isInstant = Uint8Array.from(meta.scopes, ({ kind }) => Number(kind === "mark"));
    this.#countLevels();
    this.lostOfTrack = lostByTrack(scopes.incomplete, meta.warps);
    this.lossOfCta = lossByCta(scopes.incomplete);
  }

  // Scopes of a lane never cross, so deeper scopes are drawn lower; each lane has its own rows below the previous lane.
  #countLevels() {
    const { meta, scopes } = this;
    const lanes = Math.max(0, ...meta.scopes.map(({ lane }) => lane)) + 1;
    const laneOf = Uint16Array.from(meta.scopes, ({ lane }) => lane);
    const least = new Int32Array(lanes).fill(0x7fffffff);
    const most = new Int32Array(lanes).fill(-1);
    for (let index = 0; index < scopes.length; index++) {
      const lane = laneOf[scopes.scope[index]];
      const depth = scopes.depth[index];
      if (depth < least[lane]) least[lane] = depth;
      if (depth > most[lane]) most[lane] = depth;
    }
    this.levelCount = 0;
    /** By lane: a scope's level minus its depth. */
    const offset = new Int32Array(lanes);
    /** The lane of each level. */
    this.laneOfLevel = [];
    for (let lane = 0; lane < lanes; lane++) {
      if (most[lane] < 0) continue;
      offset[lane] = this.levelCount - least[lane];
      for (let depth = least[lane]; depth <= most[lane]; depth++) this.laneOfLevel.push(lane);
      this.levelCount = this.laneOfLevel.length;
    }
    this.levelCount = Math.max(this.levelCount, 1);
    this.levelOffset = Int32Array.from(meta.scopes, ({ lane }) => offset[lane]);
  }

  levelOf(index) {
    return this.scopes.depth[index] + this.levelOffset[this.scopes.scope[index]];
  }

  /** Returns the scope that issued a group of asynchronous work, or -1. */
  scopeOfFlight(row) {
    const { scopes, flights } = this;
    const track = flights.ctaRow[row] * this.warps.length + this.warps.indexOf(flights.warp[row]);
    for (let index = scopes.trackStart[track]; index < scopes.trackStart[track + 1]; index++) {
      if (scopes.scope[index] === flights.scope[row] && scopes.start[index] === flights.start[row]) return index;
    }
    return -1;
  }

  ctaRowOf(track) {
    return Math.floor(track / this.warps.length);
  }

  warpOf(track) {
    return this.warps[track % this.warps.length];
  }

  /** Returns the partition that a track's warp runs; empty if the kernel is not warp specialised. */
  partitionOf(track) {
    return this.meta.partition_of_warp[track % this.warps.length];
  }

  /** Returns the partition's function in the source; empty if unknown. */
  functionOf(track) {
    return this.meta.function_of_warp[track % this.warps.length];
  }

  /** @returns {Level[]} of one warp of a CTA; made when it is first looked at, for few of all warps ever are */
  levels(track) {
    let levels = this.#levelsOfTrack.get(track);
    if (!levels) {
      levels = this.#sortedLevels(track);
      this.#levelsOfTrack.set(track, levels);
    }
    return levels;
  }

  #sortedLevels(track) {
    const { scopes } = this;
    const [begin, end] = [scopes.trackStart[track], scopes.trackStart[track + 1]];
    const counts = new Uint32Array(this.levelCount);
    for (let index = begin; index < end; index++) counts[this.levelOf(index)]++;
    const levels = Array.from(counts, (count) => ({
      order: new Uint32Array(count),
      covered: new Float64Array(count + 1),
    }));
    counts.fill(0);
    for (let index = begin; index < end; index++) {
      const level = this.levelOf(index);
      const at = counts[level]++;
      levels[level].order[at] = index;
      levels[level].covered[at + 1] = levels[level].covered[at] + scopes.end[index] - scopes.start[index];
    }
    return levels;
  }
}

/** Of each track that lacks something, the place in `incomplete`. */
function lostByTrack(incomplete, warps) {
  const places = new Map(warps.map((warp, place) => [warp, place]));
  const found = new Map();
  for (let row = 0; row < incomplete.length; row++) {
    found.set(incomplete.ctaRow[row] * warps.length + places.get(incomplete.warp[row]), row);
  }
  return found;
}
