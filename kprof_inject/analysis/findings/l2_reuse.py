"""Operands that are read from DRAM again and again, because CTAs that run at once do not share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.interpreter.footprints import Ranges, union
from kprof_inject.analysis.roofs.limits import DRAM
from kprof_inject.analysis.roofs.unit_rates import L2
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture import counters
from kprof_inject.quantities import percent, ratio, size_text
from kprof_inject.ttgir.nodes import Operation

_OTHER_ORDER = (
    "change the order of tiles so that CTAs that run at once share operands: group program ids (8 rows of tiles at a "
    "time, tl.swizzle2d), or let a CTA loop over the tiles that need the same data"
)
# On an H100, a second pass that ran backwards over 117 MB won 2.3 % of a launch of 157 us.
_OTHER_PASS = (
    "CTAs read their data in several passes: run every other pass backwards, so that it starts with what is still in "
    "the L2; or give a CTA so little at a time that the L2, or its registers, hold it until the next pass"
)
_MIN_PASSES = 1.5  # on average over the bytes: some may be read once
# Tiles of a matmul in a good order read each operand once or twice from DRAM.
_MIN_REREAD = 2.0
# With DRAM less busy, its bytes are not what the launch waits for, unless most loads do.
_MIN_DRAM, _MIN_DRAM_IF_MISSED, _MANY_HITS = 0.4, 0.25, 0.6


def l2_reuse(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield launches that read several times as many bytes from DRAM as there are to read; needs counters."""
    dram, measured = evidence.speed_of_light.dram, evidence.measured
    if dram is None or dram.unknown or measured is None or dram.fits_l2 or not dram.read_bytes:
        return
    read = measured.metric(counters.DRAM_READ_BYTES)
    again = read / dram.read_bytes
    hits = measured.metric(counters.L2_HIT_PERCENT) / 100
    min_dram = _MIN_DRAM if hits >= _MANY_HITS else _MIN_DRAM_IF_MISSED
    if again < _MIN_REREAD or evidence.parts.get(DRAM, 0.0) < min_dram:
        return
    moved = read + measured.metric(counters.DRAM_WRITE_BYTES)
    extra = read - dram.read_bytes
    has_passes = _reads_its_own_again(evidence, dram.read_bytes)
    # The L2 is busy with what it gets from DRAM, too.
    if has_passes:
        kept = min(extra, (again - 1) * (evidence.kernel.l2_bytes or extra))
        share = evidence.max_gain_of_units(dict.fromkeys((DRAM, L2), kept / moved))
    else:
        share = evidence.max_gain(dict.fromkeys((DRAM, L2), extra / moved))
    if share < MIN_SHARE:
        return
    yield Finding(
        rule="l2-reuse",
        scope=None,
        share=share,
        text=f"no reuse in the L2: DRAM reads {size_text(round(read))}, {ratio(again)} the "
        f"{size_text(dram.read_bytes)} that the launch needs (L2 hit rate {percent(hits)})",
        advice=_OTHER_PASS if has_passes else _OTHER_ORDER,
        figures={"read_bytes": read, "needed_bytes": dram.read_bytes, "ratio": again},
        likely=(0.3 if has_passes else 0.7) * share,  # writes and other CTAs also take room in the L2
    )


def _reads_its_own_again(evidence: Evidence, needed_bytes: int) -> bool:
    """Return True if each load reads its bytes once, but several loops read the same.

    Loads of one loop that overlap, such as a stencil's, do so at nearly the same time.
    """
    by_loop: defaultdict[Operation, list[Ranges]] = defaultdict(list)
    for one in evidence.executed.operations if evidence.executed else ():
        access = one.access
        if access is None or not access.form.reads or not one.times:
            continue
        touched, requested_bytes = access.touched(), access.requested_bytes(one.times)
        if touched is None or requested_bytes is None or requested_bytes > max(touched.size_bytes, needed_bytes // 10):
            return False
        if (loop := one.operation.loop) is not None:
            by_loop[loop].append(touched)
    return sum(union(ranges).size_bytes for ranges in by_loop.values()) >= _MIN_PASSES * needed_bytes
