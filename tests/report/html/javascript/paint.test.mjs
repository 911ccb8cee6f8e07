import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { SHADES, firstEndingAfter, paintBoxes } = await load("timeline/paint");
const GROUND = 9;
// A tint says which kind it is of, and how pale: 107 is kind 0 in full.
const TINTS = Uint32Array.from({ length: 3 * SHADES }, (_, at) => 100 * (Math.floor(at / SHADES) + 1) + (at % SHADES));

function painted(spans, { from = 0, perNs = 1, width = 20, isInstant = null, kinds = spans.map(() => 0) } = {}) {
  const line = new Uint32Array(width).fill(GROUND);
  const wide = [];
  const covered = new Float64Array(spans.length + 1);
  spans.forEach(([start, end], at) => (covered[at + 1] = covered[at] + end - start));
  const boxes = {
    order: Uint32Array.from(spans, (_, index) => index),
    covered,
    start: Float64Array.from(spans, ([start]) => start),
    end: Float64Array.from(spans, ([, end]) => end),
    kind: Uint16Array.from(kinds),
    isInstant,
  };
  paintBoxes(line, boxes, { from, perNs, width, instantWidth: 2, wideFrom: 6 }, TINTS, GROUND, wide);
  return { line: [...line], wide, boxes };
}

test("a box fills its pixels but the last, which is its edge", () => {
  const { line } = painted([[3, 8]], { width: 10 });
  assert.deepEqual(line, [9, 9, 9, 107, 107, 107, 107, 9, 9, 9]);
});

test("small boxes have no edge, so that neighbours stay in sight", () => {
  assert.deepEqual(
    painted(
      [
        [0, 2],
        [2, 4],
      ],
      { width: 5, kinds: [0, 1] },
    ).line,
    [107, 107, 207, 207, 9],
  );
});

test("what sticks out at either side is cut off", () => {
  assert.deepEqual(
    painted(
      [
        [-50, 2],
        [4, 90],
      ],
      { width: 6 },
    ).line,
    [107, 107, 9, 9, 107, 107],
  );
});

test("what lies outside is not painted", () => {
  assert.ok(
    painted([
      [-9, -2],
      [25, 30],
    ]).line.every((pixel) => pixel === GROUND),
  );
});

test("boxes that share a pixel: the first one's colour, the paler the less they cover", () => {
  const full = painted(
    [
      [0, 5],
      [5, 10],
    ],
    { perNs: 0.1, width: 2, kinds: [1, 0] },
  ).line[0];
  const half = painted([[0, 5]], { perNs: 0.1, width: 2 }).line[0];
  const hardly = painted([[3, 3]], { perNs: 0.1, width: 2 }).line[0];
  assert.equal(full, 207);
  assert.ok(half < 107 && half > 100, String(half));
  assert.equal(hardly, 100);
});

test("an instant has a width of its own", () => {
  const { line } = painted([[3, 3]], { width: 8, isInstant: Uint8Array.of(1) });
  assert.deepEqual(line, [9, 9, 9, 107, 107, 9, 9, 9]);
});

test("wide boxes are told of, with their first pixel and the one behind their last", () => {
  assert.deepEqual(
    painted(
      [
        [1, 4],
        [5, 15],
        [16, 99],
      ],
      { width: 30 },
    ).wide,
    [1, 5, 15, 2, 16, 30],
  );
});

test("what has no tint is left out", () => {
  const line = Uint32Array.of(9, 9, 9);
  const boxes = {
    order: Uint32Array.of(0),
    covered: Float64Array.of(0, 2),
    start: [0],
    end: [2],
    kind: [0],
    isInstant: null,
  };
  paintBoxes(
    line,
    boxes,
    { from: 0, perNs: 1, width: 3, instantWidth: 1, wideFrom: 9 },
    new Uint32Array(SHADES),
    GROUND,
    [],
  );
  assert.deepEqual([...line], [9, 9, 9]);
});

test("the work goes with the picture's width, and not with the number of boxes", () => {
  const count = 1 << 20;
  const width = 100;
  let looks = 0;
  const order = new Proxy({}, { get: (_, name) => (name === "length" ? count : (looks++, Number(name))) });
  const start = new Proxy({}, { get: (_, name) => Number(name) });
  const end = new Proxy({}, { get: (_, name) => Number(name) + 0.5 });
  const covered = new Proxy({}, { get: (_, name) => Number(name) / 2 });
  const kind = new Proxy({}, { get: () => 0 });
  const line = new Uint32Array(width);
  const scale = { from: 0, perNs: width / count, width, instantWidth: 1, wideFrom: 9 };
  paintBoxes(line, { order, covered, start, end, kind, isInstant: null }, scale, TINTS, GROUND, []);
  assert.ok(
    line.every((pixel) => pixel === 104 || pixel === 103),
    String(line),
  );
  assert.ok(looks < width * 60, String(looks));
});

test("the first that ends after a time", () => {
  const end = Float64Array.from([2, 4, 4, 9]);
  const order = Uint32Array.from([0, 1, 2, 3]);
  const found = [0, 2, 3.9, 4, 8, 9, 50].map((ns) => firstEndingAfter(order, end, ns, 0));
  assert.deepEqual(found, [0, 1, 1, 3, 3, 4, 4]);
  assert.equal(firstEndingAfter(order, end, 0, 2), 2);
});
