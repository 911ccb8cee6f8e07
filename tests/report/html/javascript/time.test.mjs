import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { around, clamped, panned, revealing, wholeRange, zoomed } = await load("timeline/range");
const { formatCount, formatNs, shortNs } = await load("format");
const { readHash, writeHash } = await load("navigation");
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

test("a scope is shown with room around it", () => {
  const [from, to] = around(1000, 2000, SPAN);
  assert.ok(from < 1000 && to > 2000 && to - from < 2000);
});

test("revealing moves no further than it must", () => {
  assert.deepEqual(revealing([0, 1000], 100, 400, SPAN), [0, 1000]);
  assert.deepEqual(revealing([0, 1000], 5000, 5200, SPAN), [4600, 5600]);
  const [from, to] = revealing([0, 1000], 2000, 9000, SPAN);
  assert.ok(from < 2000 && to > 9000);
});

test("revealing a scope too short to be seen zooms in", () => {
  const [from, to] = revealing(whole, 5000, 5010, SPAN);
  assert.ok(to - from < 2000 && from < 5000 && to > 5010);
});

test("times as a reader sees them", () => {
  assert.deepEqual([0, 999, 1234, 1_234_567, 2.5e9, null, -1500].map(formatNs), [
    "0 ns",
    "999 ns",
    "1.234 µs",
    "1.235 ms",
    "2.500 s",
    "–",
    "−1.500 µs",
  ]);
  assert.deepEqual([7, 999.7, 12_345].map(shortNs), ["7 ns", "1.00 µs", "12.3 µs"]);
  assert.equal(formatCount(1234567), "1\u202f234\u202f567");
});

test("an address brings back what it was made of", () => {
  const state = { launch: 2, tab: "source", ctas: [3, 79], range: [1200, 5600] };
  assert.deepEqual(readHash(writeHash(state, "timeline", 0)), state);
  assert.equal(writeHash({ launch: 3, tab: "timeline", ctas: [], range: null }, "timeline", 3), "");
  assert.equal(writeHash({ launch: 0, tab: "timeline", ctas: [], range: null }, "kernels", 3), "#launch=0&tab=timeline");
});

test("a wrong address is as none", () => {
  for (const hash of ["#launch=-1&from=9&to=3", "#launch=x&from=a", "#from=5", "#%%%", "#from=1&to=Infinity", "#ctas=x,-1"]) {
    assert.deepEqual(readHash(hash), { launch: null, tab: null, ctas: [], range: null });
  }
});
