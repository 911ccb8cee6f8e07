"""Folders of compiled kernels: machine code, the texts that it was compiled from, and Triton's metadata.

A kernel loaded from such a folder is launched as the one that was compiled from source, with the same arguments. Builds
of changed texts are compiled ahead of time, in several child processes, as the program compiled the source that they
came from.

Only the child processes and the program import Triton, and only what compiles imports multiprocessing: programs may
notice it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.errors import KprofError
from kprof_inject.packages import is_installed_file
from kprof_inject.runtime.compiling.compiler_messages import errors_in

if TYPE_CHECKING:
    from kprof_inject.runtime.child_process import CompilerProcess

_KEPT = ("source", "ttir", "ttgir", "ptx", "cubin", "amdgcn", "hsaco")
_COMPILED = (".ttgir", ".ptx", ".cubin", ".amdgcn", ".hsaco")
_ASSEMBLY = (".ptx", ".amdgcn")
_NOT_CODE = (".version", ".file", ".loc")
_DEBUG_SECTIONS = ".section\t.debug"  # these sections follow the code, in PTX and in AMD's assembly


def build_files(kernel: Any) -> dict[str, bytes]:
    """Return the files of a compiled Triton kernel, by name."""
    from kprof_inject.runtime.compiling.compiler import as_json

    name = kernel.metadata.name
    texts = {kind: kernel.asm[kind] for kind in _KEPT if kind in kernel.asm}
    files = {f"{name}.{kind}": text.encode() if isinstance(text, str) else text for kind, text in texts.items()}
    return {**files, f"{name}.json": json.dumps(as_json(kernel.metadata._asdict())).encode()}


def source_of(kernel: DumpedKernelRecord) -> SimpleNamespace:
    """Return a stand-in for the source of a dumped kernel, with what Triton's launchers read of it."""
    # A tuple's type is a tuple, as Triton has it.
    signature = {
        name: ast.literal_eval(kind) if kind.startswith("(") else kind for name, kind in kernel.signature.items()
    }
    return SimpleNamespace(signature=signature, constants={})


def load(folder: Path, source: Any, key: str = "") -> Any:
    """Load the build in a folder onto the device. Raises any error of the driver.

    ``source`` is that of the kernel, or a stand-in; ``key`` is its hash.
    """
    from triton.compiler.compiler import CompiledKernel

    group = {path.name: str(path) for path in sorted(folder.iterdir())}
    kernel = CompiledKernel(source, group, key)
    kernel._init_handles()
    return kernel


def assembly_in(folder: Path) -> str:
    """Return the assembly of the build in a folder; empty if there is none."""
    paths = [path for path in folder.iterdir() if path.suffix in _ASSEMBLY]
    return paths[0].read_text() if paths else ""


def objection_to(stage: str, own_assembly: str, assembly: str) -> str:
    """Return how the code of a kernel's TTIR or TTGIR, its ``stage``, differs from the program's; empty if it does not.

    The text is a sentence part that follows *because*.
    """
    for own, other in zip_longest(code_lines(own_assembly), code_lines(assembly), fillvalue=""):
        if own != other:
            difference = f"{own.strip()!r} against {other.strip()!r}"
            return f"its {stage.upper()} alone compiles to a different kernel than the program runs ({difference})"
    return ""


def code_lines(assembly: str) -> list[str]:
    """Return the lines of code, without locations and the version of PTX.

    Inductor writes the source to a different file in each process, and in some chooses a different version.
    """
    code, _, _ = assembly.partition(_DEBUG_SECTIONS)
    return [line for line in code.splitlines() if not line.lstrip().startswith(_NOT_CODE)]


def compile_text(text: str, kernel: DumpedKernelRecord, folder: Path, stage: str = "ttgir") -> None:
    """Compile ``text`` for the kernel's target with its options, and write the results to ``folder``.

    ``stage`` is what the text is: ``ttir`` or ``ttgir``. Raises ``KprofError`` if another version of Triton dumped the
    kernel, and any exception of the compiler.
    """
    import triton

    from kprof_inject.runtime.compiling.compiler import as_json
    from kprof_inject.runtime.compiling.instrumentation import target_of
    from kprof_inject.runtime.compiling.triton_caches import own_cache

    if kernel.triton_version != triton.__version__:
        raise KprofError(
            f"Triton {kernel.triton_version} dumped it, and kprof-inject's own Python has {triton.__version__}",
            hint="install kprof-inject where the program runs, and call it there",
        )
    if kernel.target is None:
        raise KprofError("its target is unknown", hint="dump it again")
    options = compiler_options(kernel.options)
    with _environment_of(kernel), own_cache() as cache:
        # The compiler names its files after the source's, which become those of the build.
        path = cache / f"{kernel.file_name}.{stage}"
        path.write_bytes(text.encode())
        made = triton.compile(str(path), target=target_of(kernel.target), options=options)
        for name, source in made.metadata_group.items():
            if Path(name).suffix in _COMPILED:
                shutil.copyfile(source, folder / name)
    # The dumped metadata has more, such as the layouts of descriptors, which stages before TTGIR set.
    metadata = {**kernel.metadata, **as_json(made.metadata._asdict())}
    (folder / f"{kernel.file_name}.json").write_text(json.dumps(metadata))


