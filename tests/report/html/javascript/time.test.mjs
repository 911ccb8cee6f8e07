import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { clamped, panned, wholeRange, zoomed } = await load("timeline/model");
const { readHash } = await load("navigation");
const SPAN = 10_000;
const whole = wholeRange(SPAN);

test("zooming keeps the time under the pointer where it is", () => {
  const [from, to] = zoomed([2000, 6000], 0.5, 3000, SPAN);
  assert.deepEqual([from, to], [2500, 4500]);
});

test("zooming ends at the whole launch, and at a few nanoseconds", () => {
  assert.deepEqual(zoomed([2000, 6000], 1000, 3000, SPAN), whole);
  const [from, to] = zoomed([2000, 6000], 1e-9, 3000, SPAN);
  assert.ok(to - from >= 5 && to - from <= 20);
});

test("panning ends where the launch does", () => {
  assert.deepEqual(panned([2000, 4000], 0.5, SPAN), [3000, 5000]);
  const [from, to] = panned([2000, 4000], 99, SPAN);
  assert.equal(to - from, 2000);
  assert.equal(to, whole[1]);
});

test("a launch of no length can be shown", () => {
  assert.ok(clamped([0, 0], 0)[1] > clamped([0, 0], 0)[0]);
  assert.ok(wholeRange(0)[1] > wholeRange(0)[0]);
});

test("a wrong address is as none", () => {
  for (const hash of ["#launch=-1&from=9&to=3", "#launch=x&from=a", "#from=5", "#%%%", "#from=1&to=Infinity", "#ctas=x,-1"]) {
    assert.deepEqual(readHash(hash), { launch: null, tab: null, ctas: [], range: null });
  }
});
