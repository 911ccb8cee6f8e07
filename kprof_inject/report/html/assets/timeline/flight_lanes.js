/** Asynchronous work below the warps of its CTA, in lanes in which nothing overlaps. */

/**
 * @typedef {Object} FlightLane
 * @property {number} work index in `meta.flight_works`
 * @property {Uint32Array} order its groups, by start
 * @property {Float64Array} possible what all before the one at this place take, in ns, as long as they may have been
 *     under way @property {Float64Array} sure and as long as they were for sure; each has one item more than `order`
 */

export class FlightLanes {
  #first = new Map();
  #made = new Map();

  /** @param {import("#flights").Flights} flights */
  constructor(flights) {
    this.flights = flights;
    flights.ctaRow.forEach((cta, row) => {
      if (!this.#first.has(cta)) this.#first.set(cta, row);
    });
  }

  has(cta) {
    return this.#first.has(cta);
  }

  /** @param {number} cta by row @returns {FlightLane[]} made when they are first looked at */
  of(cta) {
    let lanes = this.#made.get(cta);
    if (!lanes) {
      lanes = this.#lanesOf(cta);
      this.#made.set(cta, lanes);
    }
    return lanes;
  }

  #lanesOf(cta) {
    const { flights } = this;
    const lanes = [];
    let begin = this.#first.get(cta) ?? flights.length;
    while (begin < flights.length && flights.ctaRow[begin] === cta) {
      let end = begin;
      while (flights.ctaRow[end] === cta && flights.lane[end] === flights.lane[begin]) end++;
      lanes.push(laneOf(flights, begin, end));
      begin = end;
    }
    return lanes;
  }
}

function laneOf({ work, start, known, end }, first, behind) {
  const order = Uint32Array.from({ length: behind - first }, (_, index) => first + index);
  const covered = (until) => {
    const sums = new Float64Array(order.length + 1);
    order.forEach((row, at) => (sums[at + 1] = sums[at] + until[row] - start[row]));
    return sums;
  };
  return { work: work[first], order, possible: covered(end), sure: covered(known) };
}
