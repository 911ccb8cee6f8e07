import assert from "node:assert/strict";
import test from "node:test";
import { readFile } from "node:fs/promises";
import { ASSETS, load } from "./launches.mjs";

const { contrast, inkOn } = await load("theme");
const { lit, pixel, tintsOf } = await load("timeline/palette");
const { SHADES } = await load("timeline/paint");

const LEGIBLE = 4.5;

async function properties(selector) {
  const css = await readFile(new URL("style.css", ASSETS), "utf8");
  const block = css.slice(css.indexOf(`${selector} {`)).split("}")[0];
  return Object.fromEntries(
    [...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name, value]),
  );
}

test("contrast, as WCAG has it", () => {
  assert.equal(contrast("#000000", "#ffffff"), 21);
  assert.equal(contrast("#777777", "#777777"), 1);
});

for (const selector of [":root", ':root[data-theme="dark"]']) {
  test(`texts can be read: ${selector}`, async () => {
    const css = await properties(selector);
    const pairs = [
      ["ink", "ground"],
      ["ink", "raised"],
      ["quiet-ink", "ground"],
      ["quiet-ink", "raised"],
      ["quiet-ink", "group-ground"],
      ["warn-ink", "warn-ground"],
      ["ink", "accent-ground"],
    ];
    for (const [ink, ground] of pairs) assert.ok(contrast(css[ink], css[ground]) >= LEGIBLE, `${ink} on ${ground}`);
    for (const bar of ["cta-bar", "cta-bar-other"])
      assert.ok(contrast(inkOn(css["cta-bar"]), css[bar]) >= LEGIBLE, bar);
  });
}

test("pixels are opaque, with red in the lowest byte", () => {
  assert.equal(pixel("#123456"), 0xff563412);
});

test("tints end at the colour itself, and only what is lit is bright", () => {
  const { bright, dim } = tintsOf(["#ff0000", "#00ff00"], "#ffffff");
  assert.equal(bright[SHADES - 1], pixel("#ff0000"));
  const some = lit(bright, dim, Uint8Array.of(0, 1));
  assert.equal(some[SHADES - 1], dim[0]);
  assert.equal(some[2 * SHADES - 1], pixel("#00ff00"));
});
