import assert from "node:assert/strict";
import test from "node:test";
import { readFile } from "node:fs/promises";
import { ASSETS, load } from "./launches.mjs";

const { contrast } = await load("theme");

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
    assert.ok(contrast(css.ink, css["cta-bar"]) >= LEGIBLE, "a CTA's bar");
  });
}
