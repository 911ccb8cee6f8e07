"""Edits of compile options, of the compiler's environment and of constants."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.capture.resources import ctas_per_sm, limits_of
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit, number_in

_SWITCH = "DISABLE_LLVM_OPT=disable-lsr"

_MAX_STAGES = 8
_MAX_PROPOSED_STAGES = 6
_STEPS_OF_STAGES = 2
_LOOP = re.compile(r"\bscf\.for\b")


class NumStages(EditKind):
    """The option ``num_stages``."""

    name = "num_stages"
    values = f"1 to {_MAX_STAGES}"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return up to two more stages; none if there is no loop to pipeline."""
        present = kernel.number(self.name)
        wanted = range(present + 1, min(present + _STEPS_OF_STAGES, _MAX_PROPOSED_STAGES) + 1)
        return [str(stages) for stages in wanted] if present and _LOOP.search(kernel.ttir) else []

    def fewer(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return up to two stages less; none if there is no loop to pipeline."""
        present = kernel.number(self.name)
        wanted = range(present - 1, max(present - _STEPS_OF_STAGES, 1) - 1, -1)
        return [str(stages) for stages in wanted] if _LOOP.search(kernel.ttir) else []

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the option."""
        return kernel.with_option(self.name, number_in(value, 1, _MAX_STAGES))


# A CTA has at most 1024 threads (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
_MAX_WARPS = 32
_MAX_PROPOSED_WARPS = 16
_STEPS_UP, _STEPS_DOWN = 4, 2
_WARP_SPECIALIZED = ("ttg.warp_specialize", "tt.warp_specialize", "nvws.")


class NumWarps(EditKind):
    """The option ``num_warps``."""

    name = "num_warps"
    values = f"a power of two from 1 to {_MAX_WARPS}"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return twice as many warps, four times as many, and so on."""
        wanted = [kernel.number(self.name) << step for step in range(1, _STEPS_UP + 1)]
        return [str(warps) for warps in wanted if 0 < warps <= _MAX_PROPOSED_WARPS]

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


class Switches(EditKind):
    """A variable of Triton's compiler: LLVM's loop strength reduction is off.

    Triton's README: it "is known to cause up to 10% performance changes for certain kernels with register pressure".
    """

    name = "env"
    values = _SWITCH

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the switch if its variable is not set."""
        return [] if _SWITCH.partition("=")[0] in kernel.record.environment else [_SWITCH]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Set the variable."""
        if value != _SWITCH:
            raise EditRefused(f"{value} is not {_SWITCH}")
        return kernel.with_variable(*value.split("="))


class OtherConstants(EditKind):
    """A combination of values, for which the dump step made the TTIR."""

    name = "values"
    values = "constants that --values has named, such as BLOCK_M=64,BLOCK_N=128"

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return all combinations."""
        return [one.text for one in kernel.others]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Take the TTIR with these values, and the grid."""
        found = next((one for one in kernel.others if one.text == value), None)
        if found is None:
            raise EditRefused("the program was not run with --values for these")
        if found.refusal:
            raise EditRefused(found.refusal)
        if found.grid is None:
            raise EditRefused("the program gives no function for its grid: name the grid with --grid")
        return replace(kernel.to_recompile(), ttir=found.ttir, grid=found.grid, constants=found.values)
