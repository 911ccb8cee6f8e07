"""Number of CTAs of a cluster, which share the work of a program.

Triton's launchers multiply the grid by it (all supported versions; 3.5 along the axes of the tile, others along x), and
program ids number clusters. So each program still computes its tile, for any grid.
"""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.errors import KprofError
from kprof_inject.runtime.experiments.edits.cta_ids import reads_cta_id
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit
from kprof_inject.select.replay_safety import relaunch
from kprof_inject.ttgir.nodes import Module

_COUNTS = (1, 2, 4)
_FIRST_ARCH = 90
_DESCRIPTOR = "!tt.tensordesc"


class NumCtas(EditKind):
    """The option ``num_ctas``."""

    name = "num_ctas"
    values = "1, 2 or 4"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return larger clusters; none without dots, which are what Triton divides among CTAs."""
        present, module = kernel.number(self.name), _ttir_of(kernel)
        if not present or module is None or not any(operation.traits.is_dot for operation in module.walk()):
            return []
        return [str(count) for count in _COUNTS if count > present] if not _objection(kernel, module) else []

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return smaller clusters."""
        present, module = kernel.number(self.name), _ttir_of(kernel)
        if module is None or _objection(kernel, module):
            return []
        return [str(count) for count in reversed(_COUNTS) if count < present]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the option."""
        if value not in map(str, _COUNTS):
            raise EditRefused(f"{value} is none of {self.values}")
        edited = kernel.with_option(self.name, int(value))
        try:
            objection = _objection(kernel, kernel.parsed("ttir"))
        except KprofError as error:
            objection = error.what
        if objection:
            raise EditRefused(objection)
        return edited


def _ttir_of(kernel: KernelToEdit) -> Module | None:
    try:
        return kernel.parsed("ttir") if kernel.ttir else None
    except KprofError:
        return None


def _objection(kernel: KernelToEdit, module: Module) -> str:
    """Return why another number of CTAs is impossible, or may change what they compute; empty without any reason."""
    if kernel.cuda_arch < _FIRST_ARCH:
        return f"clusters need sm_{_FIRST_ARCH} or newer"
    if kernel.option("launch_cooperative_grid"):
        return "all its CTAs must run at the same time (cooperative launch)"
    if _DESCRIPTOR in module.text:
        return "its tensor descriptors have the block of one CTA"
    if relaunch(module).waits:
        return "its CTAs may wait for each other"
    for operation in module.walk():
        if operation.traits.is_atomic:
            return f"each CTA of a cluster may repeat its atomic operations ({operation.name})"
        if reads_cta_id(operation):
            return f"it numbers its CTAs itself ({operation.name})"
    return ""
