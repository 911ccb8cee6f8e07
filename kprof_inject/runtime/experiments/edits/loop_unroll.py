"""Unrolling of innermost loops by Triton, which then has several iterations' loads and arithmetic to interleave."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit
from kprof_inject.runtime.experiments.edits.loop_attributes import (
    counted_loops,
    has_attribute,
    has_dots,
    is_innermost,
    require_understood,
    with_attribute,
)
from kprof_inject.ttgir.nodes import Operation

_FACTORS = ("2", "4")
# ``tl.range(..., loop_unroll_factor=N)`` sets it.
_ATTRIBUTE = "tt.loop_unroll_factor"


class LoopUnroll(EditKind):
    """The factor of innermost loops without dots. Triton unrolls before it pipelines."""

    name = "loop_unroll"
    values = " or ".join(_FACTORS)

    def source(self, value: str) -> str:
        """Return the range to write."""
        return f"tl.range(..., loop_unroll_factor={value}) in innermost loops without dots"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the factors; none if there is no such loop."""
        return _FACTORS if _loops_of(kernel) else []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the attribute in the TTIR."""
        if value not in _FACTORS:
            raise EditRefused(f"{value} is none of {self.values}")
        require_understood(kernel)
        loops = _loops_of(kernel)
        if not loops:
            raise EditRefused("it has no innermost loop without dots, or the source has chosen the factors")
        return with_attribute(kernel, loops, _ATTRIBUTE, int(value))


def _loops_of(kernel: KernelToEdit) -> list[Operation]:
    return [
        loop
        for loop in counted_loops(kernel)
        if is_innermost(loop) and not has_dots(loop) and not has_attribute(loop, _ATTRIBUTE)
    ]
