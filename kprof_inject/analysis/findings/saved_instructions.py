"""Estimate the gain of a launch that issues fewer instructions, for rules on masks and on addresses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.roofs.limits import LIMITING
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, ISSUE

# As for other work that is counted in the machine code: see ``loop_work``.
_MIN_SHARE = 0.05
# Two measurements of one kernel differ by as much.
_MIN_LIKELY = 0.02
# As for narrow accesses: a launch that issues fewer instructions does not wait for them.
_MIN_BUSY = 0.3
# Units that have less to do with fewer instructions.
_UNITS = (ISSUE, ALU, FP32)


class Saving(Struct, frozen=True):
    """Instructions that a launch need not issue: their share of all, and the gain."""

    issued_share: float
    bound: float
    """An upper bound of the gain, as part of the launch's time."""
    likely: float
    """The part of the launch's time in which an SM issues them: a kernel that waits for memory hides their latency."""


def may_gain(evidence: Evidence) -> bool:
    """Return whether fewer instructions may help a launch: it issues many, and no other unit limits it."""
    unit, part = evidence.busiest
    is_limited = part >= LIMITING and unit not in _UNITS
    return evidence.parts.get(ISSUE, 0.0) >= _MIN_BUSY and not is_limited


def saving_of(evidence: Evidence, removed: Mapping[int, float]) -> Saving | None:
    """Return what a launch gains if each instruction loses a part, by its address; None if that is hardly anything.

    Ask ``may_gain`` first.
    """
    share = evidence.issued_share_of_instructions(removed)
    bound = evidence.max_gain_with_fewer_instructions(share)
    likely = min(share * evidence.parts.get(ISSUE, 0.0), bound)
    if min(share, bound) < _MIN_SHARE or likely < _MIN_LIKELY:
        return None
    return Saving(share, bound, likely)
