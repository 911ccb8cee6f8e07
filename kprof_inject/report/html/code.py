"""The kernel's source, its TTGIR and its machine code: the scopes, stall reasons and instructions of each line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.executed_instructions import block_executions
from kprof_inject.analysis.limits.stalls import NOT_STALLED, REASONS, Share, Stalls
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unevaluated, evaluating
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.capture.source_text import (
    SourceLine,
    file_and_line,
    lines_of,
    places_of,
    shown_line,
    sources_of,
    ttgir_of,
)
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.lines import LineCode, summary_of
from kprof_inject.timeline.timeline import Timeline

# Of longer files, the page has only the lines around the scopes and those where warps wait.
_MAX_SOURCE_LINES = 4000
_AROUND = 200
_MAX_TTGIR_LINES = 200_000
MAX_LISTED = 20_000  # maximum number of instructions that the page lists for a launch, which take about 220 kB


class AwaitedLine(Struct, frozen=True):
    """Line of the TTGIR, numbered from 1, whose result warps wait for at another line."""

    reason: str
    line: int
    source: SourceLine | None  # that it comes from
    operation: str  # the machine operation, such as LDG; empty if unknown
    share: float  # the samples that wait for it; one sample may wait for several lines


class StalledLine(Struct, frozen=True):
    """Line of a text, numbered from 1, with its share of all samples, by reason in the order of all bars."""

    line: int
    share: Share
    shares: dict[str, Share]
    awaited: list[AwaitedLine]


class TimedLine(Struct, frozen=True):
    """Line of the source on which scopes begin."""

    line: int
    scopes: list[int]
    count: int  # of those scopes that are in no other one of them, like ``total_ns``
    iterations: int
    self_ns: int | None
    total_ns: int | None


class SourceFile(Struct, frozen=True):
    """Source file of the kernel, with the times and stall reasons of its lines."""

    path: str
    pieces: list[tuple[int, list[str]]]  # first line's number, lines; with gaps; empty if the file's text is unknown
    timed: list[TimedLine]
    stalls: list[StalledLine]


def source_files(timeline: Timeline, summary: LaunchSummary, stalls: Stalls | None = None) -> list[SourceFile]:
    """Return the files of the kernel's source, largest time first."""
    texts = sources_of(timeline.launch.kernel)
    scopes_of: dict[str, dict[int, list[int]]] = {path: {} for path in texts}
    for index, scope in enumerate(summary.scopes):
        if place := file_and_line(scope.source):
            scopes_of.setdefault(place[0], {}).setdefault(place[1], []).append(index)
    stalls_of = stalled_source_lines(stalls) if stalls else {}
    files = [
        SourceFile(
            path=path,
            pieces=_pieces(texts.get(path, ""), sorted({*by_line, *(line.line for line in stalls_of.get(path, ()))})),
            timed=[_timed(number, by_line[number], summary, timeline.table) for number in sorted(by_line)],
            stalls=stalls_of.get(path, []),
        )
        for path, by_line in scopes_of.items()
    ]
    return sorted(files, key=lambda file: -sum(line.self_ns or 0 for line in file.timed))


def _timed(number: int, indices: list[int], summary: LaunchSummary, table: ScopeTable) -> TimedLine:
    scopes = [summary.scopes[index] for index in indices]
    outermost = [summary.scopes[index] for index in indices if set(indices).isdisjoint(table.around(index))]
    return TimedLine(
        line=number,
        scopes=indices,
        count=sum(scope.count for scope in outermost),
        iterations=sum(scope.count for scope in scopes if scope.kind == ScopeKind.ITERATION),
        self_ns=_sum(scope.self_ns for scope in scopes),
        total_ns=_sum(scope.total_ns for scope in outermost),
    )


def _sum(times_ns: Iterable[int | None]) -> int | None:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return sum(known) if known else None


def _pieces(text: str, numbers: list[int]) -> list[tuple[int, list[str]]]:
    if not text:
        return []
    lines = lines_of(text)
    kept = np.ones(len(lines), dtype=bool)
    if len(lines) > _MAX_SOURCE_LINES:
        kept[:] = False
        for number in numbers:
            kept[max(number - 1 - _AROUND, 0) : number + _AROUND] = True
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    spans = zip(edges[::2], edges[1::2], strict=True)
    return [(begin + 1, [shown_line(line) for line in lines[begin:end]]) for begin, end in spans]


