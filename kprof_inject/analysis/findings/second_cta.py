"""CTAs that share an SM but get hardly more done than one alone."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent, short_time

# The gain in a capture is mostly an upper bound: limited to one CTA per SM on an H200, eleven of twelve kernels lost
# less than their capture says; the other lost 80 % instead of 51 %.
_MAX_GAIN = 0.15
# A loop at its roof cannot use more CTAs, and the launch's limit already says so.
_AT_ROOF = 0.8
# CTAs that share an SM also alternate in writing records, so with a larger part of the warps' time, records may be what
# fills the SM.
_MAX_RECORDS_SHARE = 0.10


def second_cta(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield loops that gain little from a second CTA on an SM.

    Most launches do not show it: their SMs have the same number of CTAs all the time, or one.
    """
    summary = evidence.summary
    if not any(scope.kind == ScopeKind.ITERATION for scope in summary.scopes):
        return
    if missing := missing_ctas(evidence.timeline, summary):
        yield missing
        return
    if summary.subtracted_ns > _MAX_RECORDS_SHARE * summary.warp_time_ns:
        return
    roofs = {roof.index: roof.part for roof in evidence.light.roofs}
    for scope in summary.scopes:
        sharing = scope.sharing
        if sharing is None or sharing.gain >= _MAX_GAIN or roofs.get(scope.index, 0.0) >= _AT_ROOF:
            continue
        gain = max(sharing.gain, 0.0)
        yield Finding(
            rule="second-cta",
            scope=scope.scope,
            index=scope.index,
            share=gain / (1 + gain),
            text=f"one CTA nearly fills an SM: {sharing.ctas} CTAs get {percent(abs(sharing.gain))} "
            f"{'more' if sharing.gain >= 0 else 'less'} done than one, with an iteration of {scope.distinct_name} "
            f"every {short_time(sharing.shared_ns)} instead of every {short_time(sharing.alone_ns)}",
            advice="more CTAs per SM gain little: spend registers and shared memory on larger tiles or more stages "
            "instead",
            figures={
                "ctas": sharing.ctas,
                "gain": sharing.gain,
                "alone_ns": sharing.alone_ns,
                "shared_ns": sharing.shared_ns,
            },
        )
