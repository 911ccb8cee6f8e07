"""Maximum number of registers of a thread, so that another CTA fits on an SM."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.capture.resources import ctas_per_sm, limits_of
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit, number_in

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": registers per thread.
_MAX_REGISTERS = 255
_MIN_REGISTERS = 24
# The hardware allocates 256 registers for a warp at a time, so a thread gets a multiple of 8.
_UNIT = 8


class MaxRegisters(EditKind):
    """The option ``maxnreg``, which only NVIDIA's backend has."""

    name = "maxnreg"
    values = f"{_MIN_REGISTERS} to {_MAX_REGISTERS}"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the largest number if the option is set; without it, the compiler takes as many as it needs."""
        return [str(_MAX_REGISTERS)] if kernel.option(self.name) else []

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the most registers with which an SM holds one CTA more; none if something else limits their number."""
        clean, warps = kernel.clean, kernel.number("num_warps")
        if not clean.registers or not warps or kernel.record.target is None or kernel.record.target.backend != "cuda":
            return []
        limits, shared_bytes = limits_of(str(kernel.record.target)), clean.shared_bytes or 0
        present = ctas_per_sm(limits, shared_bytes, warps, clean.registers)
        for registers in range(clean.registers // _UNIT * _UNIT, _MIN_REGISTERS - 1, -_UNIT):
            if registers < clean.registers and ctas_per_sm(limits, shared_bytes, warps, registers) > present:
                return [str(registers)]
        return []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the option."""
        if kernel.record.target is None or kernel.record.target.backend != "cuda":
            raise EditRefused("only NVIDIA's backend has this option")
        return kernel.with_option(self.name, number_in(value, _MIN_REGISTERS, _MAX_REGISTERS))
