"""Shares of their peak rates that units reach in practice, by device: ``scripts/ceilings`` measures them.

A kernel cannot be expected to use more. Rates are those of ``rates.py``, and DRAM's is memory clock times bus width.
"""

from __future__ import annotations

from collections.abc import Mapping

from kprof_inject.analysis.limits.rates import DRAM, TENSOR

# Units that are missing may reach all of their peak, so that no gain is underestimated. An H200 had 96.1 % of DRAM by
# reads, 93.9 % by writes, 89.5 % by two reads and a write, and 83.3 % by copies; its tensor cores were busy for 99.1 to
# 99.5 % of the cycles. Kernels that only stream reached 91 to 94 % of an H100's DRAM bandwidth.
_DEFAULT: Mapping[str, float] = {DRAM: 0.96, TENSOR: 0.99}
_CEILINGS: Mapping[str, Mapping[str, float]] = {
    "NVIDIA H100 80GB HBM3": {DRAM: 0.94},
    "NVIDIA H200": {DRAM: 0.96, TENSOR: 0.99},
}


def ceiling(device_name: str, unit: str) -> float:
    """Return the largest share of a unit's peak rate that is reached in practice; ``device_name`` is torch's."""
    return _CEILINGS.get(device_name, _DEFAULT).get(unit, _DEFAULT.get(unit, 1.0))