class Listing(Struct, frozen=True, eq=False):
    """Instructions by address; that of the instruction with index ``i`` is ``i * address_step``."""

    texts: list[str]
    line_of: NDArray[np.int32]  # the line of the TTGIR of each, 0 if unknown
    address_step: int
    blocks: list[tuple[int, int | None]]  # index of the first instruction, and how often all warps execute the block


class MachineCode(Struct, frozen=True):
    """Machine code of a kernel without records, by the lines of its TTGIR."""

    instructions: int
    warps: int | None  # that enter it, of all CTAs
    lines: tuple[LineCode, ...]
    executed: dict[int, int]  # by line, the instructions that all warps execute, as far as known; no line with none
    unknown: dict[int, int]  # by line, the instructions whose executions are unknown; no line with none
    listing: Listing | None  # a large kernel has none


class TtgirText(Struct, frozen=True, eq=False):
    """TTGIR of the kernel without records, with the stall reasons and the machine code of its lines."""

    lines: list[str]
    left_out: int  # the number of lines after the last one
    places: list[SourceLine]
    place_of: NDArray[np.int32]  # for each line the index of the place that it comes from, -1 if unknown
    stalls: list[StalledLine]
    machine_code: MachineCode | None


def ttgir_text(
    timeline: Timeline, stalls: Stalls | None = None, machine_code: MachineCode | None = None
) -> TtgirText | None:
    """Return the kernel's TTGIR; None if the capture has no module."""
    text = ttgir_of(timeline.launch.kernel)
    if not text:
        return None
    return replace(_text_alone(text), stalls=stalled_ttgir_lines(stalls) if stalls else [], machine_code=machine_code)


@lru_cache(maxsize=KERNELS_CACHED)
def _text_alone(text: str) -> TtgirText:
    all_lines = lines_of(text)
    lines = all_lines[:_MAX_TTGIR_LINES]
    numbers: dict[SourceLine, int] = {}
    place_of = [numbers.setdefault(place, len(numbers)) if place else -1 for place in places_of(lines)]
    shown, left_out = [*map(shown_line, lines)], len(all_lines) - len(lines)
    return TtgirText(shown, left_out, list(numbers), np.array(place_of, dtype=np.int32), [], None)


def launch_machine_code(report: LaunchAnalysis, max_listed: int = MAX_LISTED) -> MachineCode | None:
    """Return the machine code of a launch's kernel, with a listing of up to ``max_listed`` instructions."""
    function = report.machine_code
    if function is not None and function.instructions:
        with suppress(Unevaluated), evaluating():
            return _machine_code(function, _executions(report, function), max_listed)
    return None


@lru_cache(maxsize=KERNELS_CACHED)
def _machine_code(function: MachineFunction, executions: tuple[int | None, ...], max_listed: int) -> MachineCode:
    blocks, code = blocks_of(function), function.instructions
    executed, unknown = Counter[int](), Counter[int]()
    for block, count in zip(blocks, executions, strict=True):
        for one in code[block.first : block.end]:
            if count is None:
                unknown[one.line] += 1
            else:
                executed[one.line] += count
    listing = Listing(
        texts=[" ".join(filter(None, (one.predicate, one.opcode, one.operands))) for one in code],
        line_of=np.array([one.line for one in code], dtype=np.int32),
        address_step=function.instruction_set.address_step,
        blocks=[(block.first, count) for block, count in zip(blocks, executions, strict=True)],
    )
    # Each warp executes the first block once, unless that is in a loop.
    is_repeated = any(0 in block.successors for block in blocks)
    return MachineCode(
        instructions=len(code),
        warps=None if is_repeated else executions[0] or None,
        lines=summary_of(function).lines,
        executed=dict(executed),
        unknown=dict(unknown),
        listing=listing if len(code) <= max_listed else None,
    )


def _executions(report: LaunchAnalysis, function: MachineFunction) -> tuple[int | None, ...]:
    if report.executed is not None:
        with suppress(Unevaluated), evaluating():
            return tuple(block_executions(function, report.executed, report.launch.kernel.num_warps).known)
    return (None,) * len(blocks_of(function))


MIN_LINE_SHARE = 0.005  # fewer samples are no reason to look at a line
# A smaller share would be rounded to 0.0 %.
_MIN_REASON_SHARE = 0.0005
_MAX_SCOPE_REASONS = 3
_MAX_AWAITED = 3


class StalledScope(Struct, frozen=True):
    """Scope with its share of all samples, the shares of the reasons in it, and the ``longest`` of its waits."""

    scope: int
    share: float
    shares: dict[str, Share]
    longest: list[tuple[str, Share]]


