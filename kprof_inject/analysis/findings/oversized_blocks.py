"""Blocks of which most elements are masked off, as they are larger than the data."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.saved_instructions import may_gain, saving_of
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import types_of

# With a larger part of its elements, a block of half the size would not suffice.
_MAX_USED = 0.5
_MAX_NAMES = 3


def oversized_blocks(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield loads and stores whose masks disable at least half of the elements, with the arithmetic on these.

    Dots need tiles of a least size, so kernels with dots are not judged.
    """
    ran, code = evidence.ran, evidence.code
    if ran is None or code is None or not may_gain(evidence) or any(one.traits.is_dot for one in ran.module.walk()):
        return
    used = {one.operation: part for one in ran.operations if (part := _used(one)) is not None and part <= _MAX_USED}
    if not used:
        return
    shapes = {types_of(operation)[0].shape: part for operation, part in used.items()}
    idle = {
        line: 1 - part
        for shape, part in shapes.items()
        for line in evidence.lines_of(_on_tensors_of(shape, ran.module))
    }
    saving = saving_of(evidence, {one.address: idle[one.line] for one in code.instructions if one.line in idle})
    if saving is None:
        return
    names = listed(list(dict.fromkeys(map(evidence.words_of, used))), _MAX_NAMES)
    most = max(used.values())
    yield evidence.at(
        list(used),
        Finding(
            rule="oversized-blocks",
            scope=None,
            share=saving.bound,
            text=f"blocks are larger than the data: masks disable {percent(1 - most)} of the elements of {names}",
            advice=f"use blocks of 1/{_times_smaller(most)} of the size: the power of two that the data needs "
            "(triton.next_power_of_2)",
            figures={"used": most, "issued_share": saving.issued_share},
            likely=saving.likely,
        ),
    )


def _on_tensors_of(shape: tuple[int, ...], module: Module) -> Iterator[Operation]:
    for one in module.walk():
        if not one.traits.is_loop and any(printed.shape == shape for printed in types_of(one)):
            yield one


def _used(one: CountedOperation) -> float | None:
    """Return the part of the elements of a load or store that its mask enables; None if it is unknown."""
    access, times = one.access, one.times
    if access is None or access.places is None or not times or len(access.shape) == 0:
        return None
    most = access.max_bytes(times)
    return access.places * access.element_bytes / most if most and access.places else None


def _times_smaller(used: float) -> int:
    """Return the largest power of two by which the block could be smaller."""
    times = 2
    while 2 * times * used <= 1:
        times *= 2
    return times
