import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";

const { codeLines, executedSentence, executedText, instructionsOf, machineCodeOf } = await load("views/machine_code");
const { stallLines, ttgirName } = await load("views/stall_bars");

const awaited = (line, operation, instructions) => ({ line, operation, instructions });
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
  lines: [LINE],
  listing: {
    texts: ["LDG.E R4, [R2]", "@!P0 IADD3 R1, R2, R3, RZ", "BRA `(.L_x_1)", "EXIT"],
    line_of: { type: "i4", base64: Buffer.from(Int32Array.from([7, 7, 0, 7]).buffer).toString("base64") },
    address_step: 16,
    blocks: [
      [0, 64],
      [1, 1_024],
      [3, null],
    ],
  },
};

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

const REASONS = [
  { name: "long_scoreboard", text: "data from global memory" },
  { name: "wait", text: "a fixed latency" },
  { name: "new_reason", text: "" },
];
const share = (reason, value, error = 0.001) => ({ reason, share: value, error });
const STALLED = {
  line: 7,
  share: 0.2,
  error: 0.01,
  shares: [share("long_scoreboard", 0.05), share("wait", 0.15)],
  awaited: [{ reason: "long_scoreboard", line: 4, source: ["/src/k.py", 3], operation: "LDG", share: 0.05 }],
};

test("a line's tooltip has its reasons, longest first, and whose results its warps wait for", () => {
  assert.deepEqual(stallLines(STALLED, REASONS, ttgirName), [
    "20.0 ± 1.0 % of all samples of warps:",
    "15.0 ± 0.1 % wait: a fixed latency",
    "5.0 ± 0.1 % long_scoreboard: data from global memory",
    "long_scoreboard: 5.0 % wait for the result of line 4 (LDG, k.py:3)",
  ]);
  const unknown = { ...STALLED, shares: [share("new_reason", 0.2)], awaited: [] };
  assert.equal(stallLines(unknown, REASONS, ttgirName)[1], "20.0 ± 0.1 % new_reason");
});
