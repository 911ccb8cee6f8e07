/** The page's data: launches, whose scopes and sections are unpacked when first shown. `columns.py` packs the columns. */

/**
 * @typedef {Object} Launch
 * @property {Object} meta the `Answer` on it (facts.py) and `launch_facts` of data.py, whose `scopes` have all that is known of a
 *     scope: its `ScopeSummary`, `ScopeInfo` and `ScopePicture`, and what `scopesOf` adds
 * @property {Object<string, Object>} sections what the views show, by name: `launch_sections` of data.py
 * @property {Scopes} scopes
 * @property {Flights} flights
 */

const textOfElement = (id) => document.getElementById(id).textContent;

export function readReport(textOf = textOfElement) {
  return inflatedJson(textOf("report"));
}

/** @returns {(index: number) => Promise<Launch>} the same launch each time; only the last one stays in memory */
export function launchReader(report, textOf = textOfElement) {
  let opened = { index: -1, launch: null };
  return (index) => {
    if (opened.index !== index) opened = { index, launch: readLaunch(report.sections[index], index, textOf) };
    return opened.launch;
  };
}

async function readLaunch(elements, index, textOf) {
  const read = Object.entries(elements).map(async ([name, id]) => [name, await inflatedJson(textOf(id))]);
  const { launch, scopes: table, ...shared } = Object.fromEntries(await Promise.all(read));
  const { facts, timed, ...own } = launch;
  const sections = { ...shared, ...own };
  sections.source.forEach((file, at) => (file.timed = timed[at]));
  const { answer, pictures, lanes, ...shown } = facts;
  const meta = { ...answer, ...shown, scopes: scopesOf(table, answer, pictures, lanes, sections) };
  const [scopes, flights] = await Promise.all([
    inflated(textOf(`launch-${index}-scopes`)),
    meta.flight_works.length ? inflated(textOf(`launch-${index}-flights`)) : null,
  ]);
  return { meta, sections, scopes: readScopes(scopes, meta), flights: readFlights(flights) };
}

/**
 * All that is known of each scope of the table. Beyond the records, it has its `name` on the page, its `colour` and
 * `lane`, its source as `place` without folders and the `text` of that line, the name of its self time, and as its
 * `site` the first and the last line of the TTGIR, from 0; null if the page does not have them.
 */
function scopesOf([infos, colours], answer, pictures, lanes, { source, ttgir }) {
  return infos.map((info, index) => {
    const figures = answer.scopes[index];
    const count = ttgir?.lines.length ?? 0;
    return {
      ...info,
      ...figures,
      ...pictures[index],
      name: figures.distinct_name,
      colour: colours[index],
      lane: lanes[index],
      place: placeName(info.source),
      text: sourceLine(source, info.source),
      self_name: figures.between_iterations_ns === null ? "self" : "between iterations",
      resolution_ns: answer.resolution_ns,
      site: info.lines && info.lines[0] <= count ? [info.lines[0] - 1, Math.min(info.lines[1], count) - 1] : null,
    };
  });
}

/** `file.py:12` of `/folder/file.py:12`. */
export function placeName(place) {
  return place.split("/").pop();
}

/** The path and the line of `path:line`. */
export function fileAndLine(place) {
  const at = place.lastIndexOf(":");
  return [place.slice(0, at), Number(place.slice(at + 1))];
}

function sourceLine(files, place) {
  const [path, line] = fileAndLine(place);
  const pieces = files.find((file) => file.path === path)?.pieces ?? [];
  const [first, lines] = pieces.findLast(([begin]) => begin <= line) ?? [0, []];
  return (lines[line - first] ?? "").trim();
}

const ARRAYS = {
  u1: (bytes) => bytes,
  i4: (bytes) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Int32Array.from({ length: bytes.byteLength / 4 }, (_, index) => view.getInt32(4 * index, true));
  },
};

/** Columns become arrays; `_column` of data.py makes them. */
function revived(_, value) {
  if (typeof value?.base64 === "string") return ARRAYS[value.type](fromBase64(value.base64));
  return Array.isArray(value?.steps) ? sum(value.steps) : value;
}

async function inflatedJson(text) {
  return JSON.parse(new TextDecoder().decode(await inflated(text)), revived);
}

/** @param {string} text what zlib made, in base64 @returns {Promise<Uint8Array>} */
async function inflated(text) {
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const ZIGZAG = 0x80;

class TableReader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
    this.rows = 0;
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
    const { bytes, rows } = this;
    const head = bytes[this.at++];
    const planes = head & ~ZIGZAG;
    target.fill(0, 0, rows);
    for (let plane = planes - 1; plane >= 0; plane--) {
      const begin = this.at + plane * rows;
      for (let row = 0; row < rows; row++) target[row] = target[row] * 256 + bytes[begin + row];
    }
    this.at += planes * rows;
    if (head & ZIGZAG) for (let row = 0; row < rows; row++) target[row] = target[row] % 2 ? -(target[row] + 1) / 2 : target[row] / 2;
    return target;
  }
}

