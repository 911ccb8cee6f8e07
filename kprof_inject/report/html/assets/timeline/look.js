/** Everything about colours and names that a frame needs, worked out once for a theme and a highlight. */

import { inkOn, mixed } from "#theme";
import { printable } from "#dom";
import { lit, pixel, tintsOf } from "#timeline/palette";

/**
 * @param {import("#timeline/model").TimelineModel} model
 * @param {Object} theme `context.theme`
 */
export function lookOf(model, theme) {
  const css = Object.fromEntries(
    [
      "ground",
      "raised",
      "line",
      "ink",
      "quiet-ink",
      "accent",
      "row-line",
      "group-ground",
      "hatch",
      "selection",
      "match",
    ].map((name) => [name, theme.css(name)]),
  );
  const barColors = [theme.css("cta-bar"), theme.css("cta-bar-other")];
  const scopeColors = model.meta.scopes.map((_, index) => theme.scopeColor(index));
  return {
    css,
    font: theme.css("font"),
    ground: pixel(css.ground),
    groupGround: pixel(css["group-ground"]),
    grid: pixel(mixed(css.ground, css.line, 0.55)),
    groupGrid: pixel(mixed(css["group-ground"], css.line, 0.55)),
    rowLine: pixel(css["row-line"]),
    groupLine: pixel(css.line),
    quietInk: css["quiet-ink"],
    tints: tintsOf(scopeColors, css.ground),
    ctaTints: tintsOf(barColors, css["group-ground"]).bright,
    ctaInk: inkOn(barColors[0]),
    ctaGround: barColors[0],
    ctaKinds: alternating(model.groups),
    scopeInks: model.meta.scopes.map((_, index) => theme.scopeInk(index)),
    scopeNames: model.meta.scopes.map(({ name }) => printable(name)),
  };
}

/** The look with only those kinds of scopes bright for which `isLit` is not 0; null: all. */
export function highlighted(look, isLit) {
  const { bright, dim } = look.tints;
  return {
    ...look,
    scopeTints: isLit ? lit(bright, dim, isLit) : bright,
    dimTints: dim,
    // Small strips have room for highlighted scopes only.
    stripTints: isLit ? lit(bright, new Uint32Array(dim.length), isLit) : bright,
    isLitKind: (kind) => !isLit || isLit[kind] !== 0,
  };
}

/** Neighbours in a lane alternate, to be distinguishable. */
function alternating(groups) {
  const kinds = new Uint16Array(groups.groupOfCta.length);
  for (const { order } of groups.lanes) order.forEach((row, at) => (kinds[row] = at % 2));
  return kinds;
}
