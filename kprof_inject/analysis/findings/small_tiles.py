"""Tiles of dots that are so small that the L2 delivers each operand too often."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.roofs.limits import DRAM, LIMITING
from kprof_inject.analysis.roofs.unit_rates import L2, L2_TO_SM
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent
from kprof_inject.ttgir.types import types_of

# Maximum number of elements of a CTA's accumulator: half of the 64 K registers of an SM of an H100.
_MAX_TILE = 256 * 128
# Where it delivers little but what DRAM gives it once, the L2 is as busy as DRAM: 0.9 times for kernels that stream,
# and 1.0 for the reading of a key-value cache (H100).
_MIN_ABOVE_DRAM = 1.2
# Twice the tile halves the loads of an operand only if two CTAs load the same.
_MIN_LOADS = 2


def small_tiles(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield dots of a launch that the L2 limits, if their tiles could be larger: these share what they load."""
    busy = max(evidence.parts.get(L2, 0.0), evidence.parts.get(L2_TO_SM, 0.0))
    if evidence.executed is None or busy < max(LIMITING, _MIN_ABOVE_DRAM * evidence.parts.get(DRAM, 0.0)):
        return
    tiles = [
        (types[-1].shape, types[0].shape[-1], one.operation)
        for one in evidence.executed.operations
        if one.operation.traits.is_dot and (types := types_of(one.operation)) and len(types[-1].shape) == 2
    ]
    if not tiles:
        return
    waves, sms = evidence.summary.waves, evidence.kernel.sm_count
    if waves is not None and sms and waves.ctas < 2 * sms:
        return  # half as many would leave SMs idle
    (rows, columns), inner, dot = max(tiles, key=lambda tile: tile[0][0] * tile[0][1])
    longer, shorter = max(rows, columns), min(rows, columns)
    if 2 * rows * columns > _MAX_TILE or not _is_shared(evidence, {longer, inner}):
        return
    # A tile loads its rows and its columns for as many products as it has elements.
    saved = 1 - (1 / longer + 1 / (2 * shorter)) / (1 / longer + 1 / shorter)
    removed = dict.fromkeys((L2, L2_TO_SM), saved)
    # If another unit is as busy as the L2, larger tiles may lose: they leave room for fewer CTAs on an SM.
    likely = evidence.max_gain_of_units(removed)
    if likely < MIN_SHARE:
        return
    yield evidence.at(
        [dot],
        Finding(
            rule="small-tiles",
            scope=None,
            share=evidence.max_gain(removed),
            text=f"small tiles: the L2 ({percent(busy)} of peak) delivers the operands of tiles of {rows} x {columns}",
            advice=f"use larger tiles: {longer} x {2 * shorter} takes {percent(saved)} fewer bytes from the L2 for the "
            "same result (with more warps, or fewer stages if shared memory does not suffice)",
            figures={"rows": rows, "columns": columns, "saved": saved},
            likely=likely,
        ),
    )


def _is_shared(evidence: Evidence, shape: set[int]) -> bool:
    """Return False if each part of an operand is known to be loaded once, in tiles with these sizes."""
    loads = list[float]()
    for one in evidence.executed.operations if evidence.executed else ():
        access = one.access
        if access is None or not access.form.reads or len(access.shape) != 2 or set(access.shape) != shape:
            continue
        touched, requested_bytes = access.touched(), access.requested_bytes(one.times)
        if touched is None or not touched.size_bytes or requested_bytes is None:
            return True  # it may be the operand that CTAs share
        loads.append(requested_bytes / touched.size_bytes)
    return not loads or max(loads) >= _MIN_LOADS
