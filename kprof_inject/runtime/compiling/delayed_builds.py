"""Compile kernels with delays ahead of time, in several child processes, and load them in the program.

They are compiled from the text of a module, as the program compiled the source that it came from. In the program, such
a build replaces the kernel that was compiled from source: the same launcher launches it with the same arguments.

Only the child processes and the program import Triton.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.errors import KprofError
from kprof_inject.forks import usable_cores
from kprof_inject.runtime.compiling.builds import assembly_in, objection_to
from kprof_inject.runtime.compiling.compiler_process import CompilerProcess, errors_in
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.packages import is_installed_file

_KEPT = (".json", ".ttgir", ".ptx", ".cubin", ".amdgcn", ".hsaco")


def compile_text(text: str, kernel: DumpedKernelRecord, folder: Path, stage: str = "ttgir") -> None:
    """Compile ``text`` for the kernel's target with its options, and write the results to ``folder``.

    ``stage`` is what the text is: ``ttir`` or ``ttgir``. Raises ``KprofError`` if another version of Triton dumped the
    kernel, and any exception of the compiler.
    """
    import triton

    from kprof_inject.runtime.compiling.compiler import as_json, own_cache
    from kprof_inject.runtime.compiling.instrumentation import target_of

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
            if Path(name).suffix in _KEPT and not name.endswith(".json"):
                shutil.copyfile(source, folder / name)
    # The dumped metadata has more, such as the layouts of descriptors, which stages before TTGIR set.
    metadata = {**kernel.metadata, **as_json(made.metadata._asdict())}
    (folder / f"{kernel.file_name}.json").write_text(json.dumps(metadata))


@contextmanager
def _environment_of(kernel: DumpedKernelRecord) -> Iterator[None]:
    """Set the environment variables that the compiler depends on to the program's values, and unset all others.

    The record may be a stranger's. So other variables are ignored, and an assembler is used only where it is here.
    """
    from kprof_inject.runtime.compiling.compiler import environment_names, is_harmless_setting

    wanted = {
        name: value
        for name, value in kernel.environment.items()
        if name in environment_names() and is_harmless_setting(name, value)
    }
    before = {name: os.environ.get(name) for name in environment_names()}
    for name in before:
        os.environ.pop(name, None)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def compiler_options(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved options as Triton needs them: with tuples, which JSON turned into lists.

    Raises as ``require_own_files`` does.
    """
    require_own_files(saved)
    return {name: _with_tuples(value) for name, value in saved.items()}


def require_own_files(saved: Mapping[str, Any]) -> None:
    """Raise ``KprofError`` for options by which a stranger's record could have the compiler use files of its choice."""
    foreign = [name for name in ("ptx_options", "ir_override") if saved.get(name)]
    if not all(map(_is_own_library, saved.get("extern_libs") or ())):
        foreign.append("extern_libs")
    if foreign:
        raise KprofError(
            f"it is not compiled again: it sets {', '.join(foreign)}, which may name any file",
            hint="profile the program instead",
        )


def _is_own_library(named: object) -> bool:
    match named:
        case [str(), str(path)]:
            return is_installed_file(path, "triton")
    return False


def _with_tuples(value: Any) -> Any:
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


_TIME_LIMIT_S = 600.0
_MAX_PROCESSES = 16
# Part of each build's name: change it when the content of a build's folder changes.
_FORM = "2"


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


@dataclass(frozen=True, slots=True)
class _CompileTask:
    build: Build
    folder: Path

    @property
    def target(self) -> str:
        """Target and environment of a process: LLVM keeps some variables until the process ends."""
        return json.dumps([str(self.build.kernel.target), self.build.kernel.environment], sort_keys=True)

    def run(self, written: Path) -> None:
        try:
            compile_text(self.build.text, self.build.kernel, self.folder, self.build.stage)
        except KprofError:
            raise
        except Exception as error:  # noqa: BLE001 (the compiler's errors have no common base)
            errors = errors_in(written.read_bytes())
            raise KprofError(errors[0].text if errors else f"{type(error).__name__}: {error}") from None


def compiled(builds: Sequence[Build], folder: Path) -> Iterator[KprofError | None]:
    """Compile each build into the subfolder of ``folder`` with its name, unless that exists.

    Yields an error for each build that failed, and None for the others. One process runs for each core.
    """
    wanted = {build.name: build for build in builds if not (folder / build.name).exists()}
    processes = [CompilerProcess() for _ in range(min(usable_cores(), len(wanted), _MAX_PROCESSES))]
    free: SimpleQueue[CompilerProcess] = SimpleQueue()
    for process in processes:
        free.put(process)

    def compile_one(build: Build) -> KprofError | None:
        process = free.get()
        unfinished = folder / f"{build.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            process.ask(_CompileTask(build, unfinished), _TIME_LIMIT_S)
        except KprofError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            return error
        finally:
            free.put(process)
        unfinished.rename(folder / build.name)
        return None

    try:
        with ThreadPoolExecutor(max(len(processes), 1)) as pool:
            failures: Mapping[str, KprofError | None] = dict(
                zip(wanted, pool.map(compile_one, wanted.values()), strict=True)
            )
    finally:
        for process in processes:
            process.__exit__()
    yield from (failures.get(build.name) for build in builds)


def refusals_of(plain: Build, builds: Sequence[Build], own_build: Path, folder: Path) -> list[str]:
    """Compile builds as ``compiled`` does; return why each of them is refused, empty if it is not.

    All are refused if ``plain``, the build of the unchanged text, has other code than ``own_build``, the program's.
    """
    failure, *failures = compiled([plain, *builds], folder)
    if failure is not None:
        objection = f"the unchanged kernel does not compile: {first_line(failure)}"
    else:
        objection = objection_to(plain.stage, assembly_in(own_build), assembly_in(folder / plain.name))
    return [objection or (f"it does not compile: {first_line(error)}" if error else "") for error in failures]
