import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./launches.mjs";
import { ofClass, ofTag } from "./fake_document.mjs";

const { codeCells, codeLines, executedSentence, executedText, instructionsOf, machineCodeOf, pipelineText } = await load("views/machine_code");
const { codeFacts } = await load("views/machine_code");

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

test("a cell has a line's instructions by pipeline, and how many a warp executes", () => {
  let chosen = 0;
  const [code, executed] = codeCells(LINE, 64, (line) => (chosen = line));
  assert.deepEqual([code.textContent, executed.textContent], ["12 ALU, 4 LSU", "256"]);
  code.listeners.click();
  assert.equal(chosen, 7);
  assert.deepEqual(codeCells(undefined, 64).map(({ tag, textContent }) => [tag, textContent]), [
    ["span", ""],
    ["span", ""],
  ]);
  assert.equal(pipelineText({ pipelines: [["FMA", 12_000]] }), "12\u202f000 FMA");
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

test("the panel leads to the lines whose results are awaited", () => {
  const went = [];
  const [, , waits] = codeFacts(LINE, 64, (line) => went.push(line));
  assert.equal(waits.textContent, "waits for 2 LDG of line 4, 1 MUFU");
  const links = ofTag(waits, "button");
  assert.equal(links.length, 1);
  links[0].listeners.click();
  assert.deepEqual(went, [4]);
  assert.equal(ofClass(waits, "awaited").length, 1);
  assert.equal(codeFacts({ ...LINE, awaited: [] }, 64).length, 2);
});