@contextmanager
def _environment_of(kernel: DumpedKernelRecord) -> Iterator[None]:
    """Set the environment variables that the compiler depends on to the program's values, and unset all others.

    The record may be a stranger's. So other variables are ignored, and an assembler is used only where it is here.
    """
    from kprof_inject.runtime.compiling.compiler import environment, environment_names, is_harmless_setting

    names, saved = environment_names(), kernel.environment
    wanted = {name: saved[name] for name in names if name in saved and is_harmless_setting(name, saved[name])}
    before = environment()

    def put(variables: Mapping[str, str]) -> None:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(variables)

    put(wanted)
    try:
        yield
    finally:
        put(before)


def compiler_options(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved options as Triton needs them: with tuples, which JSON turned into lists.

    Raises as ``require_own_files`` does.
    """
    require_own_files(saved)
    return {name: _with_tuples(value) for name, value in saved.items()}


def require_own_files(saved: Mapping[str, Any]) -> None:
    """Raise ``KprofError`` for options by which a stranger's record could have the compiler use files of its choice."""
    foreign = [name for name in ("ptx_options", "ir_override") if saved.get(name)]
    for named in saved.get("extern_libs") or ():
        match named:
            case [str(), str(path)] if is_installed_file(path, "triton"):
                continue
        foreign.append("extern_libs")
        break
    if foreign:
        raise KprofError(
            f"it is not compiled again: it sets {', '.join(foreign)}, which may name any file",
            hint="profile the program instead",
        )


def _with_tuples(value: Any) -> Any:
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


_TIME_LIMIT_S = 600.0
_MAX_PROCESSES = 16
_FORM = "2"  # part of each build's name: change it when the content of a build's folder changes


@dataclass(frozen=True, slots=True)
class Build:
    """A module's text, to be compiled with the options of the kernel that it came from.

    ``stage`` is what the text is: ``ttir`` or ``ttgir``.
    """

    text: str
    kernel: DumpedKernelRecord
    stage: str = "ttgir"

    @property
    def name(self) -> str:
        """Name of the build; builds with the same binary have the same name."""
        kernel = self.kernel
        made_by = (kernel.triton_version, str(kernel.target), json.dumps([kernel.options, kernel.environment]))
        parts = (_FORM, self.stage, *made_by, self.text)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _compile_build(build: Build, folder: Path, written: Path) -> None:
    try:
        compile_text(build.text, build.kernel, folder, build.stage)
    except KprofError:
        raise
    except Exception as error:  # noqa: BLE001 (the compiler's errors have no common base)
        errors = errors_in(written.read_bytes())
        raise KprofError(errors[0].text if errors else f"{type(error).__name__}: {error}") from None


class Compilers:
    """Processes that compile builds into subfolders of ``folder``, at most ``count`` at a time.

    Use it as a context manager, which at its end kills the processes.
    """

    def __init__(self, folder: Path, count: int) -> None:
        from kprof_inject.runtime.child_process import CompilerProcess

        self._folder = folder
        self._free = [CompilerProcess() for _ in range(min(count, _MAX_PROCESSES))]
        self._compiling: dict[str, tuple[CompilerProcess, float]] = {}
        self._ended: dict[str, KprofError | None] = {}
        self.seconds = 0.0  # time that all builds took, which were compiled at the same time

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self._free, *(process for process, _ in self._compiling.values())):
            process.__exit__()
        for name in self._compiling:
            shutil.rmtree(self._folder / f"{name}.unfinished", ignore_errors=True)

    @property
    def processes(self) -> list[CompilerProcess]:
        """The processes that compile now."""
        return [process for process, _ in self._compiling.values()]

    def begin(self, build: Build, time_limit_s: float) -> bool:
        """Begin to compile a build, unless its subfolder exists; return False if no process is free."""
        if (self._folder / build.name).exists():
            self._ended[build.name] = None
        elif build.name not in self._compiling:
            if not self._free:
                return False
            unfinished = self._folder / f"{build.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            # LLVM keeps some variables of the environment until the process ends.
            target = json.dumps([str(build.kernel.target), build.kernel.environment], sort_keys=True)
            process = self._free.pop()
            process.begin_task(_compile_build, build, unfinished, time_limit_s=time_limit_s, target=target)
            self._compiling[build.name] = process, time.monotonic()
        return True

    def ended(self) -> dict[str, KprofError | None]:
        """Return the builds that ended since the last call, by name: the error of each, None if it was compiled."""
        for name, (process, begun_s) in [*self._compiling.items()]:
            if not process.is_due:
                continue
            unfinished = self._folder / f"{name}.unfinished"
            try:
                process.result()
                unfinished.rename(self._folder / name)
                self._ended[name] = None
            except KprofError as error:
                shutil.rmtree(unfinished, ignore_errors=True)
                self._ended[name] = error
            del self._compiling[name]
            self._free.append(process)
            self.seconds += time.monotonic() - begun_s
        ended, self._ended = self._ended, {}
        return ended


def compiled(builds: Sequence[Build], folder: Path) -> list[KprofError | None]:
    """Compile each build into the subfolder of ``folder`` with its name, unless that exists.

    Returns the error of each build, None if it was compiled. One process runs for each core.
    """
    from kprof_inject.forks import usable_cores
    from kprof_inject.runtime.child_process import wait_for

    wanted = list({build.name: build for build in builds}.values())
    begun, failures = 0, dict[str, KprofError | None]()
    with Compilers(folder, min(usable_cores(), len(wanted))) as compilers:
        while len(failures) < len(wanted):
            while begun < len(wanted) and compilers.begin(wanted[begun], _TIME_LIMIT_S):
                begun += 1
            if compilers.processes:
                wait_for(compilers.processes, math.inf)
            failures |= compilers.ended()
    return [failures[build.name] for build in builds]
