"""Reports on captures of many kinds, each by its name: healthy, with a fault, damaged, empty, very large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import async_launches
from altered import altered
from buffers import Cta, Scope, end, save_launch, start
from golden import read
from known_edits import known_edits
from known_kernels import Known, launched
from known_launch import SCOPES, known_launch
from planning import fixture_view
from programs.child import REPO
from replacing import replace
from specialised import save_specialised
from timelines import Ran, cta_rows, incomplete_rows, made_timeline, scope_rows

from kprof_inject.analysis.causal.response import Interval, Response
from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.schema import ScopeTableRecord
from kprof_inject.capture.scopes import ScopeInfo
from kprof_inject.results import load
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline, decode_launch

D = Known().duration_ns
PARTITIONED = REPO / "tests/select/partitioned/three_partitions.ttgir.gz"
UGLY = 'ma"t\\mul\n\x1b[31m_\ud800𝛼' * 300


def one(timeline: Timeline) -> list[LaunchAnalysis]:
    return [LaunchAnalysis.of(timeline)]


def named(report: LaunchAnalysis, name: str, duration_ns: int, index: int = 0) -> LaunchAnalysis:
    """The same of a launch of another kernel, which took so long."""
    timeline = report.timeline
    kernel = replace(timeline.launch.kernel, name=name, variant=f"{name}-0", folder=Path(name), launches=index + 1)
    launch = replace(timeline.launch, kernel=kernel, index=index)
    summary = replace(report.summary, kernel=name, variant=kernel.variant, launch=index, duration_ns=duration_ns)
    return altered(report, timeline=replace(timeline, launch=launch), summary=summary)


def with_clock(timeline: Timeline, source: ClockSource, nominal_hz: float) -> Timeline:
    kernel = replace(timeline.launch.kernel, sm_clock_hz=nominal_hz)
    clock = replace(timeline.clock, source=source, rate_error=0.2 if nominal_hz else 0.0)
    return replace(timeline, clock=clock, launch=replace(timeline.launch, kernel=kernel))


def lossy(folder: Path) -> list[LaunchAnalysis]:
    lost = incomplete_rows({"cta": 0, "sm": 3, "warp": 1, "records_written": 90, "records_lost": 40})
    return one(known_launch(folder, records_written=100, records_lost=40, incomplete=lost))


def delayed(folder: Path, places: int = 30) -> list[LaunchAnalysis]:
    """A kernel with so many places that were delayed; of the last, nothing is known."""
    (report,) = one(known_launch(folder))
    responses = [
        Response(Interval(1 - number / places, 0.9 - number / places, 1.1 - number / places), 400)
        for number in range(places - 1)
    ]
    found = [_place(f"place {number}", response) for number, response in enumerate(responses)]
    found.append(replace(_place("last", None), reason="it was not timed often enough"))
    experiment = ExperimentRecord(
        name="k", variant="k-0", pid=1, scopes=ScopeTableRecord(scopes=()), grid=(1, 1, 1), delays=()
    )
    return [altered(report, slopes=KernelSlopes(experiment, 1000.0, 1e9, 1.0, tuple(found)))]


def _place(name: str, response: Response | None) -> PlaceSlope:
    return PlaceSlope(ScopeInfo(name, name, "part", "k.py:3", (), -1, name), 1.0, 1.0, None, (), response)


def with_edits(folder: Path) -> list[LaunchAnalysis]:
    """A kernel with a slow prologue, of which edits were tried."""
    (report,) = one(launched(folder, Known(before_ns=3000)))
    return [altered(report, edits=known_edits())]


def specialised(folder: Path) -> list[LaunchAnalysis]:
    plan = make_plan(fixture_view(read(PARTITIONED)), parse_selectors(("func", "loop", "iter", "op(*wait*)")))
    return one(decode_launch(save_specialised(folder, plan)))


def many_scopes(folder: Path) -> list[LaunchAnalysis]:
    scopes = [Scope("func"), *(Scope(f"scope {number} {'x' * number}", "marker", 0) for number in range(200))]
    rows = [Ran(0, 10_000), *(Ran(number, 10 + number, self_ns=10 + number) for number in range(1, 201))]
    return one(made_timeline(folder, scopes, [scope_rows(rows)], cta_rows((0, 0, 0, 12_000, 12_000)), warps=1))


def ugly(folder: Path) -> list[LaunchAnalysis]:
    """Names and paths that are long, and hold what JSON has to escape."""
    scopes = [Scope("s" * 3000, "func", -1, ("/" + "p" * 4000, 1)), *SCOPES[1:]]
    (report,) = one(known_launch(folder, scopes))
    return [named(report, UGLY, 1000)]


def _with_times(clean_ns: Sequence[float], slower: float) -> dict[str, KernelResources]:
    return {
        "clean": KernelResources(32, 0, 0, 1, tuple(clean_ns)),
        "with_records": KernelResources(32, 0, 0, 1, tuple(slower * ns for ns in clean_ns)),
    }


TIMES_NS = tuple(100_000.0 + 10 * (number % 7) for number in range(60))
TAIL = [(sm, 0, D) for sm in range(8)] + [(0, D, 2 * D)]
FULL = [(sm, wave * D, (wave + 1) * D) for wave in range(4) for sm in range(132)]
UNEVEN = [(sm, 0, D * (1 + sm)) for sm in range(8)]

KINDS: dict[str, Callable[[Path], list[LaunchAnalysis]]] = {
    "demo": lambda folder: load(REPO / "tests/captures/matmul").reports,
    "plain": lambda folder: one(known_launch(folder)),
    "healthy": lambda folder: one(launched(folder, ctas=FULL, kernel={"sm_count": 132})),
    "prologue": lambda folder: one(launched(folder, Known(before_ns=3000))),
    "epilogue": lambda folder: one(launched(folder, Known(after_ns=3000))),
    "imbalanced warps": lambda folder: one(launched(folder, Known(work_ns={0: 90, 1: 1, 2: 1, 3: 1}))),
    "first iterations": lambda folder: one(launched(folder, Known(iterations_ns=(1500, *(100,) * 19)))),
    "waiting": lambda folder: one(launched(folder, Known(wait_ns=dict.fromkeys(range(4), 70), work_ns={}))),
    "tail": lambda folder: one(launched(folder, Known(), TAIL)),
    "uneven CTAs": lambda folder: one(launched(folder, Known(), UNEVEN)),
    "low fill": lambda folder: one(launched(folder, kernel={"sm_count": 132})),
    "several faults": lambda folder: one(launched(folder, Known(before_ns=2000, iterations_ns=(700, *(100,) * 19)))),
    "lost records": lossy,
    "no timer": lambda folder: one(with_clock(known_launch(folder), ClockSource.NOMINAL, 1.98e9)),
    "no clock": lambda folder: one(with_clock(known_launch(folder), ClockSource.ASSUMED, 0.0)),
    "no CTA": lambda folder: one(decode_launch(save_launch(folder, SCOPES, [None, None], 4))),
    "no record": lambda folder: one(decode_launch(save_launch(folder, SCOPES, [Cta([[], []])], 4))),
    "a mark alone": lambda folder: one(
        decode_launch(save_launch(folder, [Scope("here", "mark")], [Cta([[start(0, 10), end(0, 20)]])], 4))
    ),
    "copies": lambda folder: one(async_launches.in_order(folder)),
    "partitions": specialised,
    "delays": delayed,
    "tried edits": with_edits,
    "trustworthy": lambda folder: one(launched(folder, Known(), kernel=_with_times(TIMES_NS, 1.01))),
    "unreliable": lambda folder: one(launched(folder, Known(), kernel=_with_times(TIMES_NS, 1.6))),
    "200 scopes": many_scopes,
    "ugly names": ugly,
    "20 launches": lambda folder: [named(*one(known_launch(folder)), "k", 1000 + n, n) for n in range(20)],
    "70 kernels": lambda folder: [named(*one(known_launch(folder)), f"kernel_{n}", 9000 - n) for n in range(70)],
}
