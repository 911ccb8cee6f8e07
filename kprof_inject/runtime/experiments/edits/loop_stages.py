"""Number of stages of single loops, which is otherwise an option of the kernel.

Triton pipelines the loads of loops without dots only if the source sets their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit, number_in
from kprof_inject.runtime.experiments.edits.loop_attributes import (
    counted_loops,
    has_attribute,
    has_dots,
    has_loads,
    is_innermost,
    number_of,
    require_understood,
    source_lines,
    with_attribute,
)
from kprof_inject.ttgir.nodes import Operation

_MAX_STAGES = 8
_PROPOSED = ("2", "3", "4")
_MAX_PROPOSED = 6
# Triton's ``kNumStagesAttrName``, which ``tl.range(..., num_stages=N)`` sets.
_ATTRIBUTE = "tt.num_stages"


class LoopStages(EditKind):
    """The attribute of innermost loops that load: of those without dots, or of the loop at a line of the source.

    The line may also be that of the call of a helper with the loop.
    """

    name = "loop_stages"
    values = f"2 to {_MAX_STAGES} for loops without dots, or LINE:N, with N from 1, for the loop at a line"

    def source(self, value: str) -> str:
        """Return the range to write."""
        line, _, stages = value.rpartition(":")
        loops = f"the loop at line {line}" if line else "loops that load without dots"
        return f"tl.range(..., num_stages={stages}) in {loops}"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the usual numbers of stages for loops without dots, then one stage more of each of several loops."""
        proposed = _PROPOSED if _without_stages(kernel) else ()
        lines = [f"{line}:{stages + 1}" for line, stages in _stages_by_line(kernel) if stages < _MAX_PROPOSED]
        return [*proposed, *lines]

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return one stage less of each of several loops; without the attribute, loops without dots have no stages."""
        return [f"{line}:{stages - 1}" for line, stages in _stages_by_line(kernel) if stages > 1]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the attribute in the TTIR."""
        line, is_at_line, number = value.rpartition(":")
        stages = number_in(number, 1 if is_at_line else 2, _MAX_STAGES)
        require_understood(kernel)
        if not is_at_line:
            loops = _without_stages(kernel)
            if not loops:
                raise EditRefused("it has no loop that loads without dots, or the source has chosen their stages")
            return with_attribute(kernel, loops, _ATTRIBUTE, stages)
        loops = _loops_that_load(kernel)
        lines = source_lines(kernel, loops)
        wanted = [loop for loop, of_loop in zip(loops, lines, strict=True) if line in map(str, of_loop)]
        if not wanted:
            raise EditRefused(f"it has no innermost loop that loads at line {line}, nor in a helper called there")
        return with_attribute(kernel, wanted, _ATTRIBUTE, stages)


def _loops_that_load(kernel: KernelToEdit) -> list[Operation]:
    return [loop for loop in counted_loops(kernel) if has_loads(loop) and is_innermost(loop)]


def _without_stages(kernel: KernelToEdit) -> list[Operation]:
    """Return the loops without dots for which the source has not chosen a number of stages."""
    loops = _loops_that_load(kernel)
    return [loop for loop in loops if not has_dots(loop) and not has_attribute(loop, _ATTRIBUTE)]


def _stages_by_line(kernel: KernelToEdit) -> list[tuple[int, int]]:
    """Return a line that no other loop has, and the number of stages, of each loop that loads; none of a single one."""
    loops = _loops_that_load(kernel)
    if len(loops) < 2:
        return []
    lines = source_lines(kernel, loops)
    counts = Counter(line for of_loop in lines for line in of_loop)
    found = []
    for loop, of_loop in zip(loops, lines, strict=True):
        default = kernel.number("num_stages") if has_dots(loop) else 1
        own = next((line for line in of_loop if counts[line] == 1), None)
        if own is not None:
            found.append((own, number_of(loop, _ATTRIBUTE) or default))
    return found
