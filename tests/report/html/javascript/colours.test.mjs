import assert from "node:assert/strict";
import test from "node:test";
import { readFile } from "node:fs/promises";
import { ASSETS, load } from "./launches.mjs";

const { contrast } = await load("theme");

const { STALL_COLORS, stallColor } = await load("views/line_evidence");

// WCAG 2.2, 1.4.3 and 1.4.11.
const LEGIBLE = 4.5;
const VISIBLE = 3;

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
    assert.ok(contrast(css.ink, css["cta-bar"]) >= LEGIBLE, "a CTA's bar");
  });
}

test("every reason's colour stands out in both schemes, and no two are the same", async () => {
  const css = await readFile(new URL("style.css", ASSETS), "utf8");
  const grounds = [...css.matchAll(/--ground: (#[0-9a-f]{6});/g)].map(([, color]) => color);
  assert.equal(grounds.length, 2);
  const colors = Object.values(STALL_COLORS);
  for (const color of colors) for (const ground of grounds) assert.ok(contrast(color, ground) >= VISIBLE, `${color} on ${ground}`);
  assert.equal(new Set(colors).size, colors.length);
});

test("a reason that this page does not know has a colour, too", () => {
  for (const name of ["new_reason", "constructor", "__proto__"]) assert.equal(stallColor(name), STALL_COLORS.misc);
});