class LaunchStalls(Struct, frozen=True):
    """Stall reasons of a launch as shares of its samples; those of a scope are shares of the scope's samples."""

    samples: int
    meanings: dict[str, str]  # what warps wait for with a reason, if known; the reasons in the order of all bars
    shares: dict[str, Share]
    scopes: list[StalledScope]
    elsewhere: float  # the share of the samples that are at no line of the page's source files


def launch_stalls(stalls: Stalls, shown_files: Iterable[str]) -> LaunchStalls:
    """Return the stall reasons of a launch and of its scopes; ``shown_files`` are the source files of the page."""
    names, files = _ordered(stalls.reasons), set(shown_files)
    shown = sum(line.samples for line in stalls.lines if line.source and line.source[0] in files)
    scopes = []
    for index, counts in sorted(stalls.scopes.items()):
        if whole := sum(counts.values()):
            share, longest = Share.of(whole, stalls.samples).value, stalls.waiting_in(index)[:_MAX_SCOPE_REASONS]
            scopes.append(StalledScope(index, share, _shares(counts, whole, names), longest))
    return LaunchStalls(
        samples=stalls.samples,
        meanings={name: NOT_STALLED.get(name) or REASONS.get(name, "") for name in names},
        shares=_shares(stalls.reasons, stalls.samples, names),
        scopes=scopes,
        elsewhere=Share.of(stalls.samples - shown, stalls.samples).value,
    )


def stalled_ttgir_lines(stalls: Stalls) -> list[StalledLine]:
    """Return the lines of the TTGIR with a notable share of the samples, in the order of the text."""
    lines = sorted(stalls.lines, key=lambda line: line.line)
    notable = (line for line in lines if _is_notable(stalls, line.samples))
    return [_stalled(stalls, line.line, line.reasons, line.awaited) for line in notable]


def stalled_source_lines(stalls: Stalls) -> dict[str, list[StalledLine]]:
    """Return the lines of each source file with a notable share of the samples, in the order of the file."""
    reasons: defaultdict[SourceLine, Counter[str]] = defaultdict(Counter)
    awaited: defaultdict[SourceLine, defaultdict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for line in stalls.lines:
        if line.source is not None:
            reasons[line.source].update(line.reasons)
            for reason, found in line.awaited.items():
                awaited[line.source][reason].update(found)
    files: defaultdict[str, list[StalledLine]] = defaultdict(list)
    for (path, number), counts in sorted(reasons.items()):
        if _is_notable(stalls, counts.total()):
            by_source = {reason: _merged_by_source(stalls, found) for reason, found in awaited[path, number].items()}
            files[path].append(_stalled(stalls, number, counts, by_source))
    return dict(files)


def _ordered(reasons: Mapping[str, int]) -> list[str]:
    return sorted(reasons, key=lambda name: (name in NOT_STALLED, -reasons[name]))


def _shares(counts: Mapping[str, int], whole: int, names: Iterable[str]) -> dict[str, Share]:
    shares = {name: Share.of(counts.get(name, 0), whole) for name in names}
    return {name: share for name, share in shares.items() if share.value >= _MIN_REASON_SHARE}


def _is_notable(stalls: Stalls, samples: int) -> bool:
    return samples > 0 and samples >= MIN_LINE_SHARE * stalls.samples


def _stalled(
    stalls: Stalls, number: int, reasons: Mapping[str, int], awaited: Mapping[str, Mapping[int, int]]
) -> StalledLine:
    found, sources = [], _sources(stalls)
    for reason, counts in awaited.items():
        for line, count in Counter(counts).most_common(_MAX_AWAITED):
            # One sample may count for several results of a line.
            share = Share.of(min(count, reasons.get(reason, 0)), stalls.samples).value
            if line and share >= _MIN_REASON_SHARE:
                found.append(AwaitedLine(reason, line, sources.get(line), stalls.operations.get(line, ""), share))
    shares = _shares(reasons, stalls.samples, _ordered(stalls.reasons))
    return StalledLine(number, Share.of(sum(reasons.values()), stalls.samples), shares, found)


def _merged_by_source(stalls: Stalls, counts: Mapping[int, int]) -> dict[int, int]:
    # Each line of the source has one line of the TTGIR, that with most samples.
    sources = _sources(stalls)
    merged: dict[SourceLine | int, tuple[int, int]] = {}
    for line, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        first, total = merged.get(sources.get(line) or line, (line, 0))
        merged[sources.get(line) or line] = first, total + count
    return dict(merged.values())


def _sources(stalls: Stalls) -> dict[int, SourceLine | None]:
    return {line.line: line.source for line in stalls.lines}
