"""Loads and stores that move fewer bytes with an instruction than they could."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.uncoalesced import step_along
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import dimension
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.roofs.coalescing import Requests
from kprof_inject.analysis.roofs.unit_rates import ISSUE, SHARED
from kprof_inject.analysis.structure.tensor_layouts import MAX_ACCESS_BITS
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import THREADS_PER_WARP

# An instruction moves up to 16 bytes for a thread. Adjacent accesses of 4 bytes are already whole lines of 128.
_NARROW_BYTES = 2
_WIDEST_BYTES = MAX_ACCESS_BITS // 8
_KNOWN = (
    "strides and offsets that it knows to be multiples of 16 bytes (tl.multiple_of, tl.max_contiguous, tl.constexpr)"
)
# By whether the addresses are multiples of 16 bytes in this launch.
_WAYS: dict[bool | None, str] = {
    True: f"{_KNOWN}, as they are here, and masks that are equal for neighbours",
    False: "begin rows and offsets at multiples of 16 bytes, as the compiler needs to know, too: pad the rows",
    None: f"rows that are multiples of 16 bytes, {_KNOWN}, and masks that are equal for neighbours",
}
# A launch that issues fewer instructions does not wait for them.
_MIN_BUSY = 0.3
_MIN_SHARE = 0.1


def narrow_access(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield adjacent accesses of a byte or two for each thread, of which a thread makes several."""
    busy = max(evidence.parts.get(ISSUE, 0.0), evidence.parts.get(SHARED, 0.0))
    if evidence.ran is None or busy < _MIN_BUSY:
        return
    by_line = {one.line: one for one in evidence.ran.operations}
    narrow = [
        one for one in evidence.requests if one.line in by_line and _could_be_wider(evidence, one, by_line[one.line])
    ]
    operations = [by_line[one.line].operation for one in narrow]
    if not operations:
        return
    gain = evidence.max_gain_without(operations, evidence.time_share_of(operations))
    share = min(gain, evidence.max_gain_in_sms())  # the bytes stay the same
    if share < _MIN_SHARE:
        return
    worst = max(narrow, key=lambda one: one.instructions or 0)
    operation = by_line[worst.line].operation
    yield evidence.at(
        operations,
        Finding(
            rule="narrow-access",
            scope=None,
            share=share,
            text=f"narrow access: {evidence.words_of(operation)} moves {worst.access_bytes} bytes for each thread with "
            "an instruction, which can move 16",
            advice=f"let the compiler use wider accesses: {_WAYS[_is_aligned(by_line[worst.line].access)]}",
            figures={"access_bytes": worst.access_bytes},
            likely=share / 3,
        ),
        around=operation,
    )


def _could_be_wider(evidence: Evidence, request: Requests, one: CountedOperation) -> bool:
    if request.is_uncoalesced or request.access_bytes > _NARROW_BYTES or one.access is None:
        return False
    if one.access.address is not None and not _contiguous(one.access):
        return False  # neighbours share addresses, or skip some
    of_thread = one.access.whole_bytes / (THREADS_PER_WARP * evidence.kernel.requested_warps)
    return of_thread >= 2 * request.access_bytes


def _contiguous(access: Access) -> list[int]:
    """Return the dimensions of the tile along which neighbours are adjacent in memory."""
    return [dim for dim in range(len(access.shape)) if step_along(access, dim) == access.element_bytes]


def _is_aligned(access: Access | None) -> bool | None:
    """Return whether each 16 bytes of neighbours begin at a multiple of 16 bytes; None if it is unknown."""
    if access is None or access.address is None:
        return None
    (along, *_) = _contiguous(access)
    axis, rest = dimension(along), 0
    for part in access.address.parts:
        values = part.values
        if axis in part.axes and part.sizes[axis] > 1:
            place = part.axes.index(axis)
            values = np.take(values, range(0, part.sizes[axis], _WIDEST_BYTES // access.element_bytes), axis=place)
        rests = values % _WIDEST_BYTES
        if (rests != rests.flat[0]).any():
            return False
        rest += int(rests.flat[0])
    return rest % _WIDEST_BYTES == 0
