import assert from "node:assert/strict";
import test from "node:test";
import { knownLaunch, load } from "./launches.mjs";

const { TimelineModel } = await load("timeline/model");
const { TimelineState } = await load("timeline/state");
const { Search, parseQuery } = await load("timeline/search");
const { hitAt } = await load("timeline/hit");
const { goTo } = await load("timeline/goto");
const { kindFigures, quantile, rankText, scopeFacts } = await load("timeline/facts");
const { CTA, SM, WARP, findRow } = await load("timeline/rows");

const model = new TimelineModel(knownLaunch());
const LOAD = 2;

function stateOf(launch = knownLaunch()) {
  const state = new TimelineState(new TimelineModel(launch), null, () => {});
  state.resize(120);
  return state;
}

const found = (text) => new Search(model, parseQuery(text));

test("a query has words and places", () => {
  assert.deepEqual(parseQuery("  LOAD cta:12 warp:0-3 "), {
    words: ["load"],
    places: [
      { of: "cta", first: 12, last: 12 },
      { of: "warp", first: 0, last: 3 },
    ],
  });
  assert.equal(parseQuery("  "), null);
  assert.deepEqual(parseQuery("cta:x").words, ["cta:x"]);
});

test("words are sought in names, places in the source, and its lines", () => {
  assert.deepEqual([...found("tl.load").kinds], [0, 0, 1, 0]);
  assert.deepEqual([...found("k.py:7").kinds], [1, 1, 1, 1]);
  assert.deepEqual([...found("LOOP[0]").kinds], [0, 1, 0, 0]);
});

test("all words and places must hold", () => {
  assert.equal(found("load").count, 12);
  assert.equal(found("load warp:1").count, 6);
  assert.equal(found("load sm:3 cta:2 warp:1").count, 2);
  assert.equal(found("sm:5").count, 8);
  assert.equal(found("load loop").count, 0);
});

test("next and before go round", () => {
  const search = found("load cta:2 warp:1");
  assert.deepEqual([search.next(-1, 1), search.next(22, 1), search.next(23, 1)], [22, 23, 22]);
  assert.deepEqual([search.next(-1, -1), search.next(22, -1)], [23, 23]);
  assert.deepEqual([search.numberOf(23), search.numberOf(22), search.numberOf(0)], [2, 1, 0]);
  assert.equal(found("nothing").next(-1, 1), -1);
});

test("what is pointed at", () => {
  const state = stateOf();
  const { rows } = state;
  const warp = findRow(rows, WARP, 4);
  const y = rows.y[warp] + 2 * 17 + 8;
  assert.equal(hitAt(state.model, rows, 1100, y, 1).scope, 18);
  assert.equal(hitAt(state.model, rows, 1305, y, 1).scope, undefined);
  assert.equal(hitAt(state.model, rows, 1302, y, 1).scope, 18, "a little beside it");
  assert.equal(hitAt(state.model, rows, 500, rows.y[findRow(rows, CTA, 0)] + 8, 1).cta, 0);
  assert.equal(hitAt(state.model, rows, 1500, rows.y[findRow(rows, SM, 0)] + 8, 1).cta, 2);
  assert.equal(hitAt(state.model, rows, 1500, 1e6, 1), null);
});

test("a window of lost records is pointed at where no scope is", () => {
  const lost = [{ ctaRow: 0, warp: 0, written: 40, lost: 30, lostStart: 0, lostEnd: 25 }];
  const state = stateOf(knownLaunch({ lost }));
  const y = state.rows.y[findRow(state.rows, WARP, 0)] + 2 * 17 + 8;
  assert.equal(hitAt(state.model, state.rows, 5, y, 1).lost, 0);
  assert.equal(hitAt(state.model, state.rows, 29, y, 1).lost, undefined);
});

test("a small launch is open at first; closing and opening", () => {
  const state = stateOf();
  assert.equal(state.rows.count, 2 + 3 + 6);
  state.closeAll();
  assert.equal(state.rows.count, 2);
  state.toggle(SM, 0);
  state.toggle(CTA, 2);
  assert.equal(state.rows.count, 2 + 2 + 2);
  state.toggle(SM, 0);
  assert.equal(state.rows.count, 2);
  assert.ok(state.top >= 0);
});

test("choosing a scope makes its kind stand out, and a search outdoes it", () => {
  const state = stateOf();
  state.select(2);
  assert.deepEqual([...state.litKinds], [0, 0, 1, 0]);
  state.find("loop warp:1");
  assert.deepEqual([...state.litKinds], [0, 1, 0, 0]);
  assert.deepEqual([0, 1].map(state.isLitTrack), [false, true]);
  state.find("");
  state.select(-1);
  assert.equal(state.litKinds, null);
});

test("jumping opens what is closed, and shows the match", () => {
  const state = stateOf();
  state.closeAll();
  state.find("load cta:2");
  state.jump(1);
  assert.equal(state.selected, 18);
  const row = findRow(state.rows, WARP, 4);
  assert.ok(row > 0 && state.rows.y[row] >= state.top && state.rows.y[row + 1] <= state.top + state.height);
});

test("fit shows the chosen scope, and then the launch", () => {
  const state = stateOf();
  state.select(7);
  state.fit();
  assert.ok(
    state.range[0] < 310 && state.range[0] > 0 && state.range[1] > 650 && state.range[1] < 1000,
    String(state.range),
  );
  state.fit();
  assert.ok(state.isWhole);
});

test("another view sends the reader to a warp, a time and a scope", () => {
  const state = stateOf();
  state.closeAll();
  goTo(state, { cta: 2, warp: 1, startNs: 1000, endNs: 1400, scope: LOAD });
  assert.equal(state.selected, 22);
  assert.ok(findRow(state.rows, WARP, 5) > 0);
  assert.deepEqual(state.range.map(Math.round), [980, 1420]);
  goTo(state, { cta: 1 });
  assert.ok(findRow(state.rows, CTA, 1) > 0);
  goTo(state, { cta: 99, warp: 99 });
  goTo(state, { scope: 3 });
  assert.deepEqual([state.kind, state.selected], [3, -1], "a kind that never ran stands out alone");
});

test("figures of a kind", () => {
  const { sorted, facts } = kindFigures(model, LOAD);
  assert.equal(sorted.length, 12);
  assert.deepEqual(Object.fromEntries(facts), {
    count: "12",
    mean: "305 ns",
    min: "270 ns",
    p50: "305 ns",
    p99: "340 ns",
    max: "340 ns",
  });
  assert.equal(quantile(Float64Array.of(0, 10), 0.25), 2.5);
  assert.equal(rankText(sorted, 340), "longer than 50.0 % of them");
  assert.deepEqual(kindFigures(model, 3).facts, [["count", "0"]]);
});

test("facts of a scope", () => {
  const facts = Object.fromEntries(scopeFacts(model, 23));
  assert.deepEqual(facts, {
    duration: "340 ns",
    "as recorded": "340 ns, 680 cycles",
    "begins at": "1.310 µs",
    iteration: "1",
    where: "SM 3, CTA 2, warp 1",
  });
});
