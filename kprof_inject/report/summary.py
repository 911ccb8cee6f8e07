"""Statistics of each scope of a launch, and the table that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.capture.origin import Place, place_names
from kprof_inject.timeline.timeline import Timeline

# By the clock's source.
_CLOCK_TITLES = {"fitted": "SM clock", "assumed": "assumed SM clock", "nominal": "assumed SM clock"}
_CLOCK_NOTES = {
    "fitted": "clock: {mhz:.1f} MHz ± {percent:.2f} %, timer readings within {residual_ns:.0f} ns (rms); "
    "totals and shares are over all warps",
    "assumed": "clock: {mhz:.0f} MHz is an assumption, the device's nominal rate: the launch was too short for its "
    "timer readings to measure it. Durations may be off by {percent:.0f} %; totals and shares are over all warps",
    "nominal": "clock: {mhz:.0f} MHz is an assumption, the device's nominal rate: there are no timer readings to "
    "measure it by. All times may be off by {percent:.0f} %, and each SM's first record is taken for the launch's "
    "begin; totals and shares are over all warps",
}


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """One scope of one launch, over all warps. ``share`` is of the time of all warps of the kernel, 0 to 1.

    The times are None where no whole scope survived."""

    scope: str
    depth: int
    source: str
    count: int
    total_ns: int
    mean_ns: float | None
    p50_ns: float | None
    p99_ns: float | None
    share: float
    without_partner: int


@dataclass(frozen=True, slots=True)
class LaunchSummary:
    """One launch: the clock that was fitted, what was lost, and its scopes. ``graph`` says that it is the last replay
    of a CUDA graph, ``place`` on which process and device it ran."""

    kernel: str
    variant: str
    launch: int
    graph: bool
    place: Place
    grid: tuple[int, int, int]
    warps: int
    ctas: int
    duration_ns: int
    clock_mhz: float
    clock_error: float
    residual_ns: float
    clock_source: str
    records_written: int
    records_lost: int
    records_unknown: int
    ctas_never_ran: int
    ctas_damaged: int
    scopes: tuple[ScopeSummary, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(timeline: Timeline) -> LaunchSummary:
    launch, ctas = timeline.launch, timeline.ctas
    duration = int(ctas["pre_final_ns"].max() - ctas["init_ns"].min()) if ctas.size else 0
    return LaunchSummary(
        launch.kernel.name,
        launch.kernel.variant,
        launch.index,
        launch.graph,
        launch.place,
        launch.grid,
        launch.kernel.num_warps,
        len(ctas),
        duration,
        timeline.clock.clock_hz / 1e6,
        timeline.clock.rate_error,
        timeline.clock.residual_ns,
        timeline.clock.source,
        timeline.records_written,
        timeline.records_lost,
        timeline.records_damaged,
        timeline.ctas_never_ran,
        timeline.ctas_damaged,
        tuple(_scope_summaries(timeline)),
    )


def _scope_summaries(timeline: Timeline) -> Iterator[ScopeSummary]:
    durations = timeline.scopes["end_ns"] - timeline.scopes["start_ns"]
    whole = max(timeline.warp_time_ns, 1)
    depth: list[int] = []
    for index, scope in enumerate(timeline.table.scopes):
        depth.append(depth[scope.parent] + 1 if scope.parent >= 0 else 0)
        mine = durations[timeline.scopes["scope"] == index]
        p50, p99 = np.percentile(mine, (50, 99)).tolist() if mine.size else (None, None)
        yield ScopeSummary(
            scope.name,
            depth[index],
            scope.source,
            int(mine.size),
            int(mine.sum()),
            float(mine.mean()) if mine.size else None,
            p50,
            p99,
            float(mine.sum()) / whole,
            int(timeline.open_starts[index] + timeline.stray_ends[index]),
        )


def print_summaries(summaries: Sequence[LaunchSummary], console: Console) -> None:
    """Print a table for each launch, and under it what a reader must know before trusting it."""
    names = place_names(summary.place for summary in summaries)
    for summary in summaries:
        console.print(_table(summary, names[summary.place]))
        for note in _notes(summary):
            console.print(Text(note))


def _table(summary: LaunchSummary, place_name: str) -> Table:
    place = f"{place_name}: " if place_name else ""
    replay = " (last replay of a CUDA graph)" if summary.graph else ""
    grid = "x".join(map(str, summary.grid))
    table = Table(
        title=Text(
            f"{place}{summary.kernel}, launch {summary.launch}{replay}: grid {grid}, {summary.warps} warps, "
            f"{time_text(summary.duration_ns)}, {_CLOCK_TITLES[summary.clock_source]} {summary.clock_mhz:.0f} MHz"
        ),
        title_justify="left",
    )
    table.add_column("scope", no_wrap=True)
    table.add_column("source", no_wrap=True)
    for title in ("count", "total", "mean", "p50", "p99", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    for scope in summary.scopes:
        table.add_row(
            Text("  " * scope.depth + scope.scope),
            Text(_short(scope.source)),
            f"{scope.count}",
            time_text(scope.total_ns),
            time_text(scope.mean_ns),
            time_text(scope.p50_ns),
            time_text(scope.p99_ns),
            f"{100 * scope.share:.1f} %",
        )
    return table


def _notes(summary: LaunchSummary) -> Iterator[str]:
    yield _CLOCK_NOTES[summary.clock_source].format(
        mhz=summary.clock_mhz, percent=100 * summary.clock_error, residual_ns=summary.residual_ns
    )
    if summary.records_lost:
        percent = 100 * summary.records_lost / summary.records_written
        yield (
            f"lost: {summary.records_lost} of {summary.records_written} records ({percent:.0f} %): the ring keeps the "
            "newest. --fit runs once more with rings that keep them all"
        )
    if unpaired := sum(scope.without_partner for scope in summary.scopes):
        yield f"unpaired: {unpaired} records whose start or end is missing; they are in no row above"
    if summary.records_unknown:
        yield f"unknown: {summary.records_unknown} entries bear no scope of this kernel; they were left out"
    if summary.ctas_never_ran:
        yield f"never ran: {summary.ctas_never_ran} CTAs of the grid wrote nothing"
    if summary.ctas_damaged:
        yield f"damaged: {summary.ctas_damaged} CTAs whose header contradicts itself; they were left out"


def time_text(nanoseconds: float | None) -> str:
    """A time with the unit that suits it; "-" where there is none."""
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _short(source: str) -> str:
    return PurePath(source).name if source else "-"
