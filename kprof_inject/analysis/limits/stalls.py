"""Stall reasons of a kernel's warps by scope and by line of its TTGIR, from samples of its machine code.

A sample shows one warp at one instruction, which was issued in that cycle or waits for a reason. So shares of samples
are shares of the warps' time.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct

from kprof_inject.capture.measurements import SamplesRecord
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.capture.reader import machine_code_of
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.capture.source_text import SourceLine, lines_of, places_of, ttgir_of
from kprof_inject.machine_code.control_flow import waits_in
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction
from kprof_inject.ttgir.strings import variable_in

ISSUED = "selected"
# Nsight Compute, Kernel Profiling Guide, "Warp Stall Reasons".
REASONS: Mapping[str, str] = {
    "barrier": "a barrier of the CTA",
    "branch_resolving": "a branch to be resolved",
    "dispatch_stall": "the dispatcher",
    "drain": "their stores to be written before they end",
    "gmma": "the tensor cores (wgmma)",
    "imc_miss": "a constant that is not in the cache",
    "lg_throttle": "the full queue of accesses to global memory",
    "long_scoreboard": "data from global memory",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "membar": "a memory barrier",
    "mio_throttle": "the full queue of shared memory, special functions and the like",
    "misc": "another reason",
    "no_instructions": "instructions to be fetched",
    "short_scoreboard": "results from shared memory, special functions and the like",
    "sleeping": "the end of their sleep",
    "tex_throttle": "the full queue of the texture unit",
    "wait": "the fixed latency of their last instructions",
    "warpgroup_arrive": "the other warps of their warpgroup",
}
"""Description of each stall reason, in words that follow *warps wait for*."""
NOT_STALLED: Mapping[str, str] = {
    "not_selected": "their turn: the scheduler issues another warp's instruction",
    ISSUED: "nothing: their instruction is issued",
}
"""The same for warps that are ready."""

_SUBSET = "_not_issued"
# On an H100, warps that wait for wgmma (WARPGROUP.DEPBAR) were sampled with this reason, and none with ``gmma``.
BARRIER = "barrier"  # reason of warps that wait at a barrier of the CTA

FOR_MEMORY = "long_scoreboard"
"""Reason of warps that wait for data from global memory, also by asynchronous copies (DEPBAR)."""

_WAITS_FOR_TENSOR_CORES = "WARPGROUP"
_SCOREBOARDS = FOR_MEMORY, "short_scoreboard"
# Operations whose scoreboards warps await with the reason "long_scoreboard": those of the L1 and texture unit (L1TEX),
# and, as 60 kernels on an H100 showed, stores, fences and operations on mbarriers.
_LONG_OPERATIONS = frozenset(
    (
        *("ATOM", "ATOMG", "FENCE", "LD", "LDG", "LDGMC", "LDGSTS", "LDL", "MEMBAR", "RED", "REDG", "ST", "STG", "STL"),
        *("SUATOM", "SULD", "SYNCS", "TEX", "TLD", "TLD4", "UTMALDG", "UTMASTG"),
    )
)
# Shares of fewer samples say little.
_MIN_SAMPLES = 50
_QUANTILE = 1.96


class Share(Struct, frozen=True):
    """A share of samples, with half of its 95 % interval."""

    value: float
    error: float

    @classmethod
    def of(cls, part: int, whole: int) -> Share:
        """Return ``part`` of ``whole`` samples."""
        value = part / whole if whole else 0.0
        return cls(value, _QUANTILE * math.sqrt(value * (1 - value) / whole) if whole else 1.0)


class LineStalls(Struct, frozen=True):
    """Samples of the instructions of one line of the TTGIR.

    ``source`` is the line of the source that it comes from, ``value`` the name of its result, such as ``acc``; empty if
    it has none. ``awaited`` has, by reason, the lines whose results the warps waited for, with the samples; a sample
    may count for several. ``for_tensor_cores`` are the samples of ``barrier`` in which the warps waited for wgmma.
    """

    line: int
    source: SourceLine | None
    reasons: Mapping[str, int]
    awaited: Mapping[str, Mapping[int, int]]
    value: str = ""
    for_tensor_cores: int = 0

    @property
    def samples(self) -> int:
        """Number of samples of the line."""
        return sum(self.reasons.values())

    @property
    def at_barriers(self) -> int:
        """Number of samples at a barrier of the CTA, without waits for wgmma."""
        return self.reasons.get(BARRIER, 0) - self.for_tensor_cores

    def waits_for(self, lines: Collection[int]) -> int:
        """Return the number of samples that wait for results of some lines, or perhaps of others."""
        return sum(
            min(sum(count for line, count in found.items() if line in lines), self.reasons.get(reason, 0))
            for reason, found in self.awaited.items()
        )

    @property
    def place(self) -> str:
        """``file:line`` of the source, after the name of the value; empty if unknown."""
        place = place_text(self.source)
        return f"{self.value!r} at {place}" if self.value and place else place


class TopStall(Struct, frozen=True):
    """The reason for which warps wait longest, other than for other warps to be issued."""

    reason: str
    share: float
    operation: str  # the machine operation that is awaited, such as ``LDG``; empty if unknown


class Stalls(Struct, frozen=True):
    """Stall reasons of a launch's warps."""

    samples: int
    reasons: Mapping[str, int]
    scopes: Mapping[int, Mapping[str, int]]  # samples by reason, by the scope's index in the scope table
    lines: tuple[LineStalls, ...]  # sampled lines, sorted by their samples, descending
    unknown: int  # samples of instructions without a line
    operations: Mapping[int, str]
    """The machine operation that most samples of other lines wait for, by the line of its TTGIR."""
    ranges: Mapping[int, tuple[int, int]] = {}  # first and last line of each scope, by its index in the scope table

    @property
    def by_source(self) -> Counter[SourceLine]:
        """Samples by line of the source."""
        return _summed({line.source: line.samples} for line in self.lines if line.source is not None)

    def label(self, reason: str, index: int | None = None) -> str:
        """Return the reason, with *(wgmma)* if it is a barrier at which warps wait for the tensor cores."""
        return f"{reason} (wgmma)" if self._is_for_tensor_cores(reason, index) else reason

    def words(self, reason: str) -> str:
        """Return the thing that warps wait for."""
        return REASONS.get("gmma" if self._is_for_tensor_cores(reason, None) else reason, reason)

    def _is_for_tensor_cores(self, reason: str, index: int | None) -> bool:
        lines = self._lines_in(index)
        found = sum(line.for_tensor_cores for line in lines)
        return reason == BARRIER and 2 * found > sum(line.reasons.get(reason, 0) for line in lines)

    def share_of(self, lines: Collection[int]) -> float:
        """Return the share of the warps' time at instructions of some lines, or in waits for results of these."""
        own = sum(line.samples for line in self.lines if line.line in lines)
        waits = sum(line.waits_for(lines) for line in self.lines if line.line not in lines)
        return self._share(min(own + waits, self.samples))

    def share_of_execution(self, lines: Collection[int]) -> float:
        """Return ``share_of`` without waits at these lines for results of others only."""
        others = {line.line for line in self.lines} - set(lines)
        own = [line for line in self.lines if line.line in lines]
        waits = sum(max(line.waits_for(others) - line.waits_for(lines), 0) for line in own)
        return self._share(max(round(self.share_of(lines) * self.samples) - waits, 0))

    def share_of_waits(self, lines: Collection[int]) -> float:
        """Return the share of the warps' time in waits for results of some lines, wherever the warps wait."""
        return self._share(min(sum(line.waits_for(lines) for line in self.lines), self.samples))

    def share_of_barriers(self, lines: Collection[int], with_wgmma: bool = False) -> float:
        """Return the share of the warps' time at barriers in some lines: of the CTA, and for wgmma if wanted."""
        inside = [line for line in self.lines if line.line in lines]
        return self._share(sum(line.reasons.get(BARRIER, 0) if with_wgmma else line.at_barriers for line in inside))

    def _share(self, samples: int) -> float:
        return samples / self.samples if self.samples else 0.0

    def waiting_in(self, index: int) -> list[tuple[str, Share]]:
        """Return the stall reasons in a scope, as shares of the time in it, longest first; empty for few samples."""
        reasons = self.scopes.get(index, {})
        whole = sum(reasons.values())
        return [(one, Share.of(count, whole)) for one, count in waiting(reasons) if whole >= _MIN_SAMPLES]

    @property
    def top(self) -> TopStall | None:
        """The longest stall."""
        ranked = waiting(self.reasons)
        if not ranked:
            return None
        reason, count = ranked[0]
        return TopStall(reason, self._share(count), self.operations.get(self._most_awaited(reason), ""))

    def places_of(self, reason: str, index: int | None = None) -> tuple[str, str]:
        """Return where most warps wait for a reason, in a scope or everywhere, and for which line's result."""
        line = max(self._lines_in(index), key=lambda line: line.reasons.get(reason, 0), default=None)
        place = line.place if line and line.reasons.get(reason) else ""
        return place, self.result_of(self._most_awaited(reason, index))

    def _lines_in(self, index: int | None) -> list[LineStalls]:
        if index is None:
            return list(self.lines)
        first, last = self.ranges.get(index, (0, -1))
        return [line for line in self.lines if first <= line.line <= last]

    def awaited(self, reason: str, index: int | None = None) -> Counter[int]:
        """Return the samples that wait for a reason, by the line whose result they need, in a scope or everywhere."""
        return _summed(line.awaited.get(reason, {}) for line in self._lines_in(index))

    def _most_awaited(self, reason: str, index: int | None = None) -> int:
        return next((line for line, _ in self.awaited(reason, index).most_common(1)), 0)

    def place_of(self, line: int) -> str:
        """Return the place of a line of the TTGIR; empty if it was neither sampled nor awaited."""
        return next((one.place for one in self.lines if one.line == line), "")

    def result_of(self, line: int) -> str:
        """Return the awaited result of a line of the TTGIR, such as *LDG of 'k' at attention.py:49*."""
        found, operation = next((one for one in self.lines if one.line == line), None), self.operations.get(line, "")
        if found is None or not found.place or not operation:
            return ""
        return f"{operation} {'of' if found.value else 'at'} {found.place}"


