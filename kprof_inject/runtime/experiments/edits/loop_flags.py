"""Switches of single loops: what ``tl.range`` has a parameter for that is either set or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kprof_inject.capture.resources import BLACKWELL
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit
from kprof_inject.runtime.experiments.edits.loop_attributes import (
    counted_loops,
    has_attribute,
    has_dots,
    inside,
    is_innermost,
    require_understood,
    with_attribute,
)
from kprof_inject.ttgir.nodes import Operation


@dataclass(frozen=True, slots=True)
class LoopFlag(EditKind):
    """An attribute without a value, for the loops that ``suits``, on NVIDIA's architectures from ``first_arch`` on.

    ``missing`` is the reason if there is no such loop.
    """

    name: str
    attribute: str
    suits: Callable[[Operation], bool]
    missing: str
    values: str = "on"
    first_arch: int = 0

    def source(self, value: str) -> str:
        """Return the range to write."""
        return f"tl.range(..., {self.attribute.removeprefix('tt.')}=True)"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the only value, if there is such a loop."""
        return [self.values] if not self._objection(kernel) and self._loops_of(kernel) else []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the attribute in the TTIR."""
        if value != self.values:
            raise EditRefused(f"{value} is not {self.values}")
        if objection := self._objection(kernel):
            raise EditRefused(objection)
        require_understood(kernel)
        loops = self._loops_of(kernel)
        if not loops:
            raise EditRefused(f"{self.missing}, or the source has set it")
        return with_attribute(kernel, loops, self.attribute, None)

    def _objection(self, kernel: KernelToEdit) -> str:
        is_old = kernel.cuda_arch < self.first_arch
        return f"it needs sm_{self.first_arch} or newer" if is_old else ""

    def _loops_of(self, kernel: KernelToEdit) -> list[Operation]:
        return [loop for loop in counted_loops(kernel) if self.suits(loop) and not has_attribute(loop, self.attribute)]


def _has_one_loop(loop: Operation) -> bool:
    """Return whether exactly one loop is inside, directly, and its iterations are counted."""
    loops = [operation for operation in inside(loop) if operation.traits.is_loop]
    return len(loops) == 1 and loops[0].traits.is_counted and next(loops[0].ancestors(), None) is loop


def _is_innermost_with_dots(loop: Operation) -> bool:
    return is_innermost(loop) and has_dots(loop)


FLATTEN = LoopFlag("flatten", "tt.flatten", _has_one_loop, "it has no loop with exactly one loop inside")
"""One loop instead of two, so that the inner loop is pipelined across iterations of the outer one."""

WARP_SPECIALIZE = LoopFlag(
    "warp_specialize",
    "tt.warp_specialize",
    _is_innermost_with_dots,
    "it has no innermost loop with dots",
    first_arch=BLACKWELL,
)
"""Loads and dots by warps of their own. Triton supports simple loops, on Blackwell alone (``tl.range``)."""

ONE_ACCUMULATOR = LoopFlag(
    "acc_multi_buffer",
    "tt.disallow_acc_multi_buffer",
    _is_innermost_with_dots,
    "it has no innermost loop with dots",
    values="off",
    first_arch=BLACKWELL,
)
"""One buffer for a dot's accumulator, which takes less tensor memory."""
