"""Fusion of multiplications and additions into fused multiply-adds, which round once instead of twice."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit

_OPTION = "enable_fp_fusion"
_VALUES = {"on": True, "off": False}


class FpFusion(EditKind):
    """The option ``enable_fp_fusion``. It changes results, which are then compared within the tolerance."""

    name = "fp_fusion"
    values = "on or off"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return ``on`` if the program turned it off."""
        return ["on"] if kernel.option(_OPTION) is False else []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the option."""
        if value not in _VALUES:
            raise EditRefused(f"{value} is neither on nor off")
        return kernel.with_option(_OPTION, _VALUES[value])
