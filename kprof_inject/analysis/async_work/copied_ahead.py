"""How far ahead a pipelined loop copies, by its module and its launch alone."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.capture.model import Kernel
from kprof_inject.ttgir.copy_groups import CopyPipeline


@dataclass(frozen=True, slots=True)
class CopiedAhead:
    """The copies of a pipelined loop: ``stage_bytes`` for each iteration of a CTA, ``depth`` iterations ahead."""

    depth: int
    stage_bytes: int
    ctas_per_sm: int

    def bytes_per_sm(self, more_stages: int = 0) -> int:
        """Return the maximum number of bytes in flight for the CTAs of an SM."""
        return (self.depth + more_stages) * self.stage_bytes * self.ctas_per_sm


def copied_ahead(ran: ExecutedKernel, kernel: Kernel, pipeline: CopyPipeline) -> CopiedAhead:
    """Return the copies of a loop, with as many CTAs on an SM as the kernel has without records."""
    accesses = (one.access for one in ran.of_loop(pipeline.loop))
    stage_bytes = sum(
        access.whole_bytes for access in accesses if access and access.form.reads and not access.form.by_registers
    )
    return CopiedAhead(pipeline.depth, stage_bytes, kernel.clean.ctas_per_sm or 1)
