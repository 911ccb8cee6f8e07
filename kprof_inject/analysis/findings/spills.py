"""Registers that the compiler keeps in memory."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.roofs.limits import DRAM
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent

_LOCAL_ACCESSES = frozenset(("LDL", "STL"))


def spills(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield spills whose accesses take a notable part of the instructions or of the warps' time."""
    spilled = evidence.kernel.clean.spills
    if not spilled or evidence.machine_code is None:
        return
    share = evidence.time_share_of_instructions(_LOCAL_ACCESSES)
    waste = evidence.dram_waste  # what does not fit into the L2
    removed = {**dict.fromkeys(evidence.parts, 1.0), DRAM: 1.0 if waste is None else waste}
    gain = min(share, evidence.max_gain(removed))
    if gain < MIN_SHARE:
        return
    yield Finding(
        rule="spills",
        scope=None,
        share=gain,
        text=f"registers do not suffice: each thread keeps {spilled} in local memory, whose accesses take "
        f"{percent(share)} of the warps' time",
        advice="use fewer registers per thread: more warps (num_warps), or smaller tiles"
        + (", or no maxnreg" if evidence.kernel.metadata.get("maxnreg") else ""),
        figures={"spills": spilled, "time_share": share},
    )
