"""Operations that tell a CTA which one it is, apart from program ids."""

from __future__ import annotations

import re

from kprof_inject.ttgir.nodes import Operation

_OPERATIONS = ("gpu.block_id", "ttng.clc_", "nvvm.read.ptx.sreg.ctaid")
_REGISTERS = re.compile(r"%(?:n?ctaid|n?clusterid|cluster_n?cta|smid)")


def reads_cta_id(operation: Operation) -> bool:
    """Return whether an operation reads the number of its CTA, or of its cluster or SM."""
    return operation.name.startswith(_OPERATIONS) or (
        operation.traits.is_foreign and _REGISTERS.search(operation.tail) is not None
    )