function fromBase64(text) {
  return Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/**
 * @typedef {Object} Ctas each with an item for each CTA of the launch; times in ns since the start of the launch
 * @property {number} length
 * @property {Int32Array} cta its number @property {Int32Array} sm
 * @property {Float64Array} begin @property {Float64Array} end of its work
 * @property {Float64Array} copied when its records were copied
 *
 * @typedef {Object} Scopes each with an item for each scope that ran, ordered by CTA row, warp and start, outer before
 *     inner; times in ns since the start of the launch
 * @property {number} length
 * @property {Float64Array} start @property {Float64Array} end as recorded
 * @property {Float64Array} duration without what its records cost
 * @property {Float64Array} self of that, outside inner ones
 * @property {Uint16Array} scope index in `meta.scopes` @property {Uint16Array} depth @property {Uint8Array} flags
 * @property {Int32Array} iteration -1 if there is none @property {Int32Array} cta @property {Int32Array} sm
 * @property {Int16Array} warp
 * @property {Uint32Array} track `CTA row × meta.warp_ids.length + place of the warp in meta.warp_ids`
 * @property {Uint32Array} trackStart of each track its first scope; has one item more than there are tracks
 * @property {Float64Array[]} tags the values of each scope's tags, in the order in which `meta.scopes` names them;
 *     UNKNOWN_TAG where there is none
 * @property {Ctas} ctas
 * @property {Object<string, Float64Array>} incomplete what warps lack: ctaRow, warp, written, lost, openStarts,
 *     strayEnds, damaged, lostStart, lostEnd
 */

/** Values take 32 bits. */
export const UNKNOWN_TAG = 2 ** 40;

/**
 * @param {Uint8Array} bytes
 * @param {{shown_scopes: number, warp_ids: number[], scopes: {tags: Object[]}[]}} meta
 * @returns {Scopes}
 */
function readScopes(bytes, meta) {
  const reader = new TableReader(bytes);
  const ctas = readCtas(reader);
  const incomplete = readIncomplete(reader);
  const mostTags = Math.max(...meta.scopes.map(({ tags }) => tags.length), 0);
  const scopes = emptyScopes(meta.shown_scopes, ctas.length * meta.warp_ids.length, mostTags);
  const places = new Map(meta.warp_ids.map((warp, place) => [warp, place]));
  const last = { start: 0, iteration: new Float64Array(1 << 16) };
  let row = 0;
  while (reader.at < bytes.length) {
    readTracks(reader, scopes, ctas, places, row);
    row += readBlock(reader, scopes, row, last);
  }
  // Counts until here; what follows makes of them where each track begins.
  let begin = 0;
  for (let track = 0; track < scopes.trackStart.length; track++) {
    const count = scopes.trackStart[track];
    scopes.trackStart[track] = begin;
    begin += count;
  }
  return Object.assign(scopes, { ctas, incomplete });
}

function readCtas(reader) {
  const length = reader.beginTable();
  const cta = sum(reader.column(new Int32Array(length)));
  const sm = reader.column(new Int32Array(length));
  const begin = sum(reader.column());
  const end = reader.column();
  const copied = reader.column();
  for (let row = 0; row < length; row++) {
    end[row] += begin[row];
    copied[row] += end[row];
  }
  return { length, cta, sm, begin, end, copied };
}

function readIncomplete(reader) {
  const length = reader.beginTable();
  const [ctaRow, warp, written, lost, openStarts, strayEnds, damaged] = Array.from({ length: 7 }, () => reader.column());
  const lostStart = sum(reader.column());
  const lostEnd = reader.column().map((window, row) => lostStart[row] + window);
  return { length, ctaRow, warp, written, lost, openStarts, strayEnds, damaged, lostStart, lostEnd };
}

const TIMES = ["start", "end", "duration", "self"];
const NUMBERS = { scope: Uint16Array, depth: Uint16Array, flags: Uint8Array, iteration: Int32Array, cta: Int32Array, sm: Int32Array, warp: Int16Array, track: Uint32Array };

function emptyScopes(length, tracks, tags) {
  const times = TIMES.map((name) => [name, new Float64Array(length)]);
  const numbers = Object.entries(NUMBERS).map(([name, Type]) => [name, new Type(length)]);
  const values = Array.from({ length: tags }, () => new Float64Array(length));
  return { length, ...Object.fromEntries([...times, ...numbers]), trackStart: new Uint32Array(tracks + 1), tags: values };
}

function readTracks(reader, scopes, ctas, places, row) {
  const tracks = reader.beginTable();
  const [ctaRow, warp, count] = Array.from({ length: 3 }, () => reader.column());
  for (let index = 0, begin = row; index < tracks; begin += count[index], index++) {
    const end = begin + count[index];
    const track = ctaRow[index] * places.size + places.get(warp[index]);
    scopes.trackStart[track] = count[index];
    scopes.track.fill(track, begin, end);
    scopes.cta.fill(ctas.cta[ctaRow[index]], begin, end);
    scopes.sm.fill(ctas.sm[ctaRow[index]], begin, end);
    scopes.warp.fill(warp[index], begin, end);
  }
}

function readBlock(reader, scopes, row, last) {
  const rows = reader.beginTable();
  const end = row + rows;
  const names = ["scope", "depth", "flags", "iteration", ...TIMES];
  const columns = [...names.map((name) => scopes[name]), ...scopes.tags].map((column) => reader.column(column.subarray(row, end)));
  const [kind, , , iteration, start, elapsed, duration, self] = columns;
  last.iteration.fill(0);
  let at = 0;
  for (let index = 0; index < rows; index++) {
    at += start[index];
    start[index] = at;
    iteration[index] = last.iteration[kind[index]] += iteration[index];
    duration[index] = elapsed[index] - duration[index];
    self[index] = duration[index] - self[index];
    elapsed[index] += at;
  }
  return rows;
}

/** Differences become the values that they are between. */
function sum(column) {
  for (let row = 1; row < column.length; row++) column[row] += column[row - 1];
  return column;
}

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
function readFlights(bytes) {
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
