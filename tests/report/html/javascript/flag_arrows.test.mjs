import assert from "node:assert/strict";
import test from "node:test";
import { knownLaunch, load } from "./launches.mjs";

const { TimelineModel } = await load("timeline/model");
const { TimelineState } = await load("timeline/state");
const { arrowsInSight } = await load("timeline/flag_arrows");
const { scopeFacts } = await load("timeline/facts");
const { CTA, SM, WARP, findRow } = await load("timeline/rows");

const packed = (values) => ({ type: "i4", base64: Buffer.from(Int32Array.from(values).buffer).toString("base64") });
/** Each is the wait, the change, the launch, the CTA and the name of the scope. */
const flagsOf = (rows) => ({
  launches: ["rank 1, device 1: other launch 3"],
  scopes: ["set", "add"],
  ...Object.fromEntries(["wait", "change", "launch", "cta", "scope"].map((name, at) => [name, packed(rows.map((row) => row[at]))])),
});
// CTA 0 has the scopes 0 to 7, CTA 1 those from 8 on, and CTA 2 those from 16 on; 4 of each warp.
const [CHANGE, WAIT, OTHER_WAIT, LONELY] = [11, 3, 19, 2];
const ROWS = [
  [LONELY, -1, 0, 37, 1],
  [WAIT, CHANGE, -1, 1, 0],
  [OTHER_WAIT, CHANGE, -1, 1, 0],
];

function stateOf(rows = ROWS, changes = {}) {
  const launch = knownLaunch();
  if (rows) launch.sections = { flags: flagsOf(rows) };
  const state = new TimelineState(new TimelineModel(launch), null, () => {});
  state.resize(1000);
  return Object.assign(state, changes);
}

test("a wait says who ended it, and a change whose waits it ends", () => {
  const { model } = stateOf();
  const facts = (scope) => Object.fromEntries(scopeFacts(model, scope));
  assert.equal(facts(WAIT)["ended by"], "CTA 1, set");
  assert.equal(facts(LONELY)["ended by"], "rank 1, device 1: other launch 3, CTA 37, add");
  assert.equal(facts(CHANGE)["ends waits of"], "CTA 0, 2");
  assert.equal(facts(0)["ended by"], undefined);
  assert.equal(facts(0)["ends waits of"], undefined);
  assert.equal(model.flagArrows.changeOf(WAIT), CHANGE);
  assert.equal(model.flagArrows.changeOf(LONELY), -1);
});

test("a change that ends many waits names some", () => {
  const { model } = stateOf([0, 1, 2, 3, 4, 5].map((wait) => [wait, CHANGE, -1, 1, 0]));
  assert.equal(Object.fromEntries(scopeFacts(model, CHANGE))["ends waits of"], "CTA 0, 0, 0, 0, 2 more");
});

test("an arrow leads from the end of the change to the end of the wait", () => {
  const state = stateOf();
  const { scopes } = state.model;
  state.openAll();
  const arrows = arrowsInSight(state, -1);
  assert.deepEqual(arrows.map(({ toNs, isChosen }) => [toNs, isChosen]), [
    [scopes.end[WAIT], false],
    [scopes.end[OTHER_WAIT], false],
  ]);
  const y = (scope) => state.rows.y[findRow(state.rows, WARP, scopes.track[scope])] + (state.model.levelOf(scope) + 0.5) * 17;
  assert.deepEqual([arrows[0].fromY, arrows[0].toY], [y(CHANGE), y(WAIT)]);
  // The change ends at 660, a little after the first wait, by the error of the SMs' clocks.
  assert.deepEqual(arrows.map(({ fromNs }) => fromNs), [650, 660]);
});

test("between closed warps there are only the arrows of the chosen scope", () => {
  const state = stateOf();
  state.closeAll();
  assert.deepEqual(arrowsInSight(state, -1), []);
  const [arrow, other] = arrowsInSight(state, CHANGE);
  assert.ok(arrow.isChosen && other.isChosen);
  const middle = (kind, ref) => {
    const row = findRow(state.rows, kind, ref);
    return (state.rows.y[row] + state.rows.y[row + 1]) / 2;
  };
  assert.deepEqual([arrow.fromY, arrow.toY], [middle(SM, 1), middle(SM, 0)]);
  state.open.sms.add(1);
  state.open.ctas.clear();
  state.toggle(SM, 0);
  state.selected = WAIT;
  const [only] = arrowsInSight(state, -1);
  assert.deepEqual([only.fromY, only.toY], [middle(CTA, 1), middle(CTA, 0)]);
});

test("what is out of sight has none", () => {
  const state = stateOf();
  state.openAll();
  state.range = [700, 900];
  assert.equal(arrowsInSight(state, -1).length, 1);
  state.range = [0, 600];
  assert.equal(arrowsInSight(state, -1).length, 0);
  state.range = [0, 3000];
  state.top = 10_000;
  assert.equal(arrowsInSight(state, -1).length, 0);
});

test("of more arrows than can be told apart, those of the chosen scope are left", () => {
  const state = stateOf(Array.from({ length: 402 }, (_, at) => [at ? WAIT : OTHER_WAIT, at ? CHANGE : 12, -1, 1, 0]));
  state.openAll();
  assert.equal(arrowsInSight(state, -1).length, 0);
  assert.deepEqual(arrowsInSight(state, OTHER_WAIT).map(({ isChosen }) => isChosen), [true]);
});

test("a launch without flags has none", () => {
  const state = stateOf(null);
  assert.deepEqual(arrowsInSight(state, 0), []);
  assert.equal(scopeFacts(state.model, WAIT).some(([label]) => label.startsWith("end")), false);
});
