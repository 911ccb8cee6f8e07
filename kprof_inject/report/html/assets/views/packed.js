/** Columns of numbers in a section's JSON: `PackedColumn` of page_schema.py. */

import { fromBase64 } from "#codec";

const MAKERS = {
  u1: (bytes) => bytes,
  i4: (bytes) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Int32Array.from({ length: bytes.byteLength / 4 }, (_, index) => view.getInt32(4 * index, true));
  },
};

/** @param {{type: string, base64: string}} column @returns {Uint8Array | Int32Array} */
export function unpacked({ type, base64 }) {
  return MAKERS[type](fromBase64(base64));
}
