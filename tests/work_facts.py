"""Work in files of cases: one fact a kind, ``f16 2 * 128 * 64 * 32`` or ``special 128``, or ``nothing``."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.analysis.limits.operation_work import Work

_KINDS = set(Work.__struct_fields__)


def work_named(facts: Sequence[str]) -> Work:
    """Return the work of these facts; what is no field of ``Work`` is an element type that tensor cores multiply."""
    counts = {kind: eval(count) for kind, _, count in (fact.partition(" ") for fact in facts if fact != "nothing")}
    flops = {kind: count for kind, count in counts.items() if kind not in _KINDS}
    return Work(flops, **{kind: count for kind, count in counts.items() if kind in _KINDS})
