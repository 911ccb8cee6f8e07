"""Work that each CTA repeats, although its result is the same in all of them."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.structure.dependence import operations_of_any_cta
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent
from kprof_inject.ttgir.dialect import DIVISIONS
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import types_of

# With fewer CTAs, computing it once saves little of the time of all SMs.
_MIN_CTAS = 2


def same_in_all_ctas(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield costly arithmetic that depends neither on the program id nor on what a CTA loads for itself."""
    if evidence.executed is None or evidence.summary.ctas < _MIN_CTAS:
        return
    function = entry_function(evidence.executed.module)
    if function is None:
        return
    same = [
        one
        for one in operations_of_any_cta(evidence.executed.module, function)
        if not one.traits.is_constant and not one.traits.reads_global
    ]
    costly = [one for one in same if _is_costly(one)]
    share = evidence.time_share_of(same) if costly else 0.0
    if share < MIN_SHARE:
        return
    what = evidence.names_of(costly)
    yield evidence.at(
        costly,
        Finding(
            rule="same-in-all-ctas",
            scope=None,
            share=evidence.max_gain_without(same, share),
            text=f"each of {evidence.summary.ctas} CTAs computes the same: {what}, with what these need, take "
            f"{percent(share)} of the warps' time",
            advice="compute it once, before the launch or in a small kernel of its own, and load the result: a table",
            figures={"operations": len(same), "time_share": share},
            likely=share,
        ),
    )


def _is_costly(one: Operation) -> bool:
    is_slow = one.traits.is_transcendental or one.name in DIVISIONS or one.traits.is_dot
    return is_slow and any(printed.shape for printed in types_of(one))
