"""Evidence of a made launch: its TTGIR, how busy units are, and where its warps were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from known_kernels import launched
from replacing import replace

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding, Waste, gains
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.limits.coalescing import requests_of
from kprof_inject.analysis.limits.limit import Measured
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.analysis.limits.speed_of_light import SpeedOfLight
from kprof_inject.analysis.limits.stalls import LineStalls, Stalls
from kprof_inject.analysis.summary import summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.scopes import ScopeTable

HEAD = """\
#l = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c8 = arith.constant 8 : i32
    %zero = arith.constant dense<0.0> : tensor<128xf32, #l>
    %none = arith.constant 0.0 : f32
    %r = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32, #l>
    %base = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, #l>
    %at = tt.addptr %base, %r : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
"""
TAIL = "    tt.return\n  }\n}\n"


def evidence_of(
    folder: Path,
    body: str,
    parts: Mapping[str, float],
    samples: Mapping[str, int] = {},
    waits: Mapping[str, int] = {},
    duration_ns: int = 100_000,
    dram: DramBound | None = None,
    head: str = "",
    **metrics: float,
) -> Evidence:
    """Evidence of a kernel with this body.

    ``samples`` has samples of the line that contains a text, ``waits`` those of other lines that wait for it; there are
    100 in total. ``head`` are lines before the module. ``metrics`` are counters, by their names in ``counters``.
    """
    text = head + HEAD + body + TAIL
    timeline = launched(folder)
    summary = replace(summarise(timeline), duration_ns=duration_ns)
    ran = evaluated(text, "kernel.ttgir", (8, 1, 1), (1 << 20, 1 << 24), ScopeTable())
    light = SpeedOfLight((), missing=Unjudged("made by hand", ""), dram=dram)
    kernel = timeline.launch.kernel
    counted = CountersRecord(metrics={getattr(counters, name): value for name, value in metrics.items()}, passes=1)
    measured = Measured(kernel, counted, _stalls(text, samples, waits), None)
    requests = requests_of(ran, None)
    return Evidence(
        timeline, summary, light, ran, parts=parts, measured=measured, stalls=measured.stalls, requests=requests
    )


def named_in(evidence: Evidence, finding: Finding) -> list[str]:
    """The operations that a finding names, as the text begins before ``=`` or the first blank."""
    assert evidence.executed is not None
    lines = evidence.executed.module.text.splitlines()
    return [lines[line - 1].split()[0] for line in finding.lines]


def worth(evidence: Evidence, finding: Finding, time_share: float | None = None) -> float:
    """The bound of the gain without the work that a finding removes, and this part of the warps' time."""
    return gains(evidence, Waste("", "", finding.removed, time_share=time_share))[0]


def _stalls(text: str, samples: Mapping[str, int], waits: Mapping[str, int]) -> Stalls:
    lines = text.splitlines()
    of_line = {_line_of(lines, part): count for part, count in samples.items()}
    awaited = {_line_of(lines, part): count for part, count in waits.items()}
    rest = 100 - sum(of_line.values())
    others = LineStalls(1, None, {"long_scoreboard": rest}, {"long_scoreboard": awaited})
    found = (others, *(LineStalls(line, None, {"wait": count}, {}) for line, count in of_line.items()))
    return Stalls(100, {"wait": 100 - rest, "long_scoreboard": rest}, {}, found, 0, dict.fromkeys(awaited, "LDG"))


def _line_of(lines: list[str], part: str) -> int:
    (number,) = (number for number, line in enumerate(lines, 1) if part in line)
    return number
