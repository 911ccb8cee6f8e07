"""Loads and stores that move fewer bytes with an instruction than they could."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.roofs.coalescing import Requests
from kprof_inject.analysis.roofs.unit_rates import ISSUE, SHARED
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import THREADS_PER_WARP

# An instruction moves up to 16 bytes for a thread. Adjacent accesses of 4 bytes are already whole lines of 128.
_NARROW_BYTES = 2
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
            advice="let the compiler use wider accesses: rows that are multiples of 16 bytes, strides and offsets that "
            "it knows to be (tl.multiple_of, tl.max_contiguous), and masks that are equal for neighbours",
            figures={"access_bytes": worst.access_bytes},
            likely=share / 3,
        ),
        around=operation,
    )


def _could_be_wider(evidence: Evidence, request: Requests, one: CountedOperation) -> bool:
    if request.is_uncoalesced or request.access_bytes > _NARROW_BYTES or one.access is None:
        return False
    of_thread = one.access.whole_bytes / (THREADS_PER_WARP * evidence.kernel.requested_warps)
    return of_thread >= 2 * request.access_bytes
