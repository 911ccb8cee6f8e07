"""Records that the page's JavaScript reads, as JSON with the fields' names.

All times are nanoseconds since the start of the launch, unless a field says otherwise; a share is a part from 0 to 1.
A scope is given by its index in the scope table. Unknown values are null.
"""

from __future__ import annotations

from msgspec import Struct

from kprof_inject.timeline.clock import ClockSource


class PartitionMeta(Struct, frozen=True):
    """Partition of a kernel: its scopes, its number of warps, and their time, in all and outside of all scopes."""

    title: str
    scopes: tuple[int, ...]
    warps: int
    whole_ns: int
    outside_ns: int | None


class ScopeMeta(Struct, frozen=True):
    """Scope of the scope table.

    ``colour`` is ``#rrggbb``, ``text`` its source line, ``self_name`` the name of its self time.
    """

    name: str
    kind: str
    colour: str
    source: str
    path: str
    text: str
    called_from: tuple[str, ...]
    parent: int
    lane: int
    share: float | None
    self_name: str
    tags: tuple[str, ...]


class LaunchMeta(Struct, frozen=True):
    """Facts of a launch that the page needs before its scopes are read.

    ``first_ns`` is the globaltimer's time at its start, as text, because JavaScript's numbers do not hold it exactly.
    ``run_times`` are those without records and with them, in words; empty if they are unknown.
    ``partition_of_warp`` has the partition that each of ``warps`` runs, ``function_of_warp`` that partition's name in
    the code. ``flight_works`` are the kinds of its asynchronous work; empty if the page has none. ``picked_ctas`` are
    the CTAs that the timeline offers first, each with a name and its number.
    """

    kernel: str
    variant: str
    launch: int
    graph: bool
    place: str
    device: str
    grid: tuple[int, int, int]
    warps_per_cta: int
    warps: tuple[int, ...]
    ctas: int
    first_ns: str
    span_ns: int
    duration_ns: int | None
    run_times: str
    clock_ghz: float
    clock_source: ClockSource
    cta_name: str
    warp_name: str
    scope_count: int
    shown_scopes: int
    shown_ctas: int
    partitions: tuple[PartitionMeta, ...]
    partition_of_warp: tuple[str, ...]
    function_of_warp: tuple[str, ...]
    scopes: tuple[ScopeMeta, ...]
    flight_works: tuple[str, ...]
    picked_ctas: list[tuple[str, int]]


class FactGroup(Struct, frozen=True):
    """Facts under one title, each a label and its value."""

    title: str
    rows: tuple[tuple[str, str], ...]


class VerdictText(Struct, frozen=True):
    """Trust in the figures."""

    level: str
    text: str


class AdviceText(Struct, frozen=True):
    """Thing to try, why, and what it can gain at most; ``doubtful`` if it is based on incomplete records."""

    text: str
    reason: str
    share: float | None
    doubtful: bool


class ScopeRoof(Struct, frozen=True):
    """Minimum share of a scope's cycles that its busiest unit needs."""

    scope: int
    unit: str
    part: float


class FindingText(Struct, frozen=True):
    """Finding, with the scope and the CTA that it concerns."""

    rule: str
    share: float
    text: str
    advice: str
    scope: int | None
    cta: float | int | str | None


class SlopeRow(Struct, frozen=True):
    """Place of the kernel that was delayed, and the slope with its interval.

    ``time`` and ``path`` are its shares of the warps' time and of the critical path; ``scope`` is null if the launch
    did not record it.
    """

    name: str
    scope: int | None
    source: str
    lines: tuple[int, int] | None
    slope: float | None
    low: float | None
    high: float | None
    text: str
    slack: str
    time: float | None
    path: float | None


class UnitBar(Struct, frozen=True):
    """Utilization of a unit of the SM: the larger lower bound, what was measured, and a text with all figures."""

    unit: str
    lower_bound: float | None
    measured: float | None
    text: str


class Overview(Struct, frozen=True):
    """Launch at a glance: its facts, its limit, what to try, and how far to trust that.

    ``limit_evidence`` is "computed" or "measured"; empty if the limit is unknown. A unit may be the limit if its
    utilization is at least ``well_utilized``. ``builds`` are the rows of a table of the kernel's build: label, without
    records, with records. ``doubts`` say what could not be judged, and why. The most critical of ``slopes`` comes
    first; ``slopes_say`` says what a slope is.
    """

    facts: tuple[FactGroup, ...]
    builds: tuple[tuple[str, str, str], ...]
    verdict: VerdictText
    limit: str
    limit_evidence: str
    units: tuple[UnitBar, ...]
    well_utilized: float
    advice: tuple[AdviceText, ...]
    roofs: tuple[ScopeRoof, ...]
    findings: tuple[FindingText, ...]
    doubts: tuple[str, ...]
    slopes: tuple[SlopeRow, ...]
    slopes_say: str
    notes: tuple[str, ...]
    warp_time_ns: int


