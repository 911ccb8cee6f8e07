/** Where another view sends the reader. */

import { CTA, WARP } from "#timeline/rows";

/**
 * @param {import("#timeline/state").TimelineState} state
 * @param {{cta?: number, warp?: number, startNs?: number, endNs?: number, scope?: number}} target numbers of a CTA
 *     and of a warp, times in ns since the start of the launch, and an index in the scope table; each may be left out
 */
export function goTo(state, { cta, warp, startNs, endNs, scope }) {
  const { model } = state;
  const row = cta === undefined ? -1 : model.ctas.cta.indexOf(cta);
  const place = warp === undefined ? -1 : model.warps.indexOf(warp);
  const track = row >= 0 && place >= 0 ? row * model.warps.length + place : -1;
  const index =
    scope === undefined ? -1 : firstScope(model.scopes, scope, { row, track, warps: model.warps.length, startNs });
  if (index >= 0) state.reveal(index);
  else if (track >= 0) state.revealRow(WARP, track);
  else if (row >= 0) state.revealRow(CTA, row);
  if (startNs !== undefined && endNs !== undefined) {
    const room = 0.05 * (endNs - startNs);
    state.show([startNs - room, endNs + room]);
  }
  if (index < 0 && scope !== undefined && state.kind !== scope) state.selectKind(scope);
}

function firstScope(scopes, kind, { row, track, warps, startNs }) {
  const [first, last] =
    track >= 0 ? [track, track] : row >= 0 ? [row * warps, (row + 1) * warps - 1] : [0, scopes.trackStart.length - 2];
  const end = scopes.trackStart[last + 1];
  for (let index = scopes.trackStart[first]; index < end; index++) {
    if (scopes.scope[index] === kind && (startNs === undefined || scopes.end[index] > startNs)) return index;
  }
  return -1;
}
