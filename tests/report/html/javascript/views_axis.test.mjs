import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { logarithmic, logTicks, ticks, timeText } = await load("views/charts");

test("ticks are round, within the range, and no more than there is room for", () => {
  assert.deepEqual(ticks(0, 100, 5), [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(ticks(3, 17, 3), [5, 10, 15]);
  assert.deepEqual(ticks(0, 0.7, 4).map((tick) => tick.toFixed(1)), ["0.0", "0.2", "0.4", "0.6"]);
  for (let most = 1; most < 20; most++) {
    for (const [least, greatest] of [[0, 1], [17, 1234567], [1e9, 1e9 + 37], [-5, 5]]) {
      const found = ticks(least, greatest, most);
      assert.ok(found.length <= most + 1, `${least} ${greatest} ${most}: ${found}`);
      assert.ok(found.every((tick) => tick >= least - 1e-6 && tick <= greatest + 1e-6));
    }
  }
});

test("a range of nothing has one tick, and room for none has one too", () => {
  assert.deepEqual(ticks(5, 5, 4), [5]);
  assert.deepEqual(ticks(5, 9, 0), [5]);
  assert.deepEqual(ticks(Number.NaN, 9, 3), []);
});

test("logarithmic ticks are powers of ten, with others between where there is room", () => {
  assert.deepEqual(logTicks(1, 100, 9), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(logTicks(1, 100, 5), [1, 3, 10, 30, 100]);
  assert.deepEqual(logTicks(1, 1e8, 5), [1, 1e2, 1e4, 1e6, 1e8]);
  assert.ok(logTicks(0, 1000, 9).length <= 9);
});

test("times of one axis have one unit, and are told apart", () => {
  const texts = (values) => values.map(timeText(values));
  assert.deepEqual(texts([0, 500, 1000, 1500]), ["0", "0.5 µs", "1.0 µs", "1.5 µs"]);
  assert.deepEqual(texts([0, 20, 40]), ["0", "20 ns", "40 ns"]);
  assert.deepEqual(texts([45_942, 45_943]), ["45.942 µs", "45.943 µs"]);
  assert.deepEqual(texts([2e6]), ["2 ms"]);
  assert.deepEqual(texts([0]), ["0"]);
  assert.deepEqual(texts([]), []);
});
