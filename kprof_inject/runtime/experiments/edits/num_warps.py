"""Number of warps of a CTA."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit, number_in

# A CTA has at most 1024 threads (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
_MAX_WARPS = 32
_MAX_PROPOSED = 16
_STEPS_UP, _STEPS_DOWN = 4, 2
_WARP_SPECIALIZED = ("ttg.warp_specialize", "tt.warp_specialize", "nvws.")


class NumWarps(EditKind):
    """The option ``num_warps``."""

    name = "num_warps"
    values = f"a power of two from 1 to {_MAX_WARPS}"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return twice as many warps, four times as many, and so on."""
        wanted = [kernel.number(self.name) << step for step in range(1, _STEPS_UP + 1)]
        return [str(warps) for warps in wanted if 0 < warps <= _MAX_PROPOSED]

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return half and a quarter of the warps."""
        wanted = [kernel.number(self.name) >> step for step in range(1, _STEPS_DOWN + 1)]
        return [str(warps) for warps in wanted if warps]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the option. Partitions of a warp-specialized kernel have their own numbers of warps."""
        warps = number_in(value, 1, _MAX_WARPS)
        if warps & (warps - 1):
            raise EditRefused(f"{value} is not a power of two")
        if any(word in text for word in _WARP_SPECIALIZED for text in (kernel.ttir, kernel.ttgir)):
            raise EditRefused("its partitions have their own numbers of warps (warp specialization)")
        return kernel.with_option(self.name, warps)
