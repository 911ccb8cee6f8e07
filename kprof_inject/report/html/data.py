"""Contents of the page's tabs as JSON: the analysis's records as they are, and what only the page needs.

All times are nanoseconds since the start of the launch, unless a field says otherwise; a share is a part from 0 to 1.
A scope is given by its index in the scope table. Unknown values are null.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from math import isfinite
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.flights import InFlight
from kprof_inject.analysis.causal.slopes import PlaceSlope
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import LIMITING, Limit
from kprof_inject.analysis.program import KernelOverview, Program, Report
from kprof_inject.analysis.summary import LaunchSummary, PartitionSummary, ScopeSummary
from kprof_inject.capture.encoding import rounded
from kprof_inject.capture.scopes import Scope
from kprof_inject.capture.source_text import sources_of
from kprof_inject.errors import printable
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.report.experiments import SLOPE_MEANING, headline, slack_text, slope_text
from kprof_inject.report.facts import Answer, LaunchRow
from kprof_inject.report.html.code import launch_machine_code, launch_stalls, source_files, ttgir_text
from kprof_inject.report.html.columns import Shown, differences, picked_ctas
from kprof_inject.report.html.pictures import ScopePicture, sm_heat_map
from kprof_inject.report.notes import MIN_ROOF_SHARE
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.spread import IterationSeries
from kprof_inject.timeline.timeline import Timeline

# No device has as many SMs, but a damaged header may name any number.
_MAX_ROWS = 512
_PACKED = {"uint8": "u1", "int32": "i4"}
_THOUSANDS = "\u202f"  # the page sets thousands apart by this space, at which no line ends

_LEFT_OUT: Mapping[type[Struct], frozenset[str]] = {
    # A page of one process does not name its host.
    LaunchSummary: frozenset({"place"}),
    LaunchRow: frozenset({"place", "host_ns"}),
    # What the page shows in another form, or not at all.
    Answer: frozenset({"program", "variation", "rules", "edits", "stalls", "causal", "in_flight", "speed_of_light"})
    | {"machine_code", "moves", "disagreements", "counters", "requests", "other_launches"},
    # A column for each iteration.
    IterationSeries: frozenset({"numbers", "counts", "mean_ns", "p50_ns"}),
    ScopeSummary: frozenset({"warps_self_ns", "warp_spread", "cta_spread", "sm_spread", "cta_balance", "sampling"}),
    PlaceSlope: frozenset({"points"}),
    # Its places are text on the page, and nothing there needs the rest.
    Scope: frozenset({"place", "calls", "selector", "function", "crosses", "block", "operations", "other_operations"}),
    KernelOverview: frozenset({"reports", "middles", "not_chosen"}),
}
_ADDED: Mapping[type[Struct], Mapping[str, Callable[[Any], Any]]] = {
    Answer: {"run_times_text": attrgetter("run_times_text")},
    PartitionSummary: {"title": attrgetter("title")},
    Limit: {"answer": attrgetter("answer")},
    Finding: {"sentence": attrgetter("sentence")},
    Scope: {"source": attrgetter("source"), "called_from": attrgetter("called_from")},
    PlaceSlope: {"name": attrgetter("name"), "slope_text": slope_text, "slack_text": slack_text},
    KernelOverview: {"known_launches": attrgetter("known_launches"), "to_win_ns": attrgetter("to_win_ns")},
}
"""For some records, the fields that the page leaves out, and the properties that it has, too."""


def page_values(value: Any) -> Any:
    """Return a record, and the records in it, as JSON values with printable texts; records as keys become pairs."""
    match value:
        case str():
            return value if value.isprintable() else _THOUSANDS.join(map(printable, value.split(_THOUSANDS)))
        case float():
            return rounded(value) if isfinite(value) else None
        case Enum():
            return value.value
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            for kind in type(value).__mro__:
                fields |= {name: compute(value) for name, compute in _ADDED.get(kind, {}).items()}
                fields = {name: part for name, part in fields.items() if name not in _LEFT_OUT.get(kind, ())}
            return page_values(fields)
        case Mapping() if any(isinstance(key, Struct) for key in value):
            return page_values(list(value.items()))
        case Mapping():
            return {str(page_values(key)): page_values(part) for key, part in value.items()}
        case list() | tuple():
            return [page_values(part) for part in value]
        case np.ndarray():
            return _column(value)
        case np.generic():
            return page_values(value.item())
    return value


def _column(column: NDArray[Any]) -> Any:
    # As ``assets/data.js`` reads it: those in ``_PACKED`` are in base64, of any length. Others are lists, of which
    # those that ascend begin with a value and go on with differences, as most of these are small or equal.
    if packed := _PACKED.get(column.dtype.name):
        return {"type": packed, "base64": b64encode(column.astype(f"<{packed}").tobytes()).decode()}
    shown = column[:_MAX_ROWS]
    if column.dtype.kind == "i" and len(shown) > 1 and (np.diff(shown) >= 0).all():
        return {"steps": differences(shown).tolist()}
    return page_values(shown.tolist())


def launch_facts(
    report: LaunchAnalysis, answer: Answer, shown: Shown, pictures: list[ScopePicture], in_flight: InFlight | None
) -> dict[str, Any]:
    """Return a launch and its scopes."""
    timeline, scopes = report.timeline, report.timeline.table.scopes
    return {
        "answer": answer,
        # An item for each scope of the scope table, as in ``answer.scopes``.
        "scopes": scopes,
        "colours": [colour.rgb for colour in scope_colours(scope.kind for scope in scopes)],
        "lanes": timeline.lanes.tolist(),
        "pictures": pictures,
        "warp_ids": timeline.warps,  # the recorded ones
        "shown_scopes": shown.scopes,
        "shown_ctas": len(timeline.ctas) if shown.ctas is None else int(shown.ctas.sum()),
        "flight_works": tuple(in_flight.kinds) if in_flight else (),
        "picked_ctas": picked_ctas(timeline),
    }


def launch_overview(report: LaunchAnalysis) -> dict[str, Any]:
    """Return the page's overview of a launch, beyond the answer."""
    roofs = report.speed_of_light.roofs
    return {
        "facts": _facts(report.timeline, report.summary),  # labels and values, by the title above them
        "well_utilized": LIMITING,  # minimum utilization of a unit that may be the limit
        # The minimum shares of scopes' cycles that their busiest units need.
        "roofs": [(roof.index, roof.unit, roof.part) for roof in roofs if roof.part >= MIN_ROOF_SHARE],
        "slopes": report.slopes.ranked if report.slopes else (),  # the most critical first
        "slopes_say": SLOPE_MEANING if report.slopes else "",
        "tried": [headline(report.edits)] if report.edits else [],
    }


