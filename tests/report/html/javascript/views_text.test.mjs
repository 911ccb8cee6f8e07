import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { lanesOf, rowsOf, withoutLocations } = await load("views/ttgir");
const { partsOf, pythonParts, TTGIR } = await load("views/code_list");
const { sourceRows } = await load("views/source");

test("locations are taken out with all that is in their braces", () => {
  assert.equal(withoutLocations("%a = x.y %b : i32 loc(#loc7)"), "%a = x.y %b : i32");
  assert.equal(withoutLocations('f(%x: i32 loc("a)(\\""(#loc)), %y: i32 loc("y"(#loc))) {'), "f(%x: i32, %y: i32) {");
  assert.equal(withoutLocations("} loc(callsite(#loc1 at #loc2))"), "}");
  assert.equal(withoutLocations("no end loc(#loc7"), "no end loc(#loc7");
  assert.deepEqual(rowsOf(["#a = b", "#loc1 = loc(unknown)", "#loc2 = loc(unknown)", "code"]), [0, 3]);
});

test("ranges that overlap are in lanes of their own, outer ones first", () => {
  const { lanes, starts } = lanesOf([[0, 9], [2, 4], [2, 3], null], 10);
  assert.deepEqual(lanes.map((lane) => [...lane]), [
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [-1, -1, 1, 1, 1, -1, -1, -1, -1, -1],
    [-1, -1, 2, 2, -1, -1, -1, -1, -1, -1],
  ]);
  assert.deepEqual(starts.get(2), [1, 2]);
});

const joined = (parts) => parts.map(([, text]) => text).join("");

test("a coloured line is still the same line", () => {
  const lines = ['%a = tt.load %p {x = "s\\"t"} : !tt.ptr<f16> // #c', "#blocked = #ttg.blocked<{order = [1, 0]}>", "µ ☃ \u0000 '", ""];
  for (const line of lines) assert.equal(joined(partsOf(line, TTGIR)), line);
  const python = ['x = f("a", \'b\')  # """ no string', '"""doc', "still # doc", 'end""" + 1', "r'''x''' if y else 'z", "@jit"];
  assert.deepEqual(pythonParts(python).map(joined), python);
});

test("strings of three quotes go on over lines", () => {
  const parts = pythonParts(['a = """one', "for # two", 'three""" + b', "# it's \"\"\" a comment", "for"]);
  assert.deepEqual(parts[1], [["string", "for # two"]]);
  assert.deepEqual(parts[2][0], ["string", 'three"""']);
  assert.deepEqual(parts[3], [["comment", "# it's \"\"\" a comment"]]);
  assert.deepEqual(parts[4], [["keyword", "for"]]);
});

const plain = (lines) => lines.map((text) => [[null, text]]);

test("a source that was cut has gaps, and one without text has its lines with scopes", () => {
  const rows = sourceRows({ pieces: [[5, ["e", "f"]], [20, ["t"]]], timed: [] }, plain);
  assert.deepEqual(rows.map((row) => row.gap ?? row.number), [4, 5, 6, 13, 20]);
  const without = sourceRows({ pieces: [], timed: [{ line: 3 }, { line: 4 }] }, plain);
  assert.deepEqual(without.map((row) => row.gap ?? row.number), [2, 3, 4]);
});
