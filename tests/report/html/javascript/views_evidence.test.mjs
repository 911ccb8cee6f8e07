import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { codeLines, executedSentence, executedText, instructionsOf, machineCodeOf, stallLines, ttgirName } = await load("views/line_evidence");
const { shownUnits, unitText } = await load("views/overview");
const { slopesByFile } = await load("views/source");

const awaited = (line, operation, instructions) => [{ line, operation }, instructions];
const LINE = {
  line: 7,
  pipelines: [
    ["ALU", 12],
    ["LSU", 4],
  ],
  awaited: [awaited(4, "LDG", 2), awaited(0, "MUFU", 1)],
  executed: 16_384,
  unknown: 0,
};
const CODE = {
  instructions: 4,
  warps: 64,
  lines: [
    { line: 7, pipelines: { LSU: 4, ALU: 12 }, awaited: [awaited(0, "MUFU", 1), awaited(4, "LDG", 2)] },
    { line: 9, pipelines: { ALU: 1 }, awaited: {} },
  ],
  executed: { 7: 16_384 },
  unknown: { 9: 1 },
  listing: {
    texts: ["LDG.E R4, [R2]", "@!P0 IADD3 R1, R2, R3, RZ", "BRA `(.L_x_1)", "EXIT"],
    line_of: Int32Array.from([7, 7, 0, 7]),
    address_step: 16,
    blocks: [
      [0, 64],
      [1, 1_024],
      [3, null],
    ],
  },
};

test("a line has its code, most first, and the executions of its instructions", () => {
  const { ofLine } = machineCodeOf(CODE);
  assert.deepEqual(ofLine.get(7), LINE);
  assert.deepEqual(ofLine.get(9), { line: 9, pipelines: [["ALU", 1]], awaited: [], executed: null, unknown: 1 });
});

test("executions are averages of a warp, sums of all warps, or lower bounds", () => {
  assert.equal(executedText({ ...LINE, executed: 96 }, 64), "1.5");
  assert.equal(executedText({ ...LINE, executed: 0 }, 64), "0");
  assert.equal(executedText(LINE, null), "16\u202f384");
  assert.equal(executedText({ ...LINE, unknown: 2 }, 64), "≥ 256");
  assert.equal(
    executedSentence({ ...LINE, unknown: 2 }, 64),
    "all warps together execute at least 16\u202f384 instructions, 256 by a warp on average; unknown for 2 of them",
  );
  assert.equal(executedSentence(LINE, null), "all warps together execute 16\u202f384 instructions");
});

test("nothing is shown of unknown executions", () => {
  for (const unknown of [{ executed: null, unknown: 16 }, { executed: 0, unknown: 2 }]) {
    assert.equal(executedText({ ...LINE, ...unknown }, 64), "");
    assert.equal(executedSentence({ ...LINE, ...unknown }, 64), "how often they are executed is unknown");
  }
});

test("a tooltip has whose results the instructions wait for", () => {
  assert.deepEqual(codeLines(LINE, 64), [
    "16 machine instructions: 12 ALU, 4 LSU",
    "all warps together execute 16\u202f384 instructions, 256 by a warp on average",
    "waits for 2 LDG of line 4, 1 MUFU",
  ]);
  const many = { ...LINE, awaited: [1, 2, 3, 4].map((line) => awaited(line, "LDS", 1)) };
  assert.ok(codeLines(many, 64)[2].endsWith("1 LDS of line 3, …"));
  assert.equal(codeLines({ ...LINE, awaited: [] }, 64).length, 2);
});

test("the instructions of a line are listed with addresses and executions", () => {
  assert.deepEqual(instructionsOf(machineCodeOf(CODE), 7), [
    { address: "0000", executed: "1", text: "LDG.E R4, [R2]" },
    { address: "0010", executed: "16", text: "@!P0 IADD3 R1, R2, R3, RZ" },
    { address: "0030", executed: "?", text: "EXIT" },
  ]);
  assert.deepEqual(instructionsOf(machineCodeOf(CODE), 0).map(({ executed }) => executed), ["16"]);
  const amd = { ...CODE, warps: null, listing: { ...CODE.listing, address_step: 1 } };
  assert.deepEqual(instructionsOf(machineCodeOf(amd), 0), [{ address: "2", executed: "1\u202f024", text: "BRA `(.L_x_1)" }]);
});

const MEANINGS = { long_scoreboard: "data from global memory", wait: "a fixed latency", new_reason: "" };
const share = (value, error = 0.001) => ({ value, error });
const STALLED = {
  line: 7,
  share: share(0.2, 0.01),
  shares: { long_scoreboard: share(0.05), wait: share(0.15) },
  awaited: [{ reason: "long_scoreboard", line: 4, source: ["/src/k.py", 3], operation: "LDG", share: 0.05 }],
};

test("a line's tooltip has its reasons, longest first, and whose results its warps wait for", () => {
  assert.deepEqual(stallLines(STALLED, MEANINGS, ttgirName), [
    "20.0 ± 1.0 % of all samples of warps:",
    "15.0 ± 0.1 % wait: a fixed latency",
    "5.0 ± 0.1 % long_scoreboard: data from global memory",
    "long_scoreboard: 5.0 % wait for the result of line 4 (LDG, k.py:3)",
  ]);
  const unknown = { ...STALLED, shares: { new_reason: share(0.2) }, awaited: [] };
  assert.equal(stallLines(unknown, MEANINGS, ttgirName)[1], "20.0 ± 0.1 % new_reason");
});

test("a unit has all figures in words", () => {
  const unit = (computed, code, measured) => unitText({ unit: "ALU", computed, code, measured }).split("\n");
  assert.deepEqual(unit(0.06, 0.25, 0.26), [
    "ALU",
    "at least 6.0 %, computed from TTGIR",
    "at least 25.0 %, from the machine code",
    "26.0 %, measured by hardware counters",
  ]);
  assert.deepEqual(unit(null, null, 0.13), ["ALU", "13.0 %, measured by hardware counters"]);
});

test("a unit that does nearly nothing is left out", () => {
  const units = [[0.06, 0.25, 0.26], [null, null, 0.0004], [0.0006, null, null], [0.3, null, 0.0001]];
  const shown = shownUnits(units.map(([computed, code, measured], unit) => ({ unit, computed, code, measured })));
  assert.deepEqual(shown.map(({ unit }) => unit), [0, 2]);
});

test("a line has the largest slope of its places, and a text on all of them", () => {
  const place = (name, source, value) => ({
    name,
    scope: { source },
    response: value === null ? null : { slope: { value } },
    slope_text: `${value}`,
    slack_text: "none",
  });
  const found = slopesByFile([place("a", "/src/k.py:3", 0.9), place("b", "/src/k.py:3", 0.95), place("c", "/src/k.py:4", null), place("d", "", 1)]);
  assert.deepEqual([...found.keys()], ["/src/k.py"]);
  assert.deepEqual([...found.get("/src/k.py")], [[3, { slope: 0.95, text: "a: 0.9; slack none\nb: 0.95; slack none" }]]);
});
