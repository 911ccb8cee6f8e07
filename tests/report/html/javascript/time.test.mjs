import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { around, clamped, panned, revealing, wholeRange, zoomed } = await load("timeline/range");
const { roundStep, ticks } = await load("timeline/ticks");
const { formatCount, formatNs, shortNs } = await load("format");
const { readHash, writeHash } = await load("hash");
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
  assert.ok(to >= SPAN && to < 1.05 * SPAN, String(to));
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

test("steps of a ruler are round, and never below a nanosecond", () => {
  assert.deepEqual([0.02, 1, 1.1, 3, 70, 120, 1000].map(roundStep), [1, 1, 2, 5, 100, 200, 1000]);
});

test("a ruler's labels have one unit, and as many decimals as tell them apart", () => {
  assert.deepEqual(ticks([-100, 2100], 5).labels, ["0.0 µs", "0.5 µs", "1.0 µs", "1.5 µs", "2.0 µs"]);
  assert.deepEqual(ticks([1_000_000, 1_000_040], 4).labels.slice(0, 2), ["1.00000 ms", "1.00001 ms"]);
  assert.deepEqual(ticks([0, 60], 3).labels, ["0 ns", "20 ns", "40 ns", "60 ns"]);
  assert.deepEqual(ticks([-30, 5], 3).labels, ["−20 ns", "0 ns"]);
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
  const state = { launch: 2, tab: "source", range: [1200, 5600] };
  assert.deepEqual(readHash(writeHash(state, "timeline", 0)), state);
  assert.equal(writeHash({ launch: 3, tab: "timeline", range: null }, "timeline", 3), "");
  assert.equal(writeHash({ launch: 0, tab: "timeline", range: null }, "kernels", 3), "#launch=0&tab=timeline");
});

test("a wrong address is as none", () => {
  for (const hash of ["#launch=-1&from=9&to=3", "#launch=x&from=a", "#from=5", "#%%%", "#from=1&to=Infinity"]) {
    assert.deepEqual(readHash(hash), { launch: null, tab: null, range: null });
  }
});
