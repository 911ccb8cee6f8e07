/** Colours as the pixels of a canvas have them. */

import { channels, mixed } from "#theme";
import { SHADES } from "#timeline/paint";

const PALEST = 0.35;
const DIMMED = 0.14;

/**
 * @param {string} hex `#rrggbb`
 * @returns {number} a pixel, opaque; every machine that runs a browser is little-endian
 */
export function pixel(hex) {
  const [red, green, blue] = channels(hex);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * @param {string[]} colors
 * @param {string} ground their background
 * @returns {{bright: Uint32Array, dim: Uint32Array}} SHADES of each colour; all shades of a dim one are the same
 */
export function tintsOf(colors, ground) {
  const bright = new Uint32Array(colors.length * SHADES);
  const dim = new Uint32Array(colors.length * SHADES);
  colors.forEach((color, index) => {
    for (let shade = 0; shade < SHADES; shade++) {
      const share = PALEST + ((1 - PALEST) * shade) / (SHADES - 1);
      bright[index * SHADES + shade] = pixel(mixed(ground, color, share));
      dim[index * SHADES + shade] = pixel(mixed(ground, color, DIMMED));
    }
  });
  return { bright, dim };
}

/** The tints of those kinds for which `isLit` is not 0; all others are as in `other`. */
export function lit(bright, other, isLit) {
  return bright.map((color, at) => (isLit[Math.floor(at / SHADES)] ? color : other[at]));
}
