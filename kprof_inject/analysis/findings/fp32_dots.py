"""Dots of fp32 operands that do not run on the tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.roofs.limits import POSSIBLE
from kprof_inject.analysis.roofs.operation_work import work_of
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, ISSUE, SHARED
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent


def fp32_dots(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield dots that multiply with the fp32 units, if these or the issue of their instructions limit the launch."""
    busy = max((evidence.parts.get(unit, 0.0) for unit in (FP32, ISSUE, SHARED)), default=0.0)
    if evidence.executed is None or busy < POSSIBLE:
        return
    aliases = evidence.executed.module.aliases
    dots = [
        one.operation
        for one in evidence.executed.operations
        if one.operation.traits.is_dot and work_of(one.operation, aliases).multiplications
    ]
    if not dots:
        return
    share = evidence.max_gain(dict.fromkeys((FP32, ALU, ISSUE, SHARED), max(evidence.issued_share_of(dots), POSSIBLE)))
    if share < MIN_SHARE:
        return
    yield evidence.at(
        dots,
        Finding(
            rule="fp32-dots",
            scope=None,
            share=share,
            text=f"{evidence.words_of(dots[0])} multiplies with the fp32 units "
            f"({percent(evidence.parts.get(FP32, 0.0))} of peak), not with the tensor cores",
            advice="use the tensor cores: input_precision='tf32' or 'tf32x3' in tl.dot, or operands of 16 bits, if the "
            "results stay accurate enough",
            figures={"dots": len(dots)},
            likely=0.8 * share,
        ),
    )
