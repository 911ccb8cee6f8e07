"""Units that take turns, because each warp uses one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.roofs.limits import LIMITING, MIN_NOTABLE, MIN_TOGETHER, UNIT_NAMES
from kprof_inject.analysis.roofs.unit_rates import FP32, SPECIAL, TENSOR
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import BLACKWELL
from kprof_inject.quantities import percent


def alternating_units(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield tensor cores that rest while other arithmetic goes on, and the other way round."""
    tensor = evidence.parts.get(TENSOR, 0.0)
    other = max((SPECIAL, FP32), key=lambda unit: evidence.parts.get(unit, 0.0))
    part = evidence.parts.get(other, 0.0)
    if min(tensor, part) < MIN_NOTABLE or tensor + part < MIN_TOGETHER or evidence.busiest[1] >= LIMITING:
        return
    share = evidence.max_gain()
    if share < MIN_SHARE:
        return
    backend, _, architecture = evidence.kernel.target.partition(":")
    is_specializable = backend == "cuda" and int(architecture) >= BLACKWELL
    specialized = ", or warp specialization (tl.range(..., warp_specialize=True))" if is_specializable else ""
    room = evidence.kernel.clean.ctas_per_sm
    more_than = f" than the {room} that {'fits' if room == 1 else 'fit'} now" if room else ""
    yield Finding(
        rule="alternating-units",
        scope=None,
        share=share,
        text=f"{UNIT_NAMES[TENSOR]} ({percent(tensor)} of peak) and {UNIT_NAMES[other]} ({percent(part)}) work in turn",
        advice=f"let dots overlap the other arithmetic: more CTAs on an SM{more_than} (fewer registers, smaller "
        f"tiles), or two halves of a tile that take turns{specialized}",
        figures={"tensor": tensor, "other": part},
        likely=share / 3,
    )
