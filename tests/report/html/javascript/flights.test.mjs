import assert from "node:assert/strict";
import test from "node:test";
import { knownLaunch, load } from "./launches.mjs";

const { TimelineModel } = await load("timeline/model");
const { CTA, FLIGHT, SM, WARP, findRow, layoutRows } = await load("timeline/rows");
const { hitAt } = await load("timeline/hit");
const { flightFacts } = await load("timeline/facts");
const { paintRows } = await load("timeline/picture");
const { SHADES } = await load("timeline/paint");

const LOAD = 2;
// Of the first CTA: two lanes of copies and one of dots; its loads begin at 30 and 310.
const flights = [
  { lane: 0, start: 30, known: 200, end: 200, inFlight: 170, blocked: 90, depth: 1, bytes: 4096 },
  { lane: 0, start: 400, known: 410, end: 600, inFlight: 250, depth: 2, bytes: 4096 },
  { lane: 1, start: 310, known: 330, end: 500, inFlight: 190, depth: 2, bytes: 4096 },
  { lane: 2, work: 1, start: 100, known: 150, end: 150, inFlight: 50, blocked: 20, depth: 1 },
].map((flight) => ({ ctaRow: 0, scope: LOAD, ...flight }));
const modelOf = () => new TimelineModel(knownLaunch({ flights, works: ["copies", "dots"] }));
const open = { sms: new Set([0]), ctas: new Set([0, 2]) };

test("an open CTA with asynchronous work has a row for it below its warps", () => {
  const model = modelOf();
  const rows = layoutRows(model, open);
  const seen = Array.from({ length: rows.count }, (_, row) => [rows.kind[row], rows.ref[row]]);
  assert.deepEqual(seen, [
    [SM, 0],
    [CTA, 0],
    [WARP, 0],
    [WARP, 1],
    [FLIGHT, 0],
    [CTA, 2],
    [WARP, 4],
    [WARP, 5],
    [SM, 1],
  ]);
  const row = findRow(rows, FLIGHT, 0);
  assert.equal(rows.y[row + 1] - rows.y[row], 3 * 17 + 5);
});

test("a lane holds its groups, and what they cover", () => {
  const lanes = modelOf().flightLanes.of(0);
  assert.deepEqual(
    lanes.map(({ work, order }) => [work, [...order]]),
    [
      [0, [0, 1]],
      [0, [2]],
      [1, [3]],
    ],
  );
  assert.deepEqual([...lanes[0].possible], [0, 170, 370]);
  assert.deepEqual([...lanes[0].sure], [0, 170, 180]);
});

test("what is pointed at, and which scope asked for it", () => {
  const model = modelOf();
  const rows = layoutRows(model, open);
  const y = rows.y[findRow(rows, FLIGHT, 0)] + 8;
  assert.equal(hitAt(model, rows, 100, y, 1).flight, 0);
  assert.equal(hitAt(model, rows, 320, y + 17, 1).flight, 2);
  assert.equal(hitAt(model, rows, 320, y, 1).flight, undefined);
  assert.equal(hitAt(model, rows, 320, y + 3 * 17, 1).flight, undefined);
  assert.equal(model.scopeOfFlight(0), 2);
  assert.equal(model.scopeOfFlight(2), 3);
  assert.equal(model.scopeOfFlight(1), -1, "its record is not there");
});

test("what is known of a group", () => {
  const model = modelOf();
  const blocked = Object.fromEntries(flightFacts(model, 0));
  assert.equal(blocked["in flight"], "170 ns");
  assert.equal(blocked["its wait"], "blocked for 90 ns");
  assert.equal(blocked.bytes, "4\u202f096");
  const found = Object.fromEntries(flightFacts(model, 1));
  assert.equal(found["in flight"], "10 ns to 250 ns");
  assert.equal(found["its wait"], "already complete");
  assert.equal(found["issued by"], "load");
});

test("a group is painted in full while it was under way for sure, and pale behind that", () => {
  const model = modelOf();
  const rows = layoutRows(model, open);
  const [full, pale, ground] = [7, 5, 1];
  const tints = (tint) => new Uint32Array(4 * SHADES).fill(tint);
  const look = {
    ...{ ground, grid: ground, groupGround: ground, groupGrid: ground, rowLine: ground, groupLine: ground },
    ...{ scopeTints: tints(full), dimTints: tints(pale), stripTints: tints(ground), ctaTints: tints(ground) },
    ctaKinds: new Uint16Array(3),
  };
  const width = 1000;
  const picture = { pixels: new Uint32Array(width * 400), width, height: 400 };
  const view = { range: [0, 1000], top: 0, ratio: 1, gridAt: [], isLitTrack: () => true };
  paintRows(picture, model, rows, view, look);
  const line = (Math.round(rows.y[findRow(rows, FLIGHT, 0)]) + 9) * width;
  assert.deepEqual(
    [10, 100, 300, 405, 500, 700].map((ns) => picture.pixels[line + ns]),
    [ground, full, ground, full, pale, ground],
  );
});
