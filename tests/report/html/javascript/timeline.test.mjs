import assert from "node:assert/strict";
import test from "node:test";
import { TABLE, knownLaunch, launchOf, load, scopeKind } from "./launches.mjs";

const { TimelineModel, boxAt, firstEndingAfter } = await load("timeline/model");
const { traceOf } = await load("timeline/perfetto");
const { durationText } = await load("timeline/facts");

const model = new TimelineModel(knownLaunch());
const KERNEL = { ph: "X", name: "kernel", cat: "func" };

test("scopes of another lane have lines of their own, below the others", () => {
  const table = [...TABLE.slice(0, 2), scopeKind("wait", "marker", { lane: 1 })];
  const rows = [
    { cta: 0, warp: 0, scope: 0, depth: 0, start: 0, end: 90 },
    { cta: 0, warp: 0, scope: 1, depth: 1, start: 10, end: 60 },
    { cta: 0, warp: 0, scope: 2, depth: 2, start: 50, end: 80 },
  ];
  const crossing = new TimelineModel(launchOf([{ cta: 0, sm: 0, begin: 0, end: 100 }], rows, { table }));
  assert.deepEqual(crossing.rowsOf([0])[1].lines, [[0], [1], [2]]);
  const threads = traceOf(crossing).traceEvents.filter(({ name }) => name === "thread_name");
  assert.deepEqual(threads.map(({ args }) => args.name), ["warp 0", "warp 0 (crossing 1)"]);
});

test("words are sought in names, places in the source, and its lines", () => {
  assert.deepEqual([...model.kindsWith("tl.load")], [0, 0, 1, 0]);
  assert.deepEqual([...model.kindsWith(" K.PY:7 loop")], [0, 1, 0, 0]);
  assert.equal(model.kindsWith("  "), null);
  assert.deepEqual(model.matches([2], model.kindsWith("load")), [18, 19, 22, 23]);
});

test("what is pointed at is the box there, or a near one", () => {
  const columns = { start: [10, 50], end: [20, 60] };
  assert.deepEqual([5, 9, 15, 21, 30, 49, 99].map((ns) => boxAt([0, 1], columns, ns, 2)), [undefined, 0, 0, 0, undefined, 1, undefined]);
  assert.deepEqual([5, 20, 60].map((ns) => firstEndingAfter([0, 1], columns.end, ns)), [0, 1, 2]);
});

test("a trace has a process for each CTA, and no negative time", () => {
  const rows = [
    { cta: 7, warp: 1, scope: 0, start: -500, end: 1500, depth: 0 },
    { cta: 7, warp: 1, scope: 2, start: 0, end: 250, record: 30, depth: 1, iteration: 3 },
    { cta: 7, warp: 1, scope: 3, start: 300, end: 300, depth: 1 },
  ];
  const launch = launchOf([{ cta: 7, sm: 4, begin: 0, end: 2000 }], rows);
  const [process, thread, ...events] = traceOf(new TimelineModel(launch)).traceEvents;
  assert.deepEqual([process.args.name, thread.args.name], ["CTA 7, SM 4", "warp 1"]);
  assert.deepEqual(events[0], { ...KERNEL, pid: 1, tid: 2, ts: 0, dur: 2, args: { recorded_ns: 2000, duration_ns: 2000 } });
  assert.deepEqual([events[1].ts, events[1].args], [0.5, { iteration: 3, recorded_ns: 250, duration_ns: 220 }]);
  assert.deepEqual([events[2].ph, events[2].ts, events[2].args], ["i", 0.8, {}]);
});

test("a bar names its duration, and how long it is drawn if its records' cost is in that", () => {
  assert.equal(durationText(13_200, 14_300), "13.200 µs without the cost of its records; 14.300 µs drawn");
  assert.equal(durationText(590, 590), "590 ns");
});
