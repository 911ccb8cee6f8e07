"""Warps that have more work than the others of their CTA or partition, which wait for them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding, Results, found, rule
from kprof_inject.analysis.findings.loops import is_wait, time_of_a_warp_ns
from kprof_inject.analysis.summary import ScopeSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records, missing_warps, unpaired_records
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, numbered, percent, ratio, short_time
from kprof_inject.timeline.partitions import shared_scopes
from kprof_inject.ttgir.dialect import CALL

# With two warps, a difference does not show which of them waits for the other.
_MIN_WARPS = 3
# Warps of one CTA share an SM's units and differ by a few percent; 25 % is well beyond that.
_NOTABLE = 1.25
# The shorter time is then mostly the cost of the records, so the ratio means nothing.
_MAX_RATIO = 100


class _Apart(Struct, frozen=True):
    few: NDArray[np.int64]
    many: NDArray[np.int64]
    few_ns: float
    many_ns: float
    max_above_mean_ns: float


@rule(idle="warps")
def imbalanced_warps(evidence: Evidence) -> Results:
    """Yield at most one finding, for the scope with the largest loss: all scopes around it show the imbalance too.

    Slow warps take longer in a scope, and also in the part of it that no inner scope covers: only in the latter, they
    may work while others wait elsewhere. If a barrier makes all warps take as long as the slowest, its own scope may
    show the imbalance, as the slowest warp waits the least. Warps are compared within a partition.
    """
    timeline, summary = evidence.timeline, evidence.summary
    if max(evidence.kernel.num_warps, len(timeline.warps)) < _MIN_WARPS:
        return
    if all(info.kind == ScopeKind.INSTANT for info in timeline.table.scopes):
        yield Unjudged("no scope was recorded", "add --at func --at loop")
        return
    if missing := missing_warps(timeline) if len(timeline.warps) < _MIN_WARPS else missing_records(timeline):
        yield missing
        return
    shared = shared_scopes(timeline.partitions)
    scopes = [
        (is_wait(info), scope)
        for index, (info, scope) in enumerate(zip(timeline.table.scopes, summary.scopes, strict=True))
        if info.kind != ScopeKind.INSTANT and index not in shared
    ]
    for waits in (False, True):
        some = (_finding(evidence, scope, waits) for is_waiting, scope in scopes if is_waiting is waits)
        if findings := [finding for finding in some if finding is not None]:
            yield max(findings, key=lambda finding: finding.share)
            return
    if incomplete := missing_warps(timeline) or unpaired_records(timeline):
        yield incomplete


def _finding(evidence: Evidence, scope: ScopeSummary, waits: bool) -> Finding | None:
    apart = _few_above(scope.warps.ids, -scope.warps.totals_ns if waits else scope.warps_self_ns)
    if apart is None:
        return None
    if not waits:
        with_inner = _few_above(scope.warps.ids, scope.warps.totals_ns)
        is_same = with_inner is not None and np.array_equal(apart.few, with_inner.few)
        if not is_same or apart.few_ns < _NOTABLE * apart.many_ns:
            return None
    alone = _work_of_one_warp(evidence, scope, waits)
    if alone is not None and not (alone and apart.few[0] == scope.warps.ids.min()):
        return None  # the warps' work is the same, so the difference is the hardware's
    whole_ns = time_of_a_warp_ns(evidence)
    share = min(apart.max_above_mean_ns / whole_ns, 1.0)
    if share < MIN_SHARE:
        return None
    ctas = scope.cta_spread.groups if scope.cta_spread is not None else 1
    all_ran_it = ctas == evidence.summary.recorded_ctas
    in_each = "in each CTA" if all_ran_it else f"in each of {counted(ctas, 'CTA')} that ran it"
    few_ns, many_ns = abs(apart.few_ns) / ctas, abs(apart.many_ns) / ctas
    few, many = numbered("warp", apart.few.tolist()), numbered("warp", apart.many.tolist())
    name, source = scope.distinct_name, scope.source or "its source line is unknown"
    do = f"{few} {_verb('do', apart.few)}"
    if waits:
        text = f"{few} {_verb('arrive', apart.few)} last: {many} {_verb('wait', apart.many)} for "
        text += f"{percent(-apart.many_ns / whole_ns)} of their time in {name}, {few} for "
        text += f"{percent(-apart.few_ns / whole_ns)} ({short_time(many_ns)} against {short_time(few_ns)} {in_each})"
        look = f"record what comes before {name} ({source}) to see what {do} that the others do not"
    else:
        is_far = many_ns <= few_ns / _MAX_RATIO
        times = f"more than {_MAX_RATIO} x as long" if is_far else f"{ratio(few_ns / many_ns)} as long"
        text = f"{few} {_verb('take', apart.few)} {times} in {name} as the other {len(apart.many)} warps"
        text += f"{_team(scope, ' of a CTA')} ({short_time(few_ns)} against {short_time(many_ns)} {in_each})"
        look = f"look at what {do} in {name} that the others do not ({source})"
    advice = f"{look}, and spread it over all warps{_team(scope)}"
    if alone:
        text += f"; one warp runs {alone} for all"
        advice = "do that less often, with larger blocks, or in a partition of its own (warp_specialize)"
    slow: dict[str, float | str] = {"slow_warp_ids": ", ".join(map(str, apart.few.tolist()))}
    figures = slow | {"slow_warps": len(apart.few), "mean_ns": few_ns, "other_mean_ns": many_ns}
    return found(evidence, share, text, advice, figures, scope=scope.index)


# One thread runs these for its CTA or partition, and writes of scalars.
_OF_ONE_WARP = ("ttng.arrive_barrier", "ttng.async_tma_", "ttng.barrier_expect", "ttng.tc_gen5_")


def _work_of_one_warp(evidence: Evidence, scope: ScopeSummary, waits: bool) -> str | None:
    """Return an operation of the scope, or before a wait, that one warp runs for all.

    Empty if all warps do the same; None if they may differ, by masks or in foreign or unknown code.
    """
    if evidence.executed is None:
        return None
    lines = None if waits else evidence.timeline.table.scopes[scope.index].lines
    alone = ""
    for one in evidence.operations:
        if lines is not None and not lines[0] <= one.line <= lines[1]:
            continue
        access = one.access
        is_whole = access is None or access.is_whole or (one.times is not None and one.whole_times == one.times)
        if one.operation.traits.is_foreign or one.operation.name == CALL or not is_whole:
            return None
        is_scalar_write = access is not None and access.form.writes and not access.shape
        if not alone and (is_scalar_write or one.operation.name.startswith(_OF_ONE_WARP)):
            alone = evidence.words_of(one.operation)
    return alone


def _team(scope: ScopeSummary, otherwise: str = "") -> str:
    if scope.partition is None:
        return otherwise
    return f" of {'the ' if scope.partition.endswith('partition') else ''}{scope.partition}"


def _few_above(warps: NDArray[np.int64], values: NDArray[np.int64]) -> _Apart | None:
    """Return the warps whose value is nearer to the maximum than to the minimum; None unless they are a minority."""
    if len(warps) < _MIN_WARPS:
        return None
    above = 2 * values > int(values.min()) + int(values.max())
    if not above.any() or 2 * int(above.sum()) >= len(warps):
        return None
    few_ns, many_ns = float(values[above].mean()), float(values[~above].mean())
    return _Apart(warps[above], warps[~above], few_ns, many_ns, float(values.max() - values.mean()))


def _verb(verb: str, warps: NDArray[np.int64]) -> str:
    return verb if len(warps) > 1 else {"do": "does"}.get(verb, f"{verb}s")