class LaunchRow(Struct, frozen=True):
    """Launch in a list: its index on the page, its number in the program, and its limit with the evidence for it."""

    launch: int
    number: int
    time_ns: float
    limit: str
    limit_evidence: str
    level: str
    findings: tuple[str, ...]


class KernelRow(LaunchRow, frozen=True):
    """Kernel in a list: the launch to show first, but the median time of all launches.

    ``to_win_ns`` is the time of all its launches that could be won at most, ``to_win_by`` how. ``others`` has all its
    launches, slowest first.
    """

    name: str
    variants: int
    launches: int
    share: float | None
    to_win_ns: float | None
    to_win_by: str
    others: tuple[LaunchRow, ...]


class PackedColumn(Struct, frozen=True):
    """Typed array in base64, little-endian, row by row; ``assets/data.js`` reads it."""

    type: str
    base64: str


class HeatMap(Struct, frozen=True):
    """CTAs at work on the SMs over time: a matrix with a row for each SM.

    ``cells`` has a byte for each SM (ascending, those of ``sms``) and each of ``columns`` parts of the time from
    ``begin_ns`` to ``end_ns``: the average number of CTAs at work, with 255 for ``most``. ``done_ns`` is when each SM
    had finished its last work, ``counts`` the number of CTAs it ran, ``sms_left_out`` the number of SMs without a row.
    From ``tail_ns`` on, in the launch's tail, SMs run out of work; ``tail_share`` is the part of the launch that they
    are idle there, on average. A wave has ``wave_ctas`` CTAs.
    """

    sms: list[int]
    sms_left_out: int
    columns: int
    begin_ns: int
    end_ns: int
    most: float
    cells: PackedColumn
    counts: list[int]
    done_ns: list[int]
    slots: int
    wave_ctas: int
    tail_ns: int
    tail_share: float | None


class Histogram(Struct, frozen=True):
    """Numbers of durations in the bins between ascending edges; ``log`` if each bin is wider than the one before."""

    edges_ns: list[int]
    counts: list[int]
    log: bool


class IterationPlot(Struct, frozen=True):
    """Time of an iteration over the course of its loop.

    Points in ascending order, each for its number of executions of iterations ``first`` to ``last``, with their
    quantiles; then the figures of the whole series.
    """

    first: list[int]
    last: list[int]
    counts: list[int]
    p10_ns: list[float]
    p50_ns: list[float]
    p90_ns: list[float]
    runs: int
    fewest: int
    most: int
    first_ns: float | None
    steady_ns: float | None
    last_ns: float | None


class GroupMeans(Struct, frozen=True):
    """A scope's mean duration in each warp or SM."""

    ids: list[int]
    counts: list[int]
    means_ns: list[float]
    left_out: int


class TagTable(Struct, frozen=True):
    """A scope's figures by the values of a tag, largest total first.

    A row is the value, its count, total and median, and the median over that of all other values.
    """

    name: str
    values: tuple[tuple[int, int, int | None, float | None, float | None], ...]
    left_out: int
    unknown: int


class ScopePicture(Struct, frozen=True):
    """Figures and pictures of a scope.

    ``per_cta`` is the time of one of a CTA's warps in it, in words; ``per_cta_ns`` is the sum over its executions.
    Shorter durations than ``resolution_ns`` are within the cost of a record. ``cut`` is the number of executions that
    were shorter than the cost of their records, ``crossing`` of those that cross another scope, ``without_partner`` of
    records whose start or end is missing.
    """

    name: str
    kind: str
    depth: int
    source: str
    count: int
    per_cta: str
    per_cta_ns: float | None
    share: float | None
    total_ns: int | None
    self_ns: int | None
    mean_ns: float | None
    min_ns: int | None
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: int | None
    mean_cycles: float | None
    without_partner: int
    cut: int
    crossing: int
    resolution_ns: float
    histogram: Histogram | None
    iterations: IterationPlot | None
    warps: GroupMeans
    sms: GroupMeans
    tags: tuple[TagTable, ...]


class StallReason(Struct, frozen=True):
    """Reason by NVIDIA's name; ``text`` says what the warps wait for, empty if unknown."""

    name: str
    text: str


class ReasonShare(Struct, frozen=True):
    """Share of samples with a stall reason, with half of its 95 % interval."""

    reason: str
    share: float
    error: float


class AwaitedLine(Struct, frozen=True):
    """Line of the TTGIR, numbered from 1, whose result warps wait for at another line.

    ``source`` is the line of the source that it comes from, ``operation`` the machine operation, such as ``LDG``; empty
    if unknown. ``share`` are the samples that wait for it; one sample may wait for several lines.
    """

    reason: str
    line: int
    source: tuple[str, int] | None
    operation: str
    share: float


