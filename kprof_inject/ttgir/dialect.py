"""What an operation of TTGIR is."""

from __future__ import annotations

TERMINATORS = frozenset(
    {
        "cf.br",
        "cf.cond_br",
        "cf.switch",
        "scf.condition",
        "scf.yield",
        "tt.map_elementwise.return",
        "tt.reduce.return",
        "tt.return",
        "tt.scan.return",
        "ttg.mask.return",
        "ttg.warp_return",
        "ttg.warp_specialize.partitions",
        "ttg.warp_yield",
        "ub.unreachable",
    }
)
"""The last operation of a block: nothing may stand behind it."""
