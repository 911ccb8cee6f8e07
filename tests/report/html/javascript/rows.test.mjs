import assert from "node:assert/strict";
import test from "node:test";
import { TABLE, knownLaunch, launchOf, load, scopeKind } from "./launches.mjs";

const { TimelineModel } = await load("timeline/model");
const { lossBoxes } = await load("timeline/losses");
const { sharesIn } = await load("timeline/range_shares");
const { atWork } = await load("timeline/minimap");
const { CTA, SM, WARP, findRow, layoutRows, rowAt } = await load("timeline/rows");

const cta = (number, sm, begin, end) => ({ cta: number, sm, begin, end });

test("SMs ascend, and their CTAs go by begin", () => {
  const { groups } = new TimelineModel(knownLaunch());
  assert.deepEqual([...groups.sm], [3, 5]);
  assert.deepEqual([...groups.order], [0, 2, 1]);
  assert.deepEqual([...groups.groupOfCta], [0, 1, 0]);
});

test("CTAs that run at the same time are in lanes of their own", () => {
  const ctas = [cta(0, 1, 0, 100), cta(1, 1, 0, 50), cta(2, 1, 60, 200), cta(3, 1, 100, 150)];
  const { groups } = new TimelineModel(launchOf(ctas, []));
  assert.deepEqual(
    groups.lanes.map(({ order }) => [...order]),
    [
      [0, 3],
      [1, 2],
    ],
  );
});

test("closed SMs are a row each; an open one shows its CTAs, an open one of those its warps", () => {
  const model = new TimelineModel(knownLaunch());
  const rows = layoutRows(model, { sms: new Set([0]), ctas: new Set([2, 1]) });
  const seen = Array.from({ length: rows.count }, (_, row) => [rows.kind[row], rows.ref[row]]);
  assert.deepEqual(seen, [
    [SM, 0],
    [CTA, 0],
    [CTA, 2],
    [WARP, 4],
    [WARP, 5],
    [SM, 1],
  ]);
  assert.equal(findRow(rows, WARP, 5), 4);
  assert.equal(findRow(rows, WARP, 2), -1);
});

test("a row is found by its height", () => {
  const rows = layoutRows(new TimelineModel(knownLaunch()), { sms: new Set([0]), ctas: new Set() });
  for (let row = 0; row < rows.count; row++) {
    assert.equal(rowAt(rows, rows.y[row]), row);
    assert.equal(rowAt(rows, rows.y[row + 1] - 0.5), row);
  }
  assert.equal(rowAt(rows, -1), -1);
  assert.equal(rowAt(rows, rows.y[rows.count]), -1);
});

test("a warp's levels hold its scopes by start, and what they cover", () => {
  const model = new TimelineModel(knownLaunch());
  const levels = model.levels(1);
  assert.deepEqual(
    levels.map(({ order }) => [...order]),
    [[4], [5], [6, 7]],
  );
  assert.deepEqual([...levels[2].covered], [0, 270, 610]);
});

test("scopes of another lane have levels of their own, below the others", () => {
  const table = [...TABLE.slice(0, 2), scopeKind("wait", "marker", { lane: 1 })];
  const rows = [
    { cta: 0, warp: 0, scope: 0, depth: 0, start: 0, end: 90 },
    { cta: 0, warp: 0, scope: 1, depth: 1, start: 10, end: 60 },
    { cta: 0, warp: 0, scope: 2, depth: 2, start: 50, end: 80 },
  ];
  const model = new TimelineModel(launchOf([cta(0, 0, 0, 100)], rows, { table }));
  assert.deepEqual(model.laneOfLevel, [0, 0, 1]);
  assert.deepEqual(
    [0, 1, 2].map((index) => model.levelOf(index)),
    [0, 1, 2],
  );
  assert.deepEqual(
    model.levels(0).map(({ order }) => [...order]),
    [[0], [1], [2]],
  );
});

