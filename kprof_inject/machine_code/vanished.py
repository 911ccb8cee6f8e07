"""Find work that a compiler left out together with operations that were removed from a kernel's text.

The numbers of instructions that compute, load or store are compared. Instructions of addresses, indices and constants
are not counted, as compilers compute those in many ways, nor are spills, nor barriers, which protect shared memory that
others use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct

from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, pipeline_of

MAX_VANISHED = 0.02
"""Part of the other instructions that may vanish: compilations of nearly the same text differ by as much."""

_MIN_VANISHED = 1
_PIPELINES = frozenset(
    (Pipeline.TENSOR, Pipeline.FMA, Pipeline.FP16, Pipeline.FP64, Pipeline.XU, Pipeline.LSU, Pipeline.TMA)
)
# Integer operations of the FMA pipeline, and spills, which are fewer with fewer values.
_NOT_COUNTED = frozenset(("IMAD", "IMUL", "VIADD", "IDP", "IDP4A", "LDL", "STL"))
# Floating-point operations of the ALU.
_COUNTED = frozenset(("FSEL", "FSETP", "FSET", "FMNMX", "FMNMX3", "FCHK", "F2FP", "FSWZADD", "VHMNMX"))


class Vanished(Struct, frozen=True):
    """Instructions that the compiler left out: the most frequent, the line that lost most of these, and the others."""

    count: int
    operation: str
    line: int
    others: int = 0

    def __str__(self) -> str:
        """Return them in words that follow *the compiler also removed*."""
        others = f" and {self.others} others" if self.others else ""
        return f"{self.count} {self.operation} of TTGIR line {self.line}{others}"


def vanished(before: MachineFunction, after: MachineFunction, removed: Collection[int]) -> Vanished | None:
    """Return the instructions of other lines than ``removed`` that a function no longer has.

    Both functions have the lines of the same text. Returns None if they are few enough. Instructions of another line
    that now belong to a removed one have not vanished.
    """
    own_before, others_before = _counts(before.instructions, removed)
    own_after, others_after = _counts(after.instructions, removed)
    lost = {
        operation: count
        - _total(others_after, operation)
        - max(_total(own_after, operation) - _total(own_before, operation), 0)
        for operation, count in _totals(others_before).items()
    }
    whole = sum(others_before.values())
    all_lost = sum(max(count, 0) for count in lost.values())
    if all_lost <= max(MAX_VANISHED * whole, _MIN_VANISHED):
        return None
    operation = max(lost, key=lambda one: lost[one])
    fallen = others_before - others_after
    line = max((place for place in fallen if place[1] == operation), key=lambda place: fallen[place])[0]
    return Vanished(lost[operation], operation, line, all_lost - lost[operation])


_Counts = Counter[tuple[int, str]]
"""Number of instructions by line and opcode."""


def _counts(instructions: Iterable[Instruction], removed: Collection[int]) -> tuple[_Counts, _Counts]:
    """Return the counted instructions of removed lines, and those of the others."""
    own, others = _Counts(), _Counts()
    for one in instructions:
        if _is_counted(one):
            (own if one.line in removed else others)[one.line, one.operation] += 1
    return own, others


def _is_counted(one: Instruction) -> bool:
    if one.operation in _COUNTED:
        return True
    return pipeline_of(one) in _PIPELINES and one.operation not in _NOT_COUNTED


def _totals(counts: _Counts) -> Counter[str]:
    totals = Counter[str]()
    for (_, operation), count in counts.items():
        totals[operation] += count
    return totals


def _total(counts: _Counts, operation: str) -> int:
    return sum(count for (_, name), count in counts.items() if name == operation)
