"""CTAs that share an SM, and get hardly more done than one alone."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import Evidence, Finding
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent, short_time

# Without the others, eleven kernels of twelve lost less on an H200 than the capture says; the other, of which it says
# 51 %, lost 80.
_LITTLE = 0.15
# At its roof, a loop has no use for more CTAs; the launch's limit says so.
_AT_ROOF = 0.8
# Records take turns, too: where they take more of the warps' time, they may be what fills the SM.
_MOST_FOR_RECORDS = 0.10


def second_cta(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Most launches do not tell: their SMs have as many CTAs at all times, or one."""
    summary = evidence.summary
    if not any(scope.kind == ScopeKind.ITERATION for scope in summary.scopes):
        return
    if missing := missing_ctas(evidence.timeline, summary):
        yield missing
        return
    if summary.subtracted_ns > _MOST_FOR_RECORDS * summary.warp_time_ns:
        return
    roofs = {roof.index: roof.part for roof in evidence.light.roofs}
    for scope in summary.scopes:
        sharing = scope.sharing
        if sharing is None or sharing.gain >= _LITTLE or roofs.get(scope.index, 0.0) >= _AT_ROOF:
            continue
        gain = max(sharing.gain, 0.0)
        yield Finding(
            rule="second-cta",
            scope=scope.scope,
            index=scope.index,
            share=gain / (1 + gain),
            text=f"one CTA nearly fills an SM: {sharing.ctas} CTAs get {percent(abs(sharing.gain))} "
            f"{'more' if sharing.gain >= 0 else 'less'} done, with an iteration of {scope.distinct_name} every "
            f"{short_time(sharing.shared_ns)} instead of every {short_time(sharing.alone_ns)}",
            advice="more CTAs per SM gain little: spend registers and shared memory on larger tiles or more stages "
            "instead",
            figures={
                "ctas": sharing.ctas,
                "gain": sharing.gain,
                "alone_ns": sharing.alone_ns,
                "shared_ns": sharing.shared_ns,
            },
        )
