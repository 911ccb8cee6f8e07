"""Number of stages in which Triton pipelines loops."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kprof_inject.runtime.experiments.edits.edit import EditKind, KernelToEdit, number_in

_MAX_STAGES = 8
_MAX_PROPOSED = 6
_STEPS = 2
_LOOP = re.compile(r"\bscf\.for\b")


class NumStages(EditKind):
    """The option ``num_stages``."""

    name = "num_stages"
    values = f"1 to {_MAX_STAGES}"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return up to two more stages; none if there is no loop to pipeline."""
        present = kernel.number(self.name)
        wanted = range(present + 1, min(present + _STEPS, _MAX_PROPOSED) + 1)
        return [str(stages) for stages in wanted] if present and _LOOP.search(kernel.ttir) else []

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return up to two stages less; none if there is no loop to pipeline."""
        present = kernel.number(self.name)
        wanted = range(present - 1, max(present - _STEPS, 1) - 1, -1)
        return [str(stages) for stages in wanted] if _LOOP.search(kernel.ttir) else []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the option."""
        return kernel.with_option(self.name, number_in(value, 1, _MAX_STAGES))
