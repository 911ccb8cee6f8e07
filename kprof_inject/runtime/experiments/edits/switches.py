"""Environment variables that alter the code that Triton generates."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.runtime.compiling.switches import Switch, switches_of
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit

_DOT = "tt.dot"


class Switches(EditKind):
    """A variable and its value, of those that are listed for the kernel's version of Triton."""

    name = "env"
    values = "a switch of Triton, such as DISABLE_LLVM_OPT=disable-lsr"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the switches of variables that are not set, and that alter this kernel."""
        is_set, has_dots = kernel.record.environment, _DOT in kernel.ttir
        return [
            f"{switch.name}={switch.value}"
            for switch in _known(kernel.record)
            if switch.name not in is_set and (has_dots or not switch.needs_dots)
        ]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the variable."""
        name, _, setting = value.partition("=")
        if not any((switch.name, switch.value) == (name, setting) for switch in _known(kernel.record)):
            raise EditRefused(f"{value} is not a known switch of Triton {kernel.record.triton_version} for this target")
        return kernel.with_variable(name, setting)


def _known(record: DumpedKernelRecord) -> list[Switch]:
    if record.target is None or record.triton_release is None:
        return []
    return switches_of(record.triton_release, record.target)
