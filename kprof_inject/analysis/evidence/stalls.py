"""What the warps of a kernel wait for, by scope and by line of its TTGIR, from samples of its machine code.

A sample shows one warp at one instruction, which was issued in that cycle or waits for a reason. So shares of samples
are shares of the warps' time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from kprof_inject.capture.measurements import SamplesRecord
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.capture.source_text import SourceLine
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, MachineFunction
from kprof_inject.machine_code.scoreboards import waits_in

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
"""What a warp waits for, by the name of the reason."""
ISSUED = "selected"
READY = "not_selected"
"""Reason of warps that could be issued, while another one was."""
_SUBSET = "_not_issued"
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

    ``source`` is the line of the source that it comes from. ``awaited`` has, by reason, the lines whose results the
    warps waited for, with the samples; a sample may count for several.
    """

    line: int
    source: SourceLine | None
    reasons: Mapping[str, int]
    awaited: Mapping[str, Mapping[int, int]]

    @property
    def samples(self) -> int:
        """All samples of the line."""
        return sum(self.reasons.values())


class TopStall(Struct, frozen=True):
    """The reason for which warps wait longest, other than for other warps to be issued.

    ``line`` is the line of the TTGIR where most of these warps wait, ``awaited`` that whose result they need; 0 if
    unknown. ``operation`` is the machine operation that is awaited, such as ``LDG``; empty if unknown.
    """

    reason: str
    share: Share
    line: int
    awaited: int
    operation: str


class Stalls(Struct, frozen=True):
    """What the warps of a launch wait for."""

    samples: int
    reasons: Mapping[str, int]
    scopes: Mapping[int, Mapping[str, int]]
    """By the scope's index in the scope table."""
    lines: tuple[LineStalls, ...]
    """Those with most samples first."""
    unknown: int
    """Samples of instructions without a line."""
    operations: Mapping[int, str]
    """The machine operation that most samples of other lines wait for, by the line of its TTGIR."""

    def share(self, reason: str) -> Share:
        """Return the share of a reason in the warps' time."""
        return Share.of(self.reasons.get(reason, 0), self.samples)

    def waiting_in(self, index: int) -> list[tuple[str, Share]]:
        """Return what warps wait for in a scope, as shares of their time in it, the longest first."""
        reasons = self.scopes.get(index, {})
        whole = sum(reasons.values())
        return [(reason, Share.of(count, whole)) for reason, count in waiting(reasons)]

    @property
    def top(self) -> TopStall | None:
        """What warps wait for longest; None if they never wait."""
        ranked = waiting(self.reasons)
        if not ranked:
            return None
        reason, count = ranked[0]
        awaited = self._awaited_for(reason)
        operation = self.operations.get(awaited, "")
        return TopStall(reason, Share.of(count, self.samples), self._line_of(reason), awaited, operation)

    def places_of(self, reason: str) -> tuple[str, str]:
        """Return where most warps wait for a reason, and whose result they need, as ``file:line``; empty if unknown."""
        lines = self._line_of(reason), self._awaited_for(reason)
        first, second = (place_text(self.source_of(line)) for line in lines)
        return first, second

    def _line_of(self, reason: str) -> int:
        line = max(self.lines, key=lambda line: line.reasons.get(reason, 0), default=None)
        return line.line if line and line.reasons.get(reason) else 0

    def _awaited_for(self, reason: str) -> int:
        found: Counter[int] = Counter()
        for line in self.lines:
            found.update(line.awaited.get(reason, {}))
        return found.most_common(1)[0][0] if found else 0

    def source_of(self, line: int) -> SourceLine | None:
        """Return the source line of a line of the TTGIR that was sampled or awaited."""
        return next((one.source for one in self.lines if one.line == line), None)

    def to_json(self) -> dict[str, Any]:
        """Return the samples as JSON values."""
        return {
            "samples": self.samples,
            "unknown": self.unknown,
            "reasons": dict(self.reasons),
            "scopes": [{"index": index, "reasons": dict(reasons)} for index, reasons in self.scopes.items()],
            "lines": [
                {
                    "line": line.line,
                    "source": place_text(line.source),
                    "reasons": dict(line.reasons),
                    "awaited": [
                        {"reason": reason, "line": other, "operation": self.operations.get(other, ""), "samples": count}
                        for reason, found in line.awaited.items()
                        for other, count in found.items()
                    ],
                }
                for line in self.lines
            ],
        }


def place_text(source: SourceLine | None) -> str:
    """Return ``file:line`` without the file's folders; empty for None."""
    return f"{PurePath(source[0]).name}:{source[1]}" if source else ""


def waiting(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the samples of warps that wait, by reason, most first: not of those issued or ready to be."""
    found = [(reason, count) for reason, count in reasons.items() if reason not in (ISSUED, READY) and count]
    return sorted(found, key=lambda entry: -entry[1])


def stalls_of(
    record: SamplesRecord, code: MachineFunction, table: ScopeTable, places: Sequence[SourceLine | None]
) -> Stalls:
    """Relate the samples of a kernel to the scopes of its table and to the lines of its TTGIR.

    ``places`` has the source line of each line of the TTGIR.
    """
    awaited = _awaited_operations(code)
    by_line: defaultdict[int, Counter[str]] = defaultdict(Counter)
    awaited_by_line: defaultdict[int, defaultdict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    operations: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for index, samples in _samples(record, code):
        line = code.instructions[index].line
        by_line[line].update(samples)
        for reason in ("long_scoreboard", "short_scoreboard"):
            if count := samples.get(reason, 0):
                for other_line, operation in awaited.get(index, {}).items():
                    awaited_by_line[line][reason][other_line] += count
                    operations[other_line][operation] += count
    reasons: Counter[str] = Counter()
    for counts in by_line.values():
        reasons.update(counts)
    lines = [
        LineStalls(
            line,
            places[line - 1] if 0 < line <= len(places) else None,
            dict(counts),
            {reason: dict(found) for reason, found in awaited_by_line[line].items()},
        )
        for line, counts in by_line.items()
        if line
    ]
    for line in set(operations) - set(by_line):
        lines.append(LineStalls(line, places[line - 1] if 0 < line <= len(places) else None, {}, {}))
    return Stalls(
        samples=sum(reasons.values()),
        reasons=dict(reasons),
        scopes=_by_scope(table, by_line),
        lines=tuple(sorted(lines, key=lambda line: (-line.samples, line.line))),
        unknown=sum(by_line.get(0, {}).values()),
        operations={line: counts.most_common(1)[0][0] for line, counts in operations.items()},
    )


def _samples(record: SamplesRecord, code: MachineFunction) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the index of each sampled instruction with its samples by reason."""
    for sampled in record.instructions:
        index = sampled.address // INSTRUCTION_BYTES
        if index < len(code.instructions):
            yield index, {name: count for name, count in sampled.samples.items() if not name.endswith(_SUBSET)}


def _awaited_operations(code: MachineFunction) -> dict[int, dict[int, str]]:
    """Return the lines whose results each instruction may wait for, by its index, with a machine operation of each."""
    found: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for wait in waits_in(code, blocks_of(code)):
        other = code.instructions[wait.awaited]
        found[wait.waiting][other.line] = other.operation
    return found


def _by_scope(table: ScopeTable, by_line: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, int]]:
    scopes: dict[int, dict[str, int]] = {}
    for index, scope in enumerate(table.scopes):
        if scope.lines is not None:
            first, last = scope.lines
            counts: Counter[str] = Counter()
            for line, samples in by_line.items():
                if first <= line <= last:
                    counts.update(samples)
            scopes[index] = dict(counts)
    return scopes
