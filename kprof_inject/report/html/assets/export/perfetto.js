/**
 * Perfetto's trace format, as far as slices on threads need it: a `Trace` of `TracePacket`s. `export/perfetto.py` writes
 * whole captures, with the same fields.
 */

// Fields of `Trace`, `TracePacket`, `TrackDescriptor`, `ProcessDescriptor`, `ThreadDescriptor`, `TrackEvent` and
// `DebugAnnotation`, https://github.com/google/perfetto/tree/main/protos/perfetto/trace.
const PACKET = 1;
const [TIMESTAMP, SEQUENCE, TRACK_EVENT, TRACK_DESCRIPTOR] = [8, 10, 11, 60];
const [UUID, PROCESS, THREAD] = [1, 3, 4];
const [PROCESS_PID, PROCESS_NAME] = [1, 6];
const [THREAD_PID, THREAD_TID, THREAD_NAME] = [1, 2, 5];
const [ARG, TYPE, TRACK, CATEGORY, NAME] = [4, 9, 11, 22, 23];
const [ARG_INT, ARG_NAME] = [4, 10];

const [SLICE_BEGIN, SLICE_END, INSTANT] = [1, 2, 3];
const PID = 1;
const ON_SEQUENCE = numberField(SEQUENCE, 1);
const ITERATION = bytesField(ARG_NAME, textBytes("iteration"));

/**
 * @typedef {Object} Slice
 * @property {{name: string, category: string, isInstant: boolean}} kind the same object for all slices of a kind
 * @property {number} depth how many are around it @property {number} start @property {number} end in whole ns, not below 0
 * @property {number} iteration -1 if there is none
 *
 * @param {string} processName
 * @param {{name: string, slices: Slice[]}[]} threads whose slices never cross, in the order of their starts, outer before
 *     inner; none is empty
 * @returns {Blob}
 */
export function perfettoBlob(processName, threads) {
  const process = [...numberField(PROCESS_PID, PID), ...bytesField(PROCESS_NAME, textBytes(processName))];
  const trace = new Trace();
  trace.add(descriptor(PID, PROCESS, process));
  const kinds = new Map();
  threads.forEach(({ name, slices }, index) => {
    // The thread whose number is the process's is its main thread.
    const tid = PID + 1 + index;
    const thread = [...numberField(THREAD_PID, PID), ...numberField(THREAD_TID, tid), ...bytesField(THREAD_NAME, textBytes(name))];
    trace.add(descriptor(tid, THREAD, thread));
    addEvents(trace, slices, numberField(TRACK, tid), kinds);
  });
  return new Blob([trace.bytes]);
}

/** Bytes that grow: a page may show a million slices. */
class Trace {
  #room = new Uint8Array(1 << 16);
  #length = 0;

  get bytes() {
    return this.#room.subarray(0, this.#length);
  }

  /** @param {number[]} fields of a packet */
  add(fields) {
    const packet = bytesField(PACKET, fields.concat(ON_SEQUENCE));
    if (this.#length + packet.length > this.#room.length) {
      const larger = new Uint8Array(2 * (this.#length + packet.length));
      larger.set(this.bytes);
      this.#room = larger;
    }
    this.#room.set(packet, this.#length);
    this.#length += packet.length;
  }
}

/** Starts and ends as they follow each other: an end closes the slice of its thread that began last. */
function addEvents(trace, slices, track, kinds) {
  const end = numberField(TYPE, SLICE_END).concat(track);
  const open = [];
  const close = () => trace.add(event(open.pop().end, end));
  for (const slice of slices) {
    const { kind, start, iteration } = slice;
    while (!kind.isInstant && open.length && !contains(open.at(-1), slice)) close();
    if (!kinds.has(kind)) kinds.set(kind, startOf(kind));
    const arg = iteration < 0 ? [] : bytesField(ARG, numberField(ARG_INT, iteration).concat(ITERATION));
    trace.add(event(start, kinds.get(kind).concat(track, arg)));
    if (!kind.isInstant) open.push(slice);
  }
  while (open.length) close();
}

/** Whether a slice is in one that began no later, be it at its very end. */
export function contains(outer, inner) {
  return inner.end <= outer.end && inner.depth > outer.depth;
}

function startOf({ name, category, isInstant }) {
  const type = numberField(TYPE, isInstant ? INSTANT : SLICE_BEGIN);
  return [...type, ...bytesField(CATEGORY, textBytes(category)), ...bytesField(NAME, textBytes(name))];
}

function event(ns, fields) {
  return numberField(TIMESTAMP, ns).concat(bytesField(TRACK_EVENT, fields));
}

function descriptor(uuid, field, message) {
  return bytesField(TRACK_DESCRIPTOR, [...numberField(UUID, uuid), ...bytesField(field, message)]);
}

function textBytes(text) {
  return [...new TextEncoder().encode(text)];
}

function numberField(number, value) {
  return varint(number * 8).concat(varint(value));
}

function bytesField(number, bytes) {
  return varint(number * 8 + 2).concat(varint(bytes.length), bytes);
}

/** @param {number} value a whole number from 0 up; above 32 bits no bit operation holds it */
function varint(value) {
  const bytes = [];
  while (value > 0x7f) {
    bytes.push((value % 0x80) | 0x80);
    value = Math.floor(value / 0x80);
  }
  bytes.push(value);
  return bytes;
}