def launch_sections(report: LaunchAnalysis) -> dict[str, Any]:
    """Return a launch's contents of the tabs other than the timeline and the scopes', by the tab; of bounded size."""
    timeline, summary, stalls = report.timeline, report.summary, report.stalls
    return {
        "overview": launch_overview(report),
        "heat_map": sm_heat_map(timeline, summary),
        "source": source_files(timeline, summary, stalls),
        "ttgir": ttgir_text(timeline, stalls, launch_machine_code(report)),
        "stalls": launch_stalls(stalls, sources_of(report.launch.kernel)) if stalls else None,
    }


class KernelRow(Struct, frozen=True):
    """Kernel in a list: the launch to show first, and all its launches, slowest first, by their index on the page."""

    kernel: KernelOverview
    launch: int
    launches: list[int]


def kernel_rows(program: Program, report: Report) -> list[KernelRow]:
    """Return a row for each kernel; ``report`` has the launches of the page, in its order."""
    index_of = {id(one): index for index, one in enumerate(report.launches)}
    return [
        KernelRow(kernel, index_of[id(kernel.middle)], [index_of[id(one)] for one in kernel.slowest_first])
        for kernel in program.kernels
    ]


_CLOCK_SOURCES = {
    ClockSource.FITTED: "fitted to the timer",
    ClockSource.ASSUMED: "assumed: the timer readings do not determine it",
    ClockSource.NOMINAL: "assumed: no timer was read",
    ClockSource.TIMER: "the globaltimer itself, in nanoseconds",
}
_VERSIONS = {"tool": "kprof-inject", "triton": "Triton", "torch": "PyTorch", "python": "Python"}