class StalledLine(Struct, frozen=True):
    """Line of a text, numbered from 1, with its share of all samples, by reason in the order of all bars."""

    line: int
    share: float
    error: float
    shares: list[ReasonShare]
    awaited: list[AwaitedLine]


class StalledScope(Struct, frozen=True):
    """Scope with its share of all samples, the shares of the reasons in it, and the ``longest`` of its waits."""

    scope: int
    share: float
    shares: list[ReasonShare]
    longest: list[ReasonShare]


class LaunchStalls(Struct, frozen=True):
    """Stall reasons of a launch in the order of all bars, and their shares of its samples.

    ``elsewhere`` is the share of the samples that are at no line of the page's source files.
    """

    samples: int
    reasons: list[StallReason]
    shares: list[ReasonShare]
    scopes: list[StalledScope]
    elsewhere: float


class TimedLine(Struct, frozen=True):
    """Line of the source on which scopes begin.

    ``self_ns`` is the sum over these, ``total_ns`` and ``count`` the sums over those that are in no other one of them.
    """

    line: int
    scopes: list[int]
    count: int
    iterations: int
    self_ns: int | None
    total_ns: int | None


class LineSlope(Struct, frozen=True):
    """Line of the source with places that were delayed: the largest slope, and a text on all of them."""

    line: int
    slope: float
    text: str


class SourceFile(Struct, frozen=True):
    """Source file of the kernel, with the times, slopes and stall reasons of its lines.

    ``pieces`` are ``[number of the first line, lines]``, ascending, with gaps between them; empty if the capture does
    not have the file's text.
    """

    path: str
    pieces: list[tuple[int, list[str]]]
    timed: list[TimedLine]
    slopes: list[LineSlope]
    stalls: list[StalledLine]


class AwaitedResult(Struct, frozen=True):
    """Instructions that others wait for: their line of the TTGIR, 0 if unknown, operation, and number."""

    line: int
    operation: str
    instructions: int


class CompiledLine(Struct, frozen=True):
    """Machine code of a line of the TTGIR, numbered from 1; 0 for instructions of no known line.

    ``pipelines`` are ``[pipeline, number of instructions]``, most first. ``executed`` is the number of instructions
    that all warps execute, without those whose executions are unknown; their number is ``unknown``.
    """

    line: int
    pipelines: list[tuple[str, int]]
    awaited: list[AwaitedResult]
    executed: int | None
    unknown: int


class Listing(Struct, frozen=True):
    """Instructions by address, and the line of the TTGIR of each, 0 if unknown.

    The address of the instruction with index ``i`` is ``i * address_step``. ``blocks`` are the basic blocks, as the
    index of the first instruction and the number of times that all warps execute the block.
    """

    texts: list[str]
    line_of: PackedColumn
    address_step: int
    blocks: list[tuple[int, int | None]]


class MachineCode(Struct, frozen=True):
    """Machine code of a kernel without records, by the lines of its TTGIR.

    ``warps`` is the number of warps that enter it, of all CTAs; null if unknown. A large kernel has no ``listing``.
    """

    instructions: int
    warps: int | None
    lines: list[CompiledLine]
    listing: Listing | None


class TtgirText(Struct, frozen=True):
    """TTGIR of the kernel without records, with the lines of each scope, stall reasons and machine code of lines.

    ``places`` are source lines as ``[file, line]``; ``place_of`` has for each line the index of the place that it comes
    from, -1 if unknown. ``sites`` has for each scope its ranges of lines from 0, as the first and the last; none if the
    capture has no lines for it. ``left_out`` is the number of lines after the last one.
    """

    lines: list[str]
    left_out: int
    places: list[tuple[str, int]]
    place_of: PackedColumn
    sites: list[list[tuple[int, int]]]
    stalls: list[StalledLine]
    machine_code: MachineCode | None


class LaunchSections(Struct, frozen=True):
    """Data of a launch by the view that shows it, of bounded size."""

    overview: Overview
    heat_map: HeatMap | None
    scopes: list[ScopePicture]
    source: list[SourceFile]
    ttgir: TtgirText | None
    stalls: LaunchStalls | None


class WorkRow(Struct, frozen=True):
    """Work of the program's GPU that was not recorded; ``share`` is of all that it did, None if that is unknown."""

    name: str
    kind: str
    count: int
    total_ns: float
    share: float | None


class PageData(Struct, frozen=True):
    """First data that the page reads: its launches, its kernels, those with most to win first, and other work.

    ``sections`` has for each launch the elements with the parts of its ``LaunchSections``, by name; launches with equal
    parts share an element. ``timed``, the times of the source's lines, is a part of its own.
    """

    version: str
    launches: list[LaunchMeta]
    sections: list[dict[str, str]]
    kernels: list[KernelRow]
    others: list[WorkRow]
