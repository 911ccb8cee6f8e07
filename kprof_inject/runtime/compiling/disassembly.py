"""Compile a module without its locations, and read the machine code with the module's own lines.

MLIR gives an operation without a location that of its text. The machine code is that of the module with its locations,
or nearly: of the 96 fixtures of Triton 3.6 for NVIDIA's GPUs, 85 had the same, 9 the same instructions in another order
and with other registers, and 2 had two others. NVIDIA's is printed by nvdisasm; AMD's is the assembly that Triton
gives to its assembler.

This module does not import Triton, which may not be installed; the child process that compiles does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.saved_launch import SavedLaunch
from kprof_inject.capture.schema import TTGIR_FILE, Target
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import MachineFunction, read_assembly, read_nvdisasm, with_lines_of
from kprof_inject.packages import install_command, is_installed
from kprof_inject.runtime.child_process import CompilerProcess
from kprof_inject.runtime.compiling.builds import compiler_options
from kprof_inject.runtime.compiling.module_check import (
    TIME_LIMIT_S,
    lowered_in_child,
    module_target,
    printed_by,
    text_without_locations,
)
from kprof_inject.select.module_view import lowerable
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

if TYPE_CHECKING:  # it imports Triton
    from kprof_inject.runtime.compiling.instrumentation import Lowered

_FILE = "kernel.ttgir"
_BINARY = ".cubin"
_LINES_APART = 1000  # no operation's inline assembly has as many lines


def machine_code_of(module: Module, options: Mapping[str, Any]) -> list[MachineFunction]:
    """Return the machine code of a module, compiled with Triton's ``options``; its lines are those of the module.

    Raises ``KprofError`` without Triton, or if that refuses the module.
    """
    _require_triton()
    target = module_target(module)
    with CompilerProcess() as compiler:
        printed: str = compiler.ask(disassembled, _spaced(module), target, dict(options), time_limit_s=TIME_LIMIT_S)
    return _read(printed, target)


def recorded_machine_code_of(module: Module, compiler: CompilerProcess, time_limit_s: float) -> list[MachineFunction]:
    """Return the machine code of a module with records, lowered as ``check`` does.

    Raises ``KprofError`` if Triton refuses it.
    """
    text, target = _spaced(parse(lowerable(module), module.file)), module_target(module)
    printed: str = compiler.ask(_disassembled_with_records, text, target, time_limit_s=time_limit_s, target=target)
    return _read(printed, target)


def _spaced(module: Module) -> str:
    """Return the text without locations, with empty lines between its lines.

    Triton 3.8 and 3.9 give each line of an operation's inline assembly a line of its own, from the operation's on.
    """
    return text_without_locations(module).replace("\n", "\n" * _LINES_APART)


def _read(printed: str, target: Target) -> list[MachineFunction]:
    """Return the functions in the machine code of a text that was spaced, with the lines that it had before."""
    read = read_nvdisasm if target.backend == "cuda" else read_assembly
    return [
        replace(
            function,
            instructions=tuple(
                replace(one, line=(one.line - 1) // _LINES_APART + 1) if one.line else one
                for one in function.instructions
            ),
        )
        for function in read(printed, _FILE)
    ]


def programs_machine_code(saved: SavedLaunch, ttgir: str) -> MachineFunction:
    """Return the machine code of a saved launch's kernel, with the lines of its TTGIR.

    The lines are those of the kernel compiled again without locations; an instruction that this does not have has none.
    Raises ``KprofError`` as ``machine_code_of`` does, and for a target that is not NVIDIA's.
    """
    _require_triton()
    module = parse(ttgir, str(saved.folder / TTGIR_FILE))
    binary = next(saved.build_folder.glob(f"*{_BINARY}"), None)
    if binary is None:
        raise KprofError("its machine code was not saved")
    target = module_target(module)
    if target.backend != "cuda":
        raise KprofError(f"the machine code of a launch for {target} is not read", hint="only that for NVIDIA is")
    options = saved.kernel.options
    with CompilerProcess() as compiler:
        own: str = compiler.ask(_printed, binary.read_bytes(), time_limit_s=TIME_LIMIT_S)
        again: str = compiler.ask(disassembled, _spaced(module), target, options, time_limit_s=TIME_LIMIT_S)
    name = saved.record.name
    found = [function for text in (own, again) for function in _read(text, target) if function.name == name]
    if len(found) < 2:
        raise KprofError(f"the machine code has no {name}", hint="please report it")
    return with_lines_of(found[0], found[-1])


def _require_triton() -> None:
    if not is_installed("triton"):
        raise KprofError("machine code needs Triton, which is not installed", hint=install_command("triton"))


def disassembled(text: str, target: Target, options: Mapping[str, Any], written: Path) -> str:
    """Compile a text in the child, and print its machine code.

    Raises ``KprofError`` if the compiler refuses, or if there is no nvdisasm.
    """
    return _code_of(lowered_in_child(text, target, compiler_options(options), written), target, written)


def _disassembled_with_records(text: str, target: Target, written: Path) -> str:
    from kprof_inject.runtime.compiling.instrumentation import lower, target_of

    return _code_of(lower(text, target_of(target), {}, Mode()), target, written)


def _code_of(lowered: Lowered, target: Target, written: Path) -> str:
    return _printed(lowered.binary, written) if target.backend == "cuda" else lowered.assembly


def _printed(cubin: bytes, written: Path) -> str:
    from triton import knobs

    try:
        return printed_by(knobs.nvidia.nvdisasm.path, "-g", "-c", "-hex", cubin=cubin)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        raise KprofError(
            f"nvdisasm did not print the machine code: {error}",
            hint="Triton brings it along; TRITON_NVDISASM_PATH names another one",
        ) from None
