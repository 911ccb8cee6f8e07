"""Cycles of the L1's data path that conflicts of banks add to those of the machine code's instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.roofs.coalescing import Requests
from kprof_inject.analysis.structure.banks import SIDES, shared_cycles
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import global_access, max_wavefronts, min_wavefronts
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import if_misfit, types_of

_REDUCTION = "tt.reduce"
# Each warp writes its part of a result to shared memory once; one warp reads it, and all read the result.
_MAX_EACH = 3
# Scattered copies take longer than their words of one bank: on an H100, Nsight Compute counted up to 6 times as many
# cycles.
_COPY = "ttg.async_copy_global_to_local"
# Triton chooses the layout in shared memory so that banks do not conflict: ``optimalSwizzling`` of its
# ``GenericSwizzling.cpp``, from 3.5 on.
_WITHOUT_CONFLICTS = "ttg.convert_layout"
# A shuffle uses no banks, and local memory has the words of a warp's threads next to each other (CUDA C++ Programming
# Guide, "Local Memory").
_NEVER_CONFLICT = frozenset(("SHFL", "LDL", "STL"))
_OWN = frozenset(("LDS", "LDSM", "STS", "STSM"))
"""Instructions that only access shared memory."""


class SharedWavefronts(Struct, frozen=True):
    """Accesses to shared memory whose conflicts follow from types and layouts, by the TTGIR line.

    ``uncounted`` are the cycles that a launch takes beyond those of its instructions without conflicts; negative if
    threads read the same words. ``max_uncounted`` has upper bounds where no more is known.
    """

    uncounted: Mapping[int, float]
    max_uncounted: Mapping[int, float]


def shared_wavefronts(
    code: MachineFunction, executions: Sequence[int | None], ran: ExecutedKernel, warps: int
) -> SharedWavefronts:
    """Return the conflicts of a launch.

    ``executions`` are those of the code's blocks, and ``warps`` the number of warps of a CTA.
    """
    counted = _counted(code, executions)
    uncounted: dict[int, float] = {}
    most: dict[int, float] = {}
    for one in ran.operations:
        name, times = one.operation.name, one.times
        if name == _WITHOUT_CONFLICTS:
            most[one.line] = 0.0
        elif name == _REDUCTION and times is not None:
            most[one.line] = times * _MAX_EACH * warps * _results_of(one.operation)
        elif name in SIDES and times is not None and (found := shared_cycles(one.operation, ran.module.aliases)):
            own = times * found.cycles - counted[one.line] if counted[one.line] else 0.0
            extra = found.cycles - found.least
            uncounted[one.line] = (one.whole_times or 0) * extra if name == _COPY else own
            if name != _COPY or not extra:
                most[one.line] = 0.0
    return SharedWavefronts(uncounted, most)


@if_misfit(1 << 20)
def _results_of(reduction: Operation) -> int:
    """Return the number of elements of a reduction's results, of which there is one for each operand."""
    types = types_of(reduction)
    return sum(one.elements for one in types[len(types) // 2 :])


def _counted(code: MachineFunction, executions: Sequence[int | None]) -> Counter[int]:
    """Return the cycles without conflicts of the instructions that only access shared memory, by line."""
    found: Counter[int] = Counter()
    for block, times in zip(blocks_of(code), executions, strict=True):
        for one in code.instructions[block.first : block.end]:
            if one.operation in _OWN:
                found[one.line] += (times or 0) * min_wavefronts(one)
    return found


def unclear_wavefronts(
    code: MachineFunction,
    max_executions: Sequence[int | None],
    shared: SharedWavefronts,
    known: Sequence[Requests],
    possible: Sequence[Requests],
) -> float:
    """Return an upper bound of the cycles that conflicts may add where neither layouts nor addresses show them.

    ``max_executions`` are upper bounds of those of the blocks. ``known`` are the requests whose addresses and masks
    are known; of ``possible`` ones, only the addresses are.
    """
    are_known = {(one.line, one.kind) for one in known}
    of_request = {(one.line, one.kind): one.wavefronts for one in possible}
    most: Counter[int] = Counter()
    for block, times in zip(blocks_of(code), max_executions, strict=True):
        for one in code.instructions[block.first : block.end] if times else ():
            access, least = global_access(one), min_wavefronts(one)
            key = (one.line, access[0]) if access else None
            if least and key not in are_known and one.operation not in _NEVER_CONFLICT:
                each = of_request.get(key) if key else None
                most[one.line] += (times or 0) * max(round(each or max_wavefronts(one)) - least, 0)
    return sum(min(cycles, shared.max_uncounted.get(line, cycles)) for line, cycles in most.items())
