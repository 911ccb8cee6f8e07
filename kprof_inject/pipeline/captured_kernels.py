"""Save what is known of a capture's kernels without running them again.

That is their machine code, what the compiler moved across records, and the integers in memory that decide what a kernel
executes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.structure.recorded_lines import moves_in, original_lines
from kprof_inject.capture.capture_files import FILES, KernelRecord, LaunchRecord, launch_lines, write
from kprof_inject.capture.measurements import LoadedIntegersRecord, MovesRecord
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.loaded_integers import loaded_integers
from kprof_inject.runtime.compiling.compiler_process import CompilerProcess
from kprof_inject.runtime.compiling.disassembly import machine_code_of, programs_machine_code, recorded_machine_code_of
from kprof_inject.runtime.compiling.module_check import TIME_LIMIT_S
from kprof_inject.runtime.devices.cuda_driver import loaded_driver
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

# Compilers of one target take some 200 MB each.
_MAX_COMPILERS = 8


class CapturedKernel(Struct, frozen=True):
    """A kernel of a capture's process.

    ``folder`` has its files. ``launch`` is the launch of it that was saved, None if there is none. ``options`` are
    Triton's, with which the program compiled it.
    """

    folder: Path
    record: KernelRecord
    launch: Path | None
    options: Mapping[str, Any]

    @property
    def variant(self) -> str:
        """Name of the build."""
        return self.folder.name

    def ttgir(self) -> str:
        """Read the module without records."""
        return (self.folder / TTGIR_FILE).read_text()


@contextmanager
def kernels_examined(workspace: Workspace, kernels: Sequence[CapturedKernel], say: Say) -> Iterator[None]:
    """Compile and disassemble the kernels meanwhile, and save what is known of them at the end of the context.

    Not without NVIDIA's driver: no kernel of this machine was really launched then.
    """
    is_nvidia = loaded_driver() is not None
    on_cuda = [kernel for kernel in kernels if str(kernel.record.known_metadata.target).startswith("cuda:")]
    of_nvidia = on_cuda if is_nvidia else []
    with ThreadPoolExecutor(max(min(2 * len(of_nvidia), os.cpu_count() or 1, _MAX_COMPILERS), 1)) as pool:
        made: list[tuple[CapturedKernel, type[Struct], Future[Any]]] = []
        for kernel in of_nvidia:
            made.append((kernel, MachineFunction, pool.submit(_machine_code, kernel)))
            made.append((kernel, MovesRecord, pool.submit(_moves, workspace, kernel)))
            made.append((kernel, LoadedIntegersRecord, pool.submit(_integers, kernel)))
        yield
        for kernel, kind, result in made:
            try:
                if (found := result.result()) is not None:
                    write(kernel.folder, found)
            except Exception as error:  # noqa: BLE001 (without it, the report has less evidence)
                what = error.what if isinstance(error, KprofError) else f"{type(error).__name__}: {error}"
                say(f"{FILES[kind]} of {kernel.record.name} is missing: {what}")


def _moves(workspace: Workspace, kernel: CapturedKernel) -> MovesRecord:
    """Return what the compiler moved across the kernel's records."""
    dumped = workspace.kernel(kernel.record.program_variant or kernel.variant)
    path = workspace.override_path(workspace.planned_with(dumped, kernel.record.scopes))
    text = path.read_text()
    module = parse(text, str(path))
    with CompilerProcess() as compiler:
        functions = recorded_machine_code_of(module, compiler, TIME_LIMIT_S)
    lines = dict(enumerate(original_lines(text, kernel.ttgir()), 1))
    return MovesRecord(
        scopes={
            name: moved and tuple(replace(one, line=lines.get(one.line, 0)) for one in moved)
            for name, moved in moves_in(module, functions).items()
        }
    )


def _integers(kernel: CapturedKernel) -> LoadedIntegersRecord | None:
    """Return the integers that decide what the captured launches execute; None without a launch that shows them."""
    launches = (one for one, _ in launch_lines(kernel.folder.parents[1]) if isinstance(one, LaunchRecord))
    captured = next((one for one in launches if one.variant == kernel.variant and one.arguments), None)
    if kernel.launch is None or captured is None:
        return None
    return loaded_integers(kernel.ttgir(), read_saved_launch(kernel.launch), captured)


def _machine_code(kernel: CapturedKernel) -> MachineFunction:
    """Return the machine code of the program's kernel; of the same kernel compiled again if no launch was saved."""
    ttgir = kernel.ttgir()
    if kernel.launch is not None:
        return programs_machine_code(read_saved_launch(kernel.launch), ttgir)
    functions = machine_code_of(parse(ttgir), kernel.options)
    found = next((function for function in functions if function.name == kernel.record.name), None)
    if found is None:
        raise KprofError(f"the machine code has no {kernel.record.name}")
    return found