def _facts(timeline: Timeline, summary: LaunchSummary) -> dict[str, list[tuple[str, str]]]:
    process = timeline.launch.process
    versions = [(name, getattr(process, key)) for key, name in _VERSIONS.items()]
    groups = {
        "Launch": _launch(timeline, summary),
        "Device and clock": _device(timeline, summary),
        "Records": _records(timeline, summary),
        "Program": [("command", " ".join(process.argv)), *versions],
    }
    known = {title: [row for row in rows if row[1]] for title, rows in groups.items()}
    return {title: rows for title, rows in known.items() if rows}


def _launch(timeline: Timeline, summary: LaunchSummary) -> Iterator[tuple[str, str]]:
    metadata = timeline.launch.kernel.metadata
    yield "kernel", summary.kernel
    yield "grid", f"{' x '.join(map(str, summary.grid))}, {counted(summary.ctas, summary.cta_name)} ran"
    recorded = f", of which {', '.join(map(str, timeline.warps))} recorded"
    some = recorded if len(timeline.warps) != summary.warps else ""
    yield f"{summary.warp_name}s", f"{summary.warps} in each {summary.cta_name}{some}"
    stages, ctas = metadata.get("num_stages"), metadata.get("num_ctas")
    yield "stages", "" if stages is None else f"{stages}"
    yield "CTAs in a cluster", "" if ctas in (None, 1) else f"{ctas}"
    yield "span", short_time(summary.duration_ns if summary.ctas else None)
    if waves := summary.waves:
        yield "waves", f"{waves.fill:.2f} on {counted(waves.sms, 'SM')}, {waves.slots_per_sm} at once on each"
        if summary.ending and waves.tail.duration_ns:
            lost = percent(summary.ending.idle_share)
            yield "tail", f"{lost} of the launch lost, in its last {short_time(waves.tail.duration_ns)}"
    yield "launch", f"number {summary.launch}{', last replay of a CUDA graph' if summary.graph else ''}"


def _device(timeline: Timeline, summary: LaunchSummary) -> Iterator[tuple[str, str]]:
    launch, clock = timeline.launch, timeline.clock
    yield "device", launch.device_name or f"number {launch.device}"
    yield "target", launch.kernel.target
    measured = f" ± {100 * clock.rate_error:.2f} %" if clock.source == ClockSource.FITTED else ""
    rate = "" if summary.is_foreign else f"{summary.clock_mhz:.0f} MHz{measured}, "
    yield "clock", f"{rate}{_CLOCK_SOURCES[clock.source]}"
    yield "nominal clock", "" if summary.nominal_mhz is None else f"{summary.nominal_mhz:.0f} MHz"
    if clock.source == ClockSource.FITTED:
        yield "timer readings", f"{clock.readings}, within {clock.residual_ns:.0f} ns of the fit (rms)"


def _records(timeline: Timeline, summary: LaunchSummary) -> Iterator[tuple[str, str]]:
    mode = timeline.launch.kernel.mode
    yield "scopes", _thousands(timeline.scope_count)
    lost = f" ({percent(summary.records_lost / summary.records_written)})" if summary.records_lost else ""
    yield "records", f"{_thousands(summary.records_written)} written, {_thousands(summary.records_lost)} lost{lost}"
    cost = summary.record_cost
    yield "cost of a record", f"{cost.cycles:.0f} ± {cost.error_cycles:.0f} cycles" if cost else "unknown"
    if summary.subtracted_ns and summary.warp_time_ns:
        taken = summary.subtracted_ns / summary.warp_time_ns
        yield "subtracted", f"{percent(taken)} of the warps' time"
    if summary.is_foreign:
        return
    size = f", {_thousands(mode.buffer_bytes)} bytes for each CTA" if mode.buffer_bytes else ""
    yield "buffer", f"{mode.buffer} memory{size}"
    stores = ", stores moved" if mode.sched_stores else ""
    yield "clock bits", f"{mode.clock_bits}{stores}{', scheduling barriers' if mode.sched_barriers else ''}"


def _thousands(count: int) -> str:
    return f"{count:,}".replace(",", _THOUSANDS)
