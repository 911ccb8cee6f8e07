"""Environment variables that alter the code that Triton generates."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.runtime.compiling.switches import switches_of
from kprof_inject.runtime.experiments.edits.edit import EditRefused, KernelToEdit


class Switch:
    """A variable and its value, of those that are listed for the kernel's version of Triton."""

    name = "env"
    values = "a switch of Triton, such as DISABLE_LLVM_OPT=disable-lsr"
    edits_ttgir = False
    source = ""

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the switches that are not set."""
        return [f"{name}={value}" for name, value in _known(kernel.record) if name not in kernel.record.environment]

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return nothing."""
        return []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the variable."""
        name, _, setting = value.partition("=")
        if (name, setting) not in _known(kernel.record):
            raise EditRefused(f"{value} is not a known switch of Triton {kernel.record.triton_version}")
        return kernel.with_variable(name, setting)


def _known(record: DumpedKernelRecord) -> list[tuple[str, str]]:
    if record.target is None or record.triton_release is None:
        return []
    return [(switch.name, switch.value) for switch in switches_of(record.triton_release, record.target.backend)]
