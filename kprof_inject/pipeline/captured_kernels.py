"""Save what is known of a capture's kernels without running them again.

That is their machine code, what the compiler moved across records, and the integers in a saved launch's memory that
decide what a kernel executes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.interpreter.footprints import NOTHING, Ranges, union
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.analysis.interpreter.loaded_integers import Integers, deciding_loads, integers_at
from kprof_inject.analysis.scope_map import moves_in
from kprof_inject.analysis.unjudged import evaluating
from kprof_inject.capture.capture_files import FILES, KernelRecord, LaunchRecord, launch_lines, write
from kprof_inject.capture.measurements import MAX_COMPRESSED_BYTES, MAX_LOADED_BYTES, LoadedIntegersRecord, MovesRecord
from kprof_inject.capture.saved_launch import MAX_RANGES, MemoryRecord, SavedLaunch, read_saved_launch
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.pipeline import Say
from kprof_inject.runtime.child_process import CompilerProcess
from kprof_inject.runtime.compiling.disassembly import machine_code_of, programs_machine_code, recorded_machine_code_of
from kprof_inject.runtime.compiling.module_check import TIME_LIMIT_S
from kprof_inject.runtime.devices.cuda_driver import loaded_driver
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

_MAX_COMPILERS = 8  # compilers of one target take some 200 MB each


class CapturedKernel(Struct, frozen=True):
    """A kernel of a capture's process.

    ``folder`` has its files, and the name of the build. ``launch`` is the launch of it that was saved.
    """

    folder: Path
    record: KernelRecord
    launch: Path | None

    def ttgir(self) -> str:
        """Read the module without records."""
        return (self.folder / TTGIR_FILE).read_text()


@contextmanager
def kernels_examined(workspace: Workspace, kernels: Sequence[CapturedKernel], say: Say) -> Iterator[None]:
    """Compile and disassemble the kernels meanwhile, and save what is known of them at the end of the context.

    Not without NVIDIA's driver: no kernel of this machine was really launched then.
    """
    launched = kernels if loaded_driver() is not None else ()
    of_nvidia = [kernel for kernel in launched if str(kernel.record.known_metadata.target).startswith("cuda:")]
    options = {kernel.variant: kernel.info.options for kernel in workspace.kernels()}
    with ThreadPoolExecutor(max(min(2 * len(of_nvidia), os.cpu_count() or 1, _MAX_COMPILERS), 1)) as pool:
        made: list[tuple[CapturedKernel, type[Struct], Future[Any]]] = []
        for kernel in of_nvidia:
            with_options = options.get(kernel.record.program_variant, {})
            made.append((kernel, MachineFunction, pool.submit(_machine_code, kernel, with_options)))
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
    dumped = workspace.kernel(kernel.record.program_variant or kernel.folder.name)
    path = workspace.override_path(workspace.planned_with(dumped, kernel.record.scopes))
    text = path.read_text()
    module = parse(text, str(path))
    with CompilerProcess() as compiler:
        functions = recorded_machine_code_of(module, compiler, TIME_LIMIT_S)
    original, number = kernel.ttgir().splitlines(), 0
    numbers: dict[int, int] = {}  # in the original text, of its lines in the one with records
    for line, printed in enumerate(text.splitlines(), 1):
        if number < len(original) and printed == original[number]:
            number += 1
            numbers[line] = number
    return MovesRecord(
        scopes={
            name: moved and tuple(replace(one, line=numbers.get(one.line, 0)) for one in moved)
            for name, moved in moves_in(module, functions).items()
        }
    )


def _integers(kernel: CapturedKernel) -> LoadedIntegersRecord | None:
    launches = (one for one, _ in launch_lines(kernel.folder.parents[1]) if isinstance(one, LaunchRecord))
    captured = next((one for one in launches if one.variant == kernel.folder.name and one.arguments), None)
    if kernel.launch is None or captured is None:
        return None
    return loaded_integers(kernel.ttgir(), read_saved_launch(kernel.launch), captured)


def _machine_code(kernel: CapturedKernel, options: Mapping[str, Any]) -> MachineFunction:
    ttgir = kernel.ttgir()
    if kernel.launch is not None:
        return programs_machine_code(read_saved_launch(kernel.launch), ttgir)
    functions = machine_code_of(parse(ttgir), options)
    found = next((function for function in functions if function.name == kernel.record.name), None)
    if found is None:
        raise KprofError(f"the machine code has no {kernel.record.name}")
    return found


_MAX_TABLE_BYTES = 64 << 20  # tables of indices are smaller; reading more would take longer than the report is worth
_MIN_GAP_BYTES = 256  # two ranges that are closer are saved as one


class SavedMemory:
    """Memory of a saved launch that the launch does not change. It notes what is read."""

    def __init__(self, saved: SavedLaunch) -> None:
        self._saved = saved
        self._tables: dict[MemoryRecord, NDArray[np.uint8]] = {}
        self._touched: dict[MemoryRecord, Ranges] = {}

    def read(self, addresses: Integers, size_bytes: int) -> Integers | None:
        """Implement ``Memory.read``. Raises ``KprofError`` if the file is damaged."""
        if not addresses.size:
            return addresses
        one = self._saved.record.memory_at(int(addresses.min()))
        if one is None or int(addresses.max()) + size_bytes > one.end or one.size_bytes > _MAX_TABLE_BYTES:
            return None
        if one.after is None or one.before != one.after:  # only memory that the launch leaves as it is has tables
            return None
        touched = Ranges.of(addresses.ravel(), addresses.ravel() + size_bytes)
        self._touched[one] = union((self._touched.get(one, NOTHING), touched))
        return integers_at(self._table(one), addresses - one.address, size_bytes)

    def touched(self) -> Iterator[tuple[int, bytes]]:
        """Yield the addresses and the bytes that were read, in ascending order."""
        for one in sorted(self._touched, key=lambda memory: memory.address):
            found, table = self._touched[one], self._table(one)
            wide = Ranges.of(found.starts, found.ends + _MIN_GAP_BYTES)
            for start, end in zip(wide.starts.tolist(), (wide.ends - _MIN_GAP_BYTES).tolist(), strict=True):
                yield start, table[start - one.address : end - one.address].tobytes()

    def _table(self, memory: MemoryRecord) -> NDArray[np.uint8]:
        if memory not in self._tables:
            data = b"".join(data for _, data in self._saved.chunks(memory))
            self._tables[memory] = np.frombuffer(data, np.uint8)
        return self._tables[memory]


def loaded_integers(ttgir: str, saved: SavedLaunch, launch: LaunchRecord) -> LoadedIntegersRecord | None:
    """Return the integers of a saved launch's memory that decide what a launch of the same kernel executes.

    ``ttgir`` is the kernel's module. None if it loads no such integers, or too many. Raises ``KprofError`` if the saved
    launch is damaged, or the module cannot be evaluated.
    """
    module = parse(ttgir)
    function = entry_function(module)
    if function is None or not deciding_loads(module, function):
        return None
    memory = SavedMemory(saved)
    with evaluating():
        executed(module, function, launch.grid, launch.arguments, memory)
    found = dict(memory.touched())
    data = zlib.compress(b"".join(found.values()))
    sizes = tuple(map(len, found.values()))
    if not found or len(found) > MAX_RANGES or sum(sizes) > MAX_LOADED_BYTES or len(data) > MAX_COMPRESSED_BYTES:
        return None
    return LoadedIntegersRecord(
        grid=launch.grid, arguments=launch.arguments, starts=tuple(found), sizes=sizes, data=data
    )
