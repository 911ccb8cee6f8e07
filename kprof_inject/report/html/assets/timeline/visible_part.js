/** The part of the launch that is in sight, as files. */

import { csvBlob } from "#export/csv";
import { fileName } from "#export/download";
import { contains, perfettoBlob } from "#export/perfetto";
import { counted, smName } from "#format";
import { WARP, rowAt } from "#timeline/rows";

const HEAD = ["scope", "sm", "cta", "warp", "iteration", "start_ns", "duration_ns"];

/**
 * @param {import("#timeline/state").TimelineState} state
 * @param {() => Promise<Blob>} picture
 * @returns {{formats: import("#export/menu").Format[], note: string}} as the menu offers it
 */
export function visiblePart(state, picture) {
  const { model } = state;
  const tracks = tracksInSight(state);
  const count = tracks.reduce((sum, { scopes }) => sum + scopes.length, 0);
  const name = (extension) => fileName(model.meta, "timeline", extension);
  const formats = [{ text: "PNG", title: "the picture as shown", name: name("png"), blob: picture }];
  if (!count) return { formats, note: `Open a ${model.meta.cta_name} for the scopes of its ${model.meta.warp_name}s.` };
  formats.push(
    { text: "CSV", title: "a row for each scope in sight", name: name("csv"), blob: () => csvBlob([HEAD, ...csvRows(model, tracks)]) },
    { text: "Perfetto (.pftrace)", title: "the scopes in sight, for ui.perfetto.dev", name: name("pftrace"), blob: () => traceBlob(model, tracks) },
  );
  return { formats, note: `${counted(count, "scope")} of ${counted(tracks.length, model.meta.warp_name)} in sight` };
}

/** The warps whose rows are in sight, and of each the scopes that are in the shown range, or partly. */
function tracksInSight({ model, rows, top, height, range: [from, to] }) {
  const { start, end, trackStart } = model.scopes;
  const found = [];
  for (let row = Math.max(rowAt(rows, top), 0); row < rows.count && rows.y[row] < top + height; row++) {
    if (rows.kind[row] !== WARP) continue;
    const track = rows.ref[row];
    const scopes = [];
    for (let index = trackStart[track]; index < trackStart[track + 1]; index++) {
      if (start[index] <= to && end[index] >= from) scopes.push(index);
    }
    if (scopes.length) found.push({ track, scopes });
  }
  return found;
}

/** Times are since the start of the launch; durations are without what records cost, as in all tables. */
function* csvRows({ meta, scopes, isInstant }, tracks) {
  const known = (number) => (number < 0 ? "" : number);
  for (const index of tracks.flatMap((track) => track.scopes)) {
    const kind = scopes.scope[index];
    yield [
      meta.scopes[kind].name,
      known(scopes.sm[index]),
      scopes.cta[index],
      scopes.warp[index],
      known(scopes.iteration[index]),
      scopes.start[index],
      isInstant[kind] ? "" : scopes.duration[index],
    ];
  }
}

/** Times are since the start of the launch, unless a scope began before it, as the clock has it; no time may be negative. */
function traceBlob(model, tracks) {
  const { meta, scopes, ctas } = model;
  const kinds = meta.scopes.map(({ name, kind }) => ({ name, category: kind, isInstant: kind === "mark" }));
  const zero = tracks.reduce((first, track) => Math.min(first, scopes.start[track.scopes[0]]), 0);
  const threads = tracks.flatMap(({ track, scopes: indices }) => {
    const cta = model.ctaRowOf(track);
    const sm = ctas.sm[cta] < 0 ? "" : `${smName(ctas.sm[cta])} `;
    const partition = model.partitionOf(track) && `, ${model.partitionOf(track)}`;
    const name = `${sm}${meta.cta_name} ${ctas.cta[cta]} ${meta.warp_name} ${model.warpOf(track)}${partition}`;
    const slices = indices.map((index) => ({
      kind: kinds[scopes.scope[index]],
      lane: meta.scopes[scopes.scope[index]].lane,
      depth: scopes.depth[index],
      start: scopes.start[index] - zero,
      end: scopes.end[index] - zero,
      iteration: scopes.iteration[index],
    }));
    return nestedLanes(slices).map((lane, at) => ({ name: at ? `${name} (crossing ${at})` : name, slices: lane }));
  });
  return perfettoBlob(`${meta.kernel}, launch ${meta.launch}`, threads.filter(({ slices }) => slices.length));
}

/** Slices that cross are on different lanes: each on its kind's, or on the first one after that where it crosses none. */
function nestedLanes(slices) {
  const lanes = [];
  for (const slice of slices) {
    let at = slice.lane;
    while (lanes[at] && !fits(lanes[at], slice)) at++;
    while (lanes.length <= at) lanes.push({ slices: [], open: [] });
    lanes[at].slices.push(slice);
    if (!slice.kind.isInstant) lanes[at].open.push(slice);
  }
  return lanes.map((lane) => lane.slices);
}

function fits({ open }, slice) {
  if (slice.kind.isInstant) return true;
  while (open.length && open.at(-1).end <= slice.start && !contains(open.at(-1), slice)) open.pop();
  return !open.length || contains(open.at(-1), slice);
}
