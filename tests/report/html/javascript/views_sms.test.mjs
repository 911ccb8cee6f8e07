import assert from "node:assert/strict";
import test from "node:test";
import { launchOf, load } from "./launches.mjs";

const { areDistinguishable, residentsOf } = await load("views/heat_map_picture");

const cta = (number, sm, begin, end) => ({ cta: number, sm, begin, end });
const ctasOf = (...rows) => launchOf(rows, []).scopes.ctas;

test("CTAs that run at once on an SM are in lanes of their own", () => {
  const ctas = ctasOf(cta(0, 9, 0, 100), cta(1, 9, 10, 50), cta(2, 9, 50, 200), cta(3, 4, 5, 20), cta(4, 9, 100, 120));
  const made = residentsOf(ctas, [4, 9], 3);
  const lanes = Object.fromEntries([...made.cta].map((row, item) => [row, made.lane[item]]));
  assert.deepEqual(lanes, { 0: 0, 1: 1, 2: 1, 3: 0, 4: 0 });
  assert.equal(made.lanes, 2);
  assert.deepEqual(made.of.map((items) => items.map((item) => made.cta[item])), [[3], [0, 1, 2, 4]]);
});

test("waves count CTAs in the order of their begins, by number where they begin at once", () => {
  const ctas = ctasOf(cta(7, 0, 10, 20), cta(3, 1, 10, 20), cta(5, 0, 0, 9));
  const made = residentsOf(ctas, [0, 1], 2);
  assert.deepEqual([...made.cta].map((row) => ctas.cta[row]), [5, 3, 7]);
  assert.deepEqual([...made.wave], [0, 0, 1]);
  assert.equal(made.waves, 2);
});

test("an SM without a row, and a CTA that runs backwards, do no harm", () => {
  const made = residentsOf(ctasOf(cta(0, 77, 0, 9), cta(1, 0, 50, 20)), [0], 1);
  assert.deepEqual([...made.row], [-1, 0]);
  assert.deepEqual([...made.end], [9, 50]);
});

test("single CTAs are drawn where they can be told", () => {
  const made = (count) => residentsOf(ctasOf(...Array.from({ length: count }, (_, n) => cta(n, 0, n * 10, n * 10 + 9))), [0], 1);
  assert.equal(areDistinguishable(made(10), 100, 1000, 5), true);
  assert.equal(areDistinguishable(made(1000), 10_000, 1000, 5), false);
  assert.equal(areDistinguishable(made(10), 100, 1000, 1), false);
  assert.equal(areDistinguishable(made(0), 0, 1000, 5), false);
});