test("a launch without scopes or CTAs has rows all the same", () => {
  const model = new TimelineModel(launchOf([], []));
  assert.equal(layoutRows(model, { sms: new Set(), ctas: new Set() }).count, 0);
  assert.equal(new TimelineModel(launchOf([cta(0, 0, 0, 9)], [])).levelCount, 1);
});

test("how many CTAs are at work, on average over each column", () => {
  const { ctas } = knownLaunch().scopes;
  const counts = atWork(ctas, 2000, 4);
  assert.deepEqual(
    [...counts].map((count) => Math.round(count * 1000) / 1000),
    [1.98, 1.8, 1, 1],
  );
});

test("shares of a window are of the warps that are at work in it", () => {
  const rows = [
    { cta: 0, warp: 0, scope: 0, start: 0, end: 100 },
    { cta: 0, warp: 0, scope: 1, start: 40, end: 80 },
    { cta: 0, warp: 1, scope: 0, start: 0, end: 100 },
    { cta: 0, warp: 1, scope: 3, start: 50, end: 50 },
  ];
  const model = new TimelineModel(launchOf([cta(0, 1, 0, 100)], rows));
  assert.deepEqual(sharesIn(model, [0, 100]), [1, 0.2, 0, null]);
  assert.deepEqual(sharesIn(model, [60, 100]), [1, 0.25, 0, null]);
  assert.deepEqual(sharesIn(model, [200, 300]), [null, null, null, null]);
  model.meta.partitions.push({ scopes: [1], warps: 1 });
  assert.deepEqual(sharesIn(model, [0, 100]), [1, 0.4, 0, null]);
});

test("shares of a window are without what records take, as those of the whole launch", () => {
  const rows = [
    { cta: 0, warp: 0, scope: 0, start: 0, end: 100, record: 20 },
    { cta: 0, warp: 0, scope: 1, start: 40, end: 80, record: 20 },
  ];
  const model = new TimelineModel(launchOf([cta(0, 1, 0, 100)], rows));
  const rounded = (range) => sharesIn(model, range).map((share) => share && Math.round(share * 1000) / 1000);
  const whole = rounded([0, 100]);
  // Half of the scope within: 20 of 40 ns, and of its 20 ns of records 10.
  const half = rounded([60, 100]);
  assert.deepEqual([whole[0], whole[1]], [0.4, 0.1]);
  assert.deepEqual([half[0], half[1]], [0.4, 0.125]);
});

test("loss is seen in closed rows, too", () => {
  const lost = [
    { ctaRow: 0, warp: 0, lost: 4, lostStart: 10, lostEnd: 30 },
    { ctaRow: 0, warp: 1, lost: 4, lostStart: 20, lostEnd: 50 },
    { ctaRow: 1, warp: 0, lost: 0, lostStart: 0, lostEnd: 0 },
  ];
  const ctas = [cta(0, 1, 0, 100), cta(1, 1, 0, 50), cta(2, 2, 0, 50)];
  const model = new TimelineModel(launchOf(ctas, [], { lost }));
  const rows = layoutRows(model, { sms: new Set([0]), ctas: new Set([0]) });
  const windows = Array.from({ length: rows.count }, (_, row) => lossBoxes(model, rows, row).map(({ from, to }) => [from, to]));
  const kinds = Array.from(rows.kind);
  assert.deepEqual(windows[kinds.indexOf(SM)], [[10, 50]]);
  assert.deepEqual(windows[kinds.indexOf(CTA)], [[10, 50]]);
  assert.deepEqual(windows.filter((_, row) => kinds[row] === WARP), [[[10, 30]], [[20, 50]]]);
  assert.deepEqual(windows.at(-1), []);
  const [box] = lossBoxes(model, rows, kinds.indexOf(SM));
  assert.ok(box.y >= 0 && box.y + box.height <= rows.y[1] - rows.y[0]);
});
