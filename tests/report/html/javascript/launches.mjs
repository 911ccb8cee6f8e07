/** Launches made of rows, as `#data` gives them to the views. */

export const ASSETS = new URL("../../../../kprof_inject/report/html/assets/", import.meta.url);

/** A module of the page. */
export const load = (name) => import(new URL(`${name}.js`, ASSETS));

export const TABLE = [
  scopeKind("kernel", "func", { text: "def kernel(x):" }),
  scopeKind("loop[0]", "loop", { parent: 0 }),
  scopeKind("load", "marker", { parent: 1, text: "a = tl.load(p)" }),
  scopeKind("tick", "mark", { parent: 1 }),
];

export function scopeKind(name, kind, { parent = -1, lane = 0, text = "", source = "k.py:7" } = {}) {
  return { name, kind, parent, lane, text, place: source, source: source && `/src/${source}`, called_from: [], tags: [] };
}

/**
 * @param {{cta: number, sm: number, begin: number, end: number}[]} ctas
 * @param {{cta: number, warp: number, scope: number, start: number, end: number, depth?: number, iteration?: number}[]} rows
 *     in the order of CTA row, warp and start
 */
export function launchOf(ctas, rows, { table = TABLE, warps = [0, 1] } = {}) {
  const column = (name, missing = 0) => Float64Array.from(rows, (row) => row[name] ?? missing);
  const place = (row) => ctas.findIndex(({ cta }) => cta === row.cta) * warps.length + warps.indexOf(row.warp);
  const track = Uint32Array.from(rows, place);
  const trackStart = Uint32Array.from(
    { length: ctas.length * warps.length + 1 },
    (_, number) => track.filter((at) => at < number).length,
  );
  const duration = Float64Array.from(rows, ({ start, end, record = 0 }) => end - start - record);
  const scopes = {
    length: rows.length,
    start: column("start"),
    end: column("end"),
    duration,
    self: duration,
    scope: Uint16Array.from(column("scope")),
    depth: Uint16Array.from(column("depth")),
    flags: Uint8Array.from(column("flags")),
    iteration: Int32Array.from(column("iteration", -1)),
    cta: Int32Array.from(column("cta")),
    sm: Int32Array.from(rows, (row) => ctas.find(({ cta }) => cta === row.cta).sm),
    warp: Int16Array.from(column("warp")),
    track,
    trackStart,
    tags: [],
    ctas: {
      length: ctas.length,
      cta: Int32Array.from(ctas, ({ cta }) => cta),
      sm: Int32Array.from(ctas, ({ sm }) => sm),
      begin: Float64Array.from(ctas, ({ begin }) => begin),
      end: Float64Array.from(ctas, ({ end }) => end),
      copied: Float64Array.from(ctas, ({ end }) => end + 5),
    },
    incomplete: {
      length: 0,
      ctaRow: [],
    },
  };
  const meta = {
    scopes: table,
    warp_ids: warps,
    cta_name: "CTA",
    warp_name: "warp",
    partitions: [],
    shown_scopes: rows.length,
    flight_works: [],
  };
  return { meta, scopes, sections: {}, flights: { length: 0, ctaRow: [] } };
}

/** Two SMs; on the first two CTAs one after the other. Each warp runs kernel > loop > load, load. */
export function knownLaunch() {
  const ctas = [
    { cta: 0, sm: 3, begin: 0, end: 1000 },
    { cta: 1, sm: 5, begin: 10, end: 900 },
    { cta: 2, sm: 3, begin: 1000, end: 2000 },
  ];
  const rows = ctas.flatMap(({ cta, begin }) => [0, 1].flatMap((warp) => warpRows(cta, warp, begin)));
  return launchOf(ctas, rows);
}

function warpRows(cta, warp, begin) {
  const row = (scope, depth, start, end, iteration) => ({
    cta,
    warp,
    scope,
    depth,
    start: begin + start,
    end: begin + end,
    iteration,
  });
  return [row(0, 0, 10, 800), row(1, 1, 20, 700), row(2, 2, 30, 300, 0), row(2, 2, 310, 650, 1)];
}
