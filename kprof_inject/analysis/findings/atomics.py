"""Atomic operations that wait for each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.waste import Waste, row
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import TooLarge
from kprof_inject.analysis.interpreter.footprints import max_repeats
from kprof_inject.analysis.limits.rates import L2, SHARED
from kprof_inject.capture import counters
from kprof_inject.quantities import percent

# An operation of fewer elements is a lock or a counter of a CTA.
_MIN_ELEMENTS = 32
# Part of the warps' time in atomic operations, or of the requests to global memory, from which they may limit a launch.
_MIN_TIME, _MIN_REQUESTS = 0.1, 0.1
# Those that wait for no other one overlap other accesses: on an H100, 65 % of the time won 30 %, and 13 % won 1.6 %.
_MIN_TIME_APART = 0.25
# Reasons of warps that wait because accesses before theirs are not done.
_QUEUES = "lg_throttle", "drain"
# Reason of warps that wait for a fence, which orders accesses: an atomic operation has two, unless it is relaxed.
_FENCE, _MIN_FENCES = "membar", 0.1
_ORDERED = re.compile(r"\b(?:acq_rel|acquire|release)\b")
# CTAs that update an address less often seldom do so at the same time.
_MANY_UPDATES = 32
# Part of the time that no unit explains, from which atomic operations may limit a launch without counters.
_MIN_UNEXPLAINED = 0.5


@row
def atomics(evidence: Evidence) -> Iterator[Waste]:
    """Yield atomic operations on each element of a tensor, which could be combined in the CTA first."""
    for one in evidence.operations:
        access = one.access
        if not one.operation.traits.is_atomic or access is None:
            continue
        elements = access.whole_bytes // max(access.element_bytes, 1)
        time_share = evidence.time_share_of([one.operation])
        repeats, updates, removed = _repeats(access), _updates(access, one.times), {L2: 1.0, SHARED: 1.0}
        # No element waits for another of its CTA, and few for other CTAs' elements.
        is_apart = repeats == 1 and updates < _MANY_UPDATES
        gain, queues = evidence.max_gain(removed), _queue_share(evidence)
        is_busy = time_share >= _MIN_TIME or _request_share(evidence) >= _MIN_REQUESTS
        if is_apart and evidence.stalls is not None:
            bound = max(evidence.max_gain_of_units(removed), evidence.bound_of(time_share))
            gain, is_busy = min(gain, bound + queues), time_share + queues >= _MIN_TIME_APART
        if evidence.measured is None:
            is_busy = gain >= _MIN_UNEXPLAINED
        if elements < _MIN_ELEMENTS or not is_busy:
            continue
        shared, combine = _how_to_combine(repeats, updates)
        fences = evidence.stalls.reasons.get(_FENCE, 0) / evidence.stalls.samples if evidence.stalls else 0.0
        if fences >= _MIN_FENCES and _ORDERED.search(one.operation.tail):
            shared += f", each ordered with all other accesses (warps wait {percent(fences)} of their time for that)"
            combine = f"pass sem='relaxed', if only later launches read the result; else {combine}"
        text = f"{evidence.words_of(one.operation)} updates {elements} elements at a time{shared}; warps spend "
        text += f"{percent(time_share)} of their time in it"
        yield Waste(
            text,
            combine,
            removed=removed,
            operations=(one.operation,),
            certainty=1.0 if time_share >= _MIN_TIME and not is_apart else 0.5,
            figures={"elements": elements, "time_share": time_share, "repeats": repeats or 0},
            gain=gain,
        )


def _request_share(evidence: Evidence) -> float:
    """Return the share of atomic operations among the requests of warps to global memory; 0 if it was not counted."""
    if evidence.measured is None:
        return 0.0
    atomic = sum(map(evidence.measured.metric, (counters.ATOMIC_REQUESTS, counters.REDUCTION_REQUESTS)))
    others = sum(map(evidence.measured.metric, (counters.LOAD_REQUESTS, counters.STORE_REQUESTS)))
    return atomic / (atomic + others) if atomic else 0.0


def _queue_share(evidence: Evidence) -> float:
    """Return the share of the warps' time in queues, which atomic operations fill that no warp awaits."""
    stalls = evidence.stalls
    return sum(stalls.reasons.get(reason, 0) for reason in _QUEUES) / stalls.samples if stalls else 0.0


def _how_to_combine(repeats: int | None, updates: float) -> tuple[str, str]:
    """Describe how many elements of an operation share an address, and suggest a remedy."""
    if repeats is None:
        return "", (
            "combine elements with one address in the CTA first, if there are many (the addresses are unknown here): a "
            "reduction (tl.sum), or a histogram (tl.histogram, or comparisons with each bin)"
        )
    if repeats > 1:
        return f", up to {repeats} of them at one address", (
            "combine the elements of an address in the CTA (tl.sum, tl.max, tl.reduce), and issue one atomic operation "
            "for it"
        )
    if updates == 1:
        return ", and each address once", "store instead, as no two updates share an address"
    return ", each at an address of its own", (
        "let a CTA do the work of several that update the same addresses, in a loop (but leave enough CTAs for all "
        "SMs), or store what each CTA computes, and combine it in a second kernel"
    )


def _updates(access: Access, times: int | None) -> float:
    """Return how many elements of all CTAs update an address, on average; infinite if that is unknown."""
    touched, requested_bytes = access.touched(), access.requested_bytes(times)
    if touched is None or not touched.size_bytes or requested_bytes is None:
        return math.inf
    return requested_bytes / touched.size_bytes


def _repeats(access: Access) -> int | None:
    """Return an upper bound of the elements in an execution that share an address."""
    with suppress(TooLarge):
        return max_repeats(access.address, access.shape) if access.address is not None else None
    return None
