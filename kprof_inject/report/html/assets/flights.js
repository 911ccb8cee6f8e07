/** The asynchronous work of a launch as typed arrays; `scope_columns.py` packs them. */

import { TableReader } from "#codec";

/**
 * @typedef {Object} Flights each with an item for each group of asynchronous work, ordered by CTA row, lane and start;
 *     times in ns since the start of the launch
 * @property {number} length
 * @property {Float64Array} ctaRow @property {Float64Array} work index in `meta.flight_works`
 * @property {Float64Array} lane in its CTA @property {Float64Array} warp that issued it
 * @property {Uint16Array} scope that issued it @property {Uint16Array} waitScope that waited for it: indices in
 *     `meta.scopes`
 * @property {Float64Array} start
 * @property {Float64Array} known until when it was certainly in flight
 * @property {Float64Array} end until when it may have been, or its lane's next began
 * @property {Float64Array} inFlight the longest that it can have been in flight @property {Float64Array} blocked its wait, in ns
 * @property {Float64Array} depth @property {Float64Array} bytes
 */

/** @param {Uint8Array | null} bytes null: there is none @returns {Flights} */
export function readFlights(bytes) {
  const reader = new TableReader(bytes ?? new Uint8Array(4));
  const length = reader.beginTable();
  const [ctaRow, work, lane, warp] = Array.from({ length: 4 }, () => reader.column());
  const [scope, waitScope] = Array.from({ length: 2 }, () => reader.column(new Uint16Array(length)));
  const [start, known, end, inFlight, blocked, depth, bytesMoved] = Array.from({ length: 7 }, () => reader.column());
  for (let row = 0; row < length; row++) {
    if (row) start[row] += start[row - 1];
    known[row] += start[row];
    end[row] += known[row];
  }
  const times = { start, known, end, inFlight, blocked };
  return { length, ctaRow, work, lane, warp, scope, waitScope, ...times, depth, bytes: bytesMoved };
}
