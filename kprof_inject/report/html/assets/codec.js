/** Reads the tables that `scope_columns.py` writes. */

const ZIGZAG = 0x80;

export class TableReader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
    this.rows = 0;
  }

  get isAtEnd() {
    return this.at >= this.bytes.length;
  }

  /** Begins the next table; returns how many rows it has. */
  beginTable() {
    const { bytes, at } = this;
    this.rows = bytes[at] + bytes[at + 1] * 2 ** 8 + bytes[at + 2] * 2 ** 16 + bytes[at + 3] * 2 ** 24;
    this.at += 4;
    return this.rows;
  }

  /**
   * The table's next column.
   * @param {{[index: number]: number}} [target] where to write it, from its beginning on; it must hold the rows.
   */
  column(target = new Float64Array(this.rows)) {
    const head = this.bytes[this.at++];
    const planes = head & ~ZIGZAG;
    const rows = this.rows;
    if (planes === 0) target.fill(0, 0, rows);
    else if (planes <= 3) this.#small(target, planes);
    else this.#large(target, planes);
    this.at += planes * rows;
    if (head & ZIGZAG) {
      for (let row = 0; row < rows; row++) target[row] = unzigzag(target[row]);
    }
    return target;
  }

  // Up to three planes fit into the whole numbers that bit operations work on.
  #small(target, planes) {
    const { bytes, at, rows } = this;
    for (let row = 0; row < rows; row++) {
      let value = bytes[at + row];
      if (planes > 1) value |= bytes[at + rows + row] << 8;
      if (planes > 2) value |= bytes[at + 2 * rows + row] << 16;
      target[row] = value;
    }
  }

  #large(target, planes) {
    const { bytes, at, rows } = this;
    for (let row = 0; row < rows; row++) {
      let value = 0;
      for (let plane = planes - 1; plane >= 0; plane--) value = value * 256 + bytes[at + plane * rows + row];
      target[row] = value;
    }
  }
}

function unzigzag(value) {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

/** @param {string} text base64, perhaps with white space around it */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let index = 0; index < raw.length; index++) bytes[index] = raw.charCodeAt(index);
  return bytes;
}

/** @param {Uint8Array} packed what zlib made @returns {Promise<Uint8Array>} */
export async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
