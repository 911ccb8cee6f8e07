"""Number of stages of loops that load without dots. Triton pipelines these only if the source sets it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kprof_inject.errors import KprofError
from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.runtime.experiments.edits.edit import EditRefused, KernelToEdit, number_in
from kprof_inject.ttgir.nodes import Module, Operation

_MAX_STAGES = 8
_PROPOSED = ("2", "3", "4")
_LOOP, _LOAD = "scf.for", "tt.load"
# Triton's ``kNumStagesAttrName``, which ``tl.range(..., num_stages=N)`` sets. The pipeliner takes loops without dots
# only if they have it.
_ATTRIBUTE = "tt.num_stages"


class LoopStages:
    """The attribute of innermost loops that load, and have no dots."""

    name = "loop_stages"
    values = f"2 to {_MAX_STAGES}"
    edits_ttgir = False
    source = "tl.range(..., num_stages={}) in loops that load without dots"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the usual numbers of stages; none if there is no such loop."""
        try:
            loops = list(_loops_of(kernel.parsed("ttir")))
        except KprofError:
            return []
        return _PROPOSED if loops else []

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return nothing: without the attribute, these loops have no stages."""
        return []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the attribute in the TTIR."""
        stages = number_in(value, 2, _MAX_STAGES)
        recompiled = kernel.to_recompile()
        try:
            module = kernel.parsed("ttir")
        except KprofError as error:
            raise EditRefused(error.what) from None
        edits = [_edit_of(loop, stages) for loop in _loops_of(module)]
        if not edits:
            raise EditRefused("it has no loop that loads without dots, or the source has chosen their stages")
        return replace(recompiled, ttir=spliced(kernel.ttir, edits))


def _loops_of(module: Module) -> Iterator[Operation]:
    """Yield the innermost loops that load, have no dots, and none of Triton's attributes."""
    for loop in (one for one in module.walk() if one.name == _LOOP):
        inside = [one for one in loop.walk() if one is not loop]
        has_loads = any(one.name == _LOAD for one in inside)
        if (
            has_loads
            and not any(one.traits.is_dot or one.traits.is_loop for one in inside)
            and not _has_attributes(loop)
        ):
            yield loop


def _has_attributes(loop: Operation) -> bool:
    return loop.closing.removeprefix("}").lstrip().startswith("{")


def _edit_of(loop: Operation, stages: int) -> Replacement:
    """Return the text that follows the brace that closes the loop."""
    place = loop.regions[-1].end + 1
    return place, place, f" {{{_ATTRIBUTE} = {stages} : i32}}"
