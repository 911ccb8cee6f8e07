"""Blocks of which most elements are masked off, as they are larger than the data."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.saved_instructions import may_gain, saving_of
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import AxisArray, dimension
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import types_of


def oversized_blocks(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield loads and stores of blocks whose second half no CTA and no iteration uses, with the arithmetic on these.

    Dots need tiles of a least size, so kernels with dots are not judged.
    """
    ran, code = evidence.ran, evidence.code
    if ran is None or code is None or not may_gain(evidence) or evidence.has_dots:
        return
    accesses = [(one.operation, one.access) for one in ran.operations if one.access and one.access.shape and one.times]
    used = {operation: _used_part(access) for operation, access in accesses}
    shapes: dict[tuple[int, ...], float] = {}
    for operation, access in accesses:
        shapes[access.shape] = max(used[operation], shapes.get(access.shape, 0.0))
    oversized = [operation for operation, access in accesses if shapes[access.shape] < 1]
    if not oversized:
        return
    idle = {
        line: 1 - part
        for shape, part in shapes.items()
        if part < 1
        for line in evidence.lines_of(_on_tensors_of(shape, ran.module))
    }
    saving = saving_of(evidence, {one.address: idle[one.line] for one in code.instructions if one.line in idle})
    if saving is None:
        return
    most = max(part for part in shapes.values() if part < 1)
    yield evidence.at(
        oversized,
        Finding(
            rule="oversized-blocks",
            scope=None,
            share=saving.bound,
            text=f"blocks are larger than the data: masks always disable the last {percent(1 - most)} of "
            f"{evidence.names_of(oversized)}",
            advice=f"use blocks of 1/{round(1 / most)} of the size: the power of two that the data needs "
            "(triton.next_power_of_2)",
            figures={"used": most, "issued_share": saving.issued_share},
            likely=saving.likely,
        ),
    )


def _on_tensors_of(shape: tuple[int, ...], module: Module) -> Iterator[Operation]:
    for one in module.walk():
        if not one.traits.is_loop and any(printed.shape == shape for printed in types_of(one)):
            yield one


def _used_part(access: Access) -> float:
    """Return the part of a block that any execution of an access uses: 1, 1/2, 1/4 and so on; 1 if it is unknown."""
    if access.mask is None or access.mask.is_lower_bound:
        return 1.0
    used = 1.0
    for number, size in enumerate(access.shape):
        last = min((_last_used(factor, number) for factor in access.mask.factors), default=size)
        while size > 1 and last <= size // 2:
            size, used = size // 2, used / 2
    return used


def _last_used(factor: AxisArray, number: int) -> int:
    """Return how many elements a block would need along a dimension for all that a part of the mask enables."""
    axis = dimension(number)
    if axis not in factor.axes or factor.sizes[axis] == 1:
        return sys.maxsize
    others = tuple(place for place, other in enumerate(factor.axes) if other != axis)
    return int(np.flatnonzero(factor.values.any(axis=others)).max(initial=-1)) + 1
