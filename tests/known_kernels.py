"""Launches of a kernel with a loop, healthy but for what a test changes: what limits them is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from buffers import Scope
from numpy.typing import NDArray
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.analysis.limits.rates import DRAM, TENSOR, ceiling
from kprof_inject.analysis.limits.speed_of_light import SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.timeline import Timeline

FUNC, LOOP, ITER, WORK, WAIT = range(5)
ITERATIONS = 20
MOST_DRAM, MOST_TENSOR = ceiling("", DRAM), ceiling("", TENSOR)
DRAM_BOUND = DramBound(
    read_bytes=60_000_000,
    written_bytes=0,
    least_bytes=60_000_000,
    streamed_bytes=None,
    fits_l2=False,
    unknown=0,
    unknown_bytes=0,
    bytes_per_s=3.35e12,
)
WARPS = 4
SMS = 8


@dataclass(frozen=True)
class Known:
    """One CTA's way: ``before_ns`` to its loop, iterations that take ``iterations_ns``, ``after_ns`` to its end. In
    each iteration a warp works for ``work_ns`` and waits for ``wait_ns``, by its number; others do neither. ``work``
    and ``wait`` are those scopes. ``looping`` warps run the loop; None: all."""

    before_ns: int = 80
    iterations_ns: Sequence[int] = (100,) * ITERATIONS
    after_ns: int = 80
    warps: int = WARPS
    work_ns: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(WARPS), 60))
    wait_ns: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(WARPS), 4))
    work: Scope = field(default_factory=lambda: Scope("work", "marker", ITER, ("/src/kernel.py", 7)))
    wait: Scope = field(default_factory=lambda: Scope("ttg.async_wait", "op", ITER, ("/src/kernel.py", 9)))
    looping: Sequence[int] | None = None

    @property
    def duration_ns(self) -> int:
        return self.before_ns + sum(self.iterations_ns) + self.after_ns

    @property
    def scopes(self) -> list[Scope]:
        return [
            Scope("func", "func", -1, ("/src/kernel.py", 3)),
            Scope("loop[0]", "loop", FUNC, ("/src/kernel.py", 5)),
            Scope("iter[0]", "iter", LOOP, ("/src/kernel.py", 5)),
            self.work,
            self.wait,
        ]

    def rows(self) -> Iterator[Ran]:
        """Return the scopes that the warps of CTA 0 ran on SM 0, from 0 ns."""
        for warp in range(self.warps):
            place = Ran(FUNC, self.duration_ns, warp=warp, start_ns=0)
            if self.looping is not None and warp not in self.looping:
                yield place._replace(self_ns=self.duration_ns)
                continue
            loop_ns = sum(self.iterations_ns)
            yield place._replace(self_ns=self.duration_ns - loop_ns)
            start_ns = self.before_ns
            yield place._replace(scope=LOOP, duration_ns=loop_ns, start_ns=start_ns)
            for number, iteration_ns in enumerate(self.iterations_ns):
                yield from self._iteration(place, warp, number, iteration_ns, start_ns)
                start_ns += iteration_ns

    def _iteration(self, place: Ran, warp: int, number: int, iteration_ns: int, start_ns: int) -> Iterator[Ran]:
        work_ns, wait_ns = self.work_ns.get(warp), self.wait_ns.get(warp)
        self_ns = iteration_ns - (work_ns or 0) - (wait_ns or 0)
        yield place._replace(scope=ITER, duration_ns=iteration_ns, self_ns=self_ns, iteration=number, start_ns=start_ns)
        if work_ns is not None:
            yield place._replace(scope=WORK, duration_ns=work_ns, self_ns=work_ns, start_ns=start_ns)
        if wait_ns is not None:
            start_ns += work_ns or 0
            yield place._replace(scope=WAIT, duration_ns=wait_ns, self_ns=wait_ns, start_ns=start_ns)


def launched(
    folder: Path,
    known: Known = Known(),
    ctas: Sequence[tuple[int, int, int]] | None = None,
    *,
    kernel: dict[str, Any] | None = None,
    **changes: Any,
) -> Timeline:
    """A launch whose CTAs all go the same way, each from its begin to its end on its SM: ``ctas``, by default one on
    each of 8 SMs. ``kernel`` and ``changes`` as ``made_timeline`` takes them."""
    if ctas is None:
        ctas = [(sm, 0, known.duration_ns) for sm in range(SMS)]
    return made_timeline(
        folder,
        known.scopes,
        [_of_each_cta(known, ctas)],
        cta_rows(*[(cta, sm, begin_ns, end_ns, end_ns) for cta, (sm, begin_ns, end_ns) in enumerate(ctas)]),
        warps=known.warps,
        kernel={"with_records": KernelResources(ctas_per_sm=1), **(kernel or {})},
        **{"records_written": 100, **changes},
    )


def _of_each_cta(known: Known, ctas: Sequence[tuple[int, int, int]]) -> NDArray[np.void]:
    """The rows of one CTA, repeated for each on its SM and from its begin on."""
    of_one = scope_rows(list(known.rows()))
    rows = np.tile(of_one, len(ctas))
    number = np.repeat(np.arange(len(ctas)), len(of_one))
    sms, begins_ns, _ = np.array(ctas).T
    rows["cta"], rows["sm"] = number, sms[number]
    rows["start_ns"] += begins_ns[number]
    rows["end_ns"] += begins_ns[number]
    return rows


def found_in(timeline: Timeline) -> tuple[Finding, ...]:
    return LaunchAnalysis.of(timeline).findings


def rules_of(timeline: Timeline) -> list[str]:
    return [finding.rule for finding in found_in(timeline)]


def the_finding_of(rule: str, timeline: Timeline) -> Finding:
    """The only one of a rule."""
    (finding,) = (finding for finding in found_in(timeline) if finding.rule == rule)
    return finding


def the_finding(timeline: Timeline) -> Finding:
    """The only one."""
    (finding,) = found_in(timeline)
    return finding


def sentences_of(finding: Finding) -> str:
    """What a report says of it, for a snapshot."""
    return f"{finding.sentence}\n{finding.advice}"


def evidence_of(timeline: Timeline, summary: LaunchSummary | None = None) -> Evidence:
    """What rules get of a launch of whose module nothing is known."""
    summary = summary or summarise(timeline)
    return Evidence(timeline, summary, SpeedOfLight((), missing=Unjudged("no module", "")), None)