def place_text(source: SourceLine | None) -> str:
    """Return ``file:line`` without the file's folders; empty for None."""
    return f"{PurePath(source[0]).name}:{source[1]}" if source else ""


def waiting(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the samples of warps that wait, by reason, most first."""
    found = [(reason, count) for reason, count in reasons.items() if reason not in NOT_STALLED and count]
    return sorted(found, key=lambda entry: -entry[1])


_Key = TypeVar("_Key")


def _summed(samples: Iterable[Mapping[_Key, int]]) -> Counter[_Key]:
    total: Counter[_Key] = Counter()
    for one in samples:
        total.update(one)
    return total


@lru_cache(maxsize=KERNELS_CACHED)
def kernel_stalls(kernel: Kernel) -> Stalls | None:
    """Return the stall reasons of a kernel's warps without records, if they were sampled."""
    record, code = kernel.measurements, machine_code_of(kernel)
    if record is None or record.samples is None or code is None:
        return None
    found = stalls_of(record.samples, code, kernel.scopes, lines_of(ttgir_of(kernel)))
    return found if found.samples else None


def stalls_of(record: SamplesRecord, code: MachineFunction, table: ScopeTable, ttgir: Sequence[str]) -> Stalls:
    """Relate the samples of a kernel to the scopes of its table and to the lines of its TTGIR."""
    awaited = _awaited_operations(code)
    by_line: defaultdict[int, Counter[str]] = defaultdict(Counter)
    awaited_by_line: defaultdict[int, defaultdict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    operations: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for_tensor_cores: Counter[int] = Counter()
    for index, samples in sampled(record, code):
        line = code.instructions[index].line
        by_line[line].update(samples)
        if code.instructions[index].operation == _WAITS_FOR_TENSOR_CORES:
            for_tensor_cores[line] += samples.get(BARRIER, 0)
        for reason in _SCOREBOARDS:
            if count := samples.get(reason, 0):
                for other_line, operation in _awaited_for(reason, awaited.get(index, ())).items():
                    awaited_by_line[line][reason][other_line] += count
                    operations[other_line][operation] += count
    ranges = {index: scope.lines for index, scope in enumerate(table.scopes) if scope.lines is not None}
    reasons = _summed(by_line.values())
    places = places_of(ttgir)
    lines = [
        LineStalls(
            line=line,
            source=places[line - 1],
            # A line that computes no value, or one that has only a number, has no name.
            value=variable_in(result[1]) if (result := _RESULT.match(ttgir[line - 1])) else "",
            reasons=dict(by_line.get(line, {})),
            awaited={reason: dict(found) for reason, found in awaited_by_line.get(line, {}).items()},
            for_tensor_cores=for_tensor_cores[line],
        )
        for line in set(by_line) | set(operations)
        if 0 < line <= len(ttgir)
    ]
    return Stalls(
        samples=sum(reasons.values()),
        reasons=dict(reasons),
        scopes={
            index: dict(_summed(samples for line, samples in by_line.items() if first <= line <= last))
            for index, (first, last) in ranges.items()
        },
        lines=tuple(sorted(lines, key=lambda line: (-line.samples, line.line))),
        unknown=sum(by_line.get(0, {}).values()),
        operations={line: counts.most_common(1)[0][0] for line, counts in operations.items()},
        ranges=ranges,
    )


_RESULT = re.compile(r"\s*(%[\w$.-]+)(?::\d+)? = ")


def sampled(record: SamplesRecord, code: MachineFunction) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the index of each sampled instruction with its samples by reason."""
    for sampled in record.instructions:
        index = sampled.address // INSTRUCTION_BYTES
        if index < len(code.instructions):
            # Subsets are counted under another reason, too.
            yield index, {name: count for name, count in sampled.samples.items() if not name.endswith(_SUBSET)}


def _awaited_operations(code: MachineFunction) -> dict[int, list[Instruction]]:
    found: defaultdict[int, list[Instruction]] = defaultdict(list)
    for wait in waits_in(code):
        found[wait.waiting].append(code.instructions[wait.awaited])
    return found


def _awaited_for(reason: str, awaited: Sequence[Instruction]) -> dict[int, str]:
    """Return the lines whose results a warp that waits for this reason may need, with a machine operation of each."""
    # A load and a special function may count in the same scoreboard; the reason tells which of them is awaited.
    fitting = [one for one in awaited if (one.operation in _LONG_OPERATIONS) == (reason == FOR_MEMORY)]
    return {one.line: one.operation for one in fitting or awaited}


def share_of_instructions(record: SamplesRecord, code: MachineFunction, names: Collection[str]) -> float:
    """Return the share of samples at some machine operations, unless they wait for others, or in waits for them."""
    awaited = _awaited_operations(code)
    counted = whole = 0
    for index, samples in sampled(record, code):
        is_own = code.instructions[index].operation in names
        for reason, count in samples.items():
            results = _awaited_for(reason, awaited.get(index, ())).values() if reason in _SCOREBOARDS else ()
            whole += count
            if any(one in names for one in results) if results else is_own:
                counted += count
    return counted / whole if whole else 0.0
