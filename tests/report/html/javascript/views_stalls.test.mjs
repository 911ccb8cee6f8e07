import assert from "node:assert/strict";
import test from "node:test";
import { readFile } from "node:fs/promises";
import { ASSETS, load } from "./launches.mjs";
import { ofClass, ofTag } from "./fake_document.mjs";

const { contrast } = await load("theme");
const { evidenceTag } = await load("masthead");
const { mostStalled, STALL_COLORS, stallBar, stallCell, stallColor, stallLines, ttgirName } = await load("views/stall_bars");
const { stallSection } = await load("views/overview");
const { unitSection } = await load("views/overview");
const { lineDetails } = await load("views/source");

// WCAG 2.2, 1.4.11, "Non-text Contrast".
const VISIBLE = 3;

const REASONS = [
  { name: "long_scoreboard", text: "data from global memory" },
  { name: "wait", text: "a fixed latency" },
  { name: "new_reason", text: "" },
];
const share = (reason, value, error = 0.001) => ({ reason, share: value, error });
const LINE = {
  line: 7,
  share: 0.2,
  error: 0.01,
  shares: [share("long_scoreboard", 0.05), share("wait", 0.15)],
  awaited: [{ reason: "long_scoreboard", line: 4, source: ["/src/k.py", 3], operation: "LDG", share: 0.05 }],
};
const STALLS = {
  samples: 12_000,
  reasons: REASONS,
  shares: [share("wait", 0.6), share("long_scoreboard", 0.4)],
  scopes: [{ scope: 1, share: 0.5, shares: [share("wait", 1)], longest: [share("wait", 1), share("long_scoreboard", 0.1)] }],
  elsewhere: 0,
};
const launchWith = (stalls) => ({ sections: { stalls, scopes: [{ name: "func" }, { name: "loop[0]" }] } });

test("every reason's colour stands out in both schemes, and no two are the same", async () => {
  const css = await readFile(new URL("style.css", ASSETS), "utf8");
  const grounds = [...css.matchAll(/--ground: (#[0-9a-f]{6});/g)].map(([, color]) => color);
  assert.equal(grounds.length, 2);
  const colors = Object.values(STALL_COLORS);
  for (const color of colors) for (const ground of grounds) assert.ok(contrast(color, ground) >= VISIBLE, `${color} on ${ground}`);
  assert.equal(new Set(colors).size, colors.length);
});

test("a reason that this page does not know has a colour, too", () => {
  for (const name of ["new_reason", "constructor", "__proto__"]) assert.equal(stallColor(name), STALL_COLORS.misc);
});

test("a line's bar is relative to the line with most samples", () => {
  assert.equal(mostStalled([{ share: 0.1 }, { share: 0.4 }]), 0.4);
  assert.equal(mostStalled([]), 0);
  const segments = ofClass(stallCell(LINE, 0.4, REASONS, ttgirName), "stall-segment");
  assert.deepEqual(segments.map(({ style }) => style.width), ["12.5%", "37.5%"]);
  assert.deepEqual(segments.map(({ style }) => style.background), [STALL_COLORS.long_scoreboard, STALL_COLORS.wait]);
  assert.equal(ofClass(stallCell(undefined, 0.4, REASONS, ttgirName), "stall-bar").length, 0);
  assert.equal(stallBar([share("wait", 0.1)], 0).children[0].style.width, "0%");
});

test("a line's tooltip has its reasons, longest first, and whose results its warps wait for", () => {
  assert.deepEqual(stallLines(LINE, REASONS, ttgirName), [
    "20.0 ± 1.0 % of all samples of warps:",
    "15.0 ± 0.1 % wait: a fixed latency",
    "5.0 ± 0.1 % long_scoreboard: data from global memory",
    "long_scoreboard: 5.0 % wait for the result of line 4 (LDG, k.py:3)",
  ]);
  const unknown = { ...LINE, shares: [share("new_reason", 0.2)], awaited: [] };
  assert.equal(stallLines(unknown, REASONS, ttgirName)[1], "20.0 ± 0.1 % new_reason");
});

test("the overview shows the launch's reasons, and what each scope is stalled on", () => {
  const [section] = stallSection(launchWith(STALLS));
  const [whole, ofScope] = ofClass(section, "stall-bar");
  assert.deepEqual(whole.children.map(({ style }) => style.width), ["60%", "40%"]);
  assert.deepEqual(ofScope.children.map(({ style }) => style.width), ["100%"]);
  assert.deepEqual(ofClass(section, "stall-item").map(({ textContent }) => textContent), [
    "waita fixed latency60.0 ± 0.1 %",
    "long_scoreboarddata from global memory40.0 ± 0.1 %",
  ]);
  const [row] = ofTag(ofTag(section, "tbody")[0], "tr");
  assert.ok(row.textContent.startsWith("loop[0]50.0 %wait 100.0"));
});

test("without samples the overview says nothing of them", () => {
  assert.deepEqual(stallSection(launchWith(null)), []);
  assert.deepEqual(stallSection(launchWith({ ...STALLS, samples: 0 })), []);
  assert.equal(ofTag(stallSection(launchWith({ ...STALLS, scopes: [] }))[0], "table").length, 0);
});

test("the panel next to the source has a line's samples, with or without scopes", () => {
  const shown = lineDetails({ stalled: LINE }, 7, { path: "/src/k.py" }, launchWith(STALLS), {}, new Map());
  const text = shown.map(({ textContent }) => textContent).join(" ");
  assert.ok(text.includes("No scope begins here."));
  assert.ok(text.includes("Samples: 20.0 ± 1.0 % of all"));
  assert.ok(text.includes("5.0 % wait for the result of k.py:3 (LDG)"));
  assert.equal(lineDetails({}, 7, { path: "/src/k.py" }, launchWith(null), {}, new Map()).length, 2);
});

test("a unit has a solid bar for its lower bound, and an outline for what was measured", () => {
  const units = [
    { unit: "ALU", lower_bound: 0.25, measured: 0.7, text: "ALU\nall figures" },
    { unit: "L2", lower_bound: null, measured: 0, text: "L2" },
    { unit: "DRAM", lower_bound: 0.1, measured: null, text: "DRAM" },
  ];
  const [section] = unitSection(units, 0.6);
  const rows = ofClass(section, "unit-row");
  const widths = (row, kind) => ofClass(row, kind).map(({ style }) => style.width);
  assert.deepEqual(rows.map((row) => widths(row, "unit-bound")), [["25%"], [], ["10%"]]);
  assert.deepEqual(rows.map((row) => widths(row, "unit-measured")), [["70%"], [], []]);
  assert.deepEqual(rows.map((row) => ofClass(row, "unit-figure")[0].textContent), ["70.0 %", "0.0 %", "≥ 10.0 %"]);
  assert.deepEqual(rows.map((row) => row.className), ["unit-row busy", "unit-row", "unit-row"]);
  assert.equal(ofClass(rows[0], "unit-mark")[0].style.insetInlineStart, "60%");
  assert.equal(rows[0].attributes.title, "ALU\nall figures");
  assert.ok(ofClass(section, "bar-legend")[0].textContent.includes("60 %: Nsight Compute's threshold"));
});

test("nothing is drawn of unknown units, nor of an unknown evidence", () => {
  assert.deepEqual(unitSection([], 0.6), []);
  assert.deepEqual(evidenceTag(""), []);
  assert.equal(evidenceTag("measured")[0].textContent, "measured");
  assert.ok(evidenceTag("computed")[0].attributes.title.startsWith("lower bounds"));
});
