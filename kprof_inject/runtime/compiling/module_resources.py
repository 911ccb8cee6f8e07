"""Compile a module for its own target, without a GPU, and return the resources of its machine code.

This module does not import Triton, which may not be installed; the child process that compiles does.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.compiler_process import CompilerProcess, errors_in
from kprof_inject.runtime.compiling.module_check import module_target
from kprof_inject.runtime.packages import is_installed
from kprof_inject.ttgir.nodes import Module

TIME_LIMIT_S = 120

_FUNCTION = re.compile(r"Function (\S+):\s*REG:(\d+) STACK:(\d+)")  # as ``cuobjdump --dump-resource-usage`` prints it
_VGPRS = re.compile(r"\.vgpr_count:\s*(\d+)")
_SPILLED_VGPRS = re.compile(r"\.vgpr_spill_count:\s*(\d+)")


def module_resources(module: Module, text: str) -> KernelResources | None:
    """Return the resources of ``text``, which is the text of ``module`` or made from it; None without Triton.

    Without the vendor's tools, the registers are unknown. Raises ``KprofError`` if Triton refuses the module or exceeds
    the time limit.
    """
    if not is_installed("triton"):
        return None
    # A process for each module: some versions of Triton keep settings of an earlier target.
    with CompilerProcess() as compiler:
        found: KernelResources = compiler.ask(MeasureResources(text, module_target(module)), TIME_LIMIT_S)
    return found


@dataclass(frozen=True, slots=True)
class MeasureResources:
    """Task that returns the resources of a text without records."""

    text: str
    target: Target

    def run(self, written: Path) -> KernelResources:
        """Compile the text. Raises ``KprofError`` if the compiler refuses."""
        import triton

        from kprof_inject.runtime.compiling.instrumentation import lower_without_records, target_of

        try:
            lowered = lower_without_records(self.text, target_of(self.target), {})
        except KprofError as error:
            errors = [message.text for message in errors_in(written.read_bytes())[:1]]
            raise KprofError(": ".join([f"Triton {triton.__version__} does not lower it", *errors])) from error
        if self.target.backend == "cuda":
            registers, spills = _used_of_nvidia(lowered.binary, lowered.metadata["name"], lowered.assembly)
        else:
            registers, spills = _used_of_amd(lowered.assembly)
        return KernelResources(registers, spills, lowered.metadata["shared"])


def _used_of_nvidia(cubin: bytes, kernel: str, ptx: str) -> tuple[int | None, int | None]:
    """Return the registers and the spilled words of a thread, which cuobjdump reads from the machine code."""
    from triton import knobs

    from kprof_inject.runtime.devices.cuda_driver import spilled_words

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, RuntimeError, subprocess.CalledProcessError):  # some builds of Triton lack the tool
            return None, None
    for name, registers, stack_bytes in _FUNCTION.findall(printed):
        if name == kernel:
            return int(registers), spilled_words(int(stack_bytes) // 4, ptx)
    return None, None


def _used_of_amd(assembly: str) -> tuple[int | None, int | None]:
    """Return the registers and the spilled words of a thread from the assembly's metadata."""
    registers, spills = _VGPRS.search(assembly), _SPILLED_VGPRS.search(assembly)
    return registers and int(registers[1]), spills and int(spills[1])
