import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { lanesOf, rowOfLine, rowsOf, withoutLocations } = await load("views/ttgir");
const { partsOf, pythonParts, TTGIR } = await load("views/code_list");
const { findLine } = await load("views/code_list");
const { sourceRows, ttgirLinesBySource } = await load("views/source");
const { rowsInSight } = await load("views/code_list");

test("locations are taken out with all that is in their braces", () => {
  assert.equal(withoutLocations("%a = x.y %b : i32 loc(#loc7)"), "%a = x.y %b : i32");
  assert.equal(withoutLocations('f(%x: i32 loc("a)(\\""(#loc)), %y: i32 loc("y"(#loc))) {'), "f(%x: i32, %y: i32) {");
  assert.equal(withoutLocations("} loc(callsite(#loc1 at #loc2))"), "}");
  assert.equal(withoutLocations("no end loc(#loc7"), "no end loc(#loc7");
});

test("definitions of locations are folded where several stand together", () => {
  const lines = ["#a = b", "#loc1 = loc(unknown)", "#loc2 = loc(unknown)", "code", "#loc3 = loc(unknown)", "#loc4 = loc(unknown)"];
  assert.deepEqual(rowsOf(lines, true), [0, [1, 2], 3, [4, 5]]);
  assert.deepEqual(rowsOf(lines, false), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(rowsOf(["#loc1 = x", "code"], true), [0, 1]);
  assert.deepEqual(rowsOf([], true), []);
});

test("the row of a line is that which holds it", () => {
  const rows = [0, [1, 2], 3, [4, 9], 10];
  assert.deepEqual([0, 1, 2, 3, 4, 7, 9, 10].map((line) => rowOfLine(rows, line)), [0, 1, 1, 2, 3, 3, 3, 4]);
});

test("ranges that overlap are in lanes of their own, outer ones first", () => {
  const { lanes, starts } = lanesOf([[[0, 9]], [[2, 4], [6, 7]], [[2, 3]], []], 10);
  assert.deepEqual(lanes.map((lane) => [...lane]), [
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [-1, -1, 1, 1, 1, -1, 1, 1, -1, -1],
    [-1, -1, 2, 2, -1, -1, -1, -1, -1, -1],
  ]);
  assert.deepEqual(starts.get(2), [1, 2]);
});

test("there are no more lanes than can be seen", () => {
  const sites = Array.from({ length: 50 }, () => [[0, 3]]);
  const { lanes, starts } = lanesOf(sites, 4);
  assert.equal(lanes.length, 8);
  assert.equal(starts.get(0).length, 50);
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

test("a line that nobody reads is not taken apart", () => {
  const long = "for ".repeat(1000);
  assert.deepEqual(partsOf(long, TTGIR), [[null, long]]);
});

test("finding goes on from where it was, and round the end", () => {
  const lines = ["Load", "dot", "reload"];
  assert.deepEqual([findLine(lines, "load", -1, 1), findLine(lines, "load", 0, 1), findLine(lines, "load", 2, 1)], [0, 2, 0]);
  assert.equal(findLine(lines, "load", 0, -1), 2);
  assert.equal(findLine(lines, "store", -1, 1), -1);
  assert.equal(findLine([], "x", -1, 1), -1);
});

const plain = (lines) => lines.map((text) => [[null, text]]);

test("a source that was cut has gaps, and one without text has its lines with scopes", () => {
  const rows = sourceRows({ pieces: [[5, ["e", "f"]], [20, ["t"]]], timed: [] }, plain);
  assert.deepEqual(rows.map((row) => row.gap ?? row.number), [4, 5, 6, 13, 20]);
  const without = sourceRows({ pieces: [], timed: [{ line: 3 }, { line: 4 }] }, plain);
  assert.deepEqual(without.map((row) => row.gap ?? row.number), [2, 3, 4]);
});

test("lines of the TTGIR are found by their source", () => {
  const found = ttgirLinesBySource({ places: [["/a.py", 3], ["/b.py", 1]] }, [0, -1, 1, 0]);
  assert.deepEqual(found.get("/a.py:3"), [0, 3]);
  assert.deepEqual(found.get("/b.py:1"), [2]);
  assert.equal(ttgirLinesBySource(null, []).size, 0);
});

test("only rows in sight exist, however many there are", () => {
  assert.deepEqual(rowsInSight(0, 400, 50_000, 20, 5), [0, 25]);
  assert.deepEqual(rowsInSight(999_600, 400, 50_000, 20, 5), [49_975, 50_000]);
  assert.deepEqual(rowsInSight(0, 400, 3, 20, 5), [0, 3]);
  assert.deepEqual(rowsInSight(0, 0, 0, 20, 5), [0, 0]);
});
