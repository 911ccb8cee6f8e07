"""Plans of the kernels that get records, and the dump of kernels as the compiler made them."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import triton

from kprof_inject.capture.schema import MAX_TEXT_BYTES
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, read_regular, source_text
from kprof_inject.insertion import Inserter
from kprof_inject.rewrite import strip
from kprof_inject.runtime.compiling.builds import build_files
from kprof_inject.runtime.compiling.compiler import ANOTHER_TTGIR, as_json, put_in_place, same_code
from kprof_inject.runtime.launch.planned_kernel import KernelPlan
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.strings import source_files
from kprof_inject.workspace import DumpedKernel, Workspace


def dump_alone(session: Session, report: ProcessReport, variant: DumpedKernel, kernel: Any) -> None:
    """Dump a kernel if its name matches; it has no plan."""
    save_kernel(Path(session.workspace), session.recording.kernel, variant, kernel, report)


@dataclass(frozen=True, slots=True)
class WorkspacePlans:
    """Plans that ``insert`` wrote to the session's workspace."""

    session: Session
    report: ProcessReport

    def plan_of(self, variant: DumpedKernel, kernel: Any) -> KernelPlan | None:
        """Return the plan of a variant, if it can be used."""
        workspace = Workspace(Path(self.session.workspace))
        scope_table = workspace.scope_table(variant.variant)
        if scope_table is None or not fnmatchcase(variant.name, self.session.recording.kernel):
            return None
        dumped = workspace.kernel(variant.variant)
        if reason := _why_left_alone(workspace, dumped, kernel.asm["ttgir"]):
            self.report.add_kernel(variant.variant, variant.name, "left alone", reason)
            return None
        return KernelPlan(dumped, dumped.variant, scope_table)


_INDUCTORS_WORKER = "torch._inductor.compile_worker"


def _why_left_alone(workspace: Workspace, dumped: DumpedKernel, compiled: str) -> str:
    """Return the reason why a kernel must run as it is, such as a plan of other TTGIR; empty if there is none."""
    if dumped.info.triton_version != triton.__version__:
        return f"Triton {dumped.info.triton_version} dumped it, and the program has {triton.__version__}; dump it again"
    # A process that compiles kernels for another one: the program set its number of workers itself.
    words = " ".join(sys.orig_argv).replace("/", ".")
    utilities = sys.modules.get(f"{_INDUCTORS_WORKER}.utils")
    if _INDUCTORS_WORKER in words or (utilities is not None and not utilities.in_toplevel_process()):
        return "an Inductor worker process compiled it; set compile_threads to 1"
    path = workspace.override_path(dumped)
    try:
        with_records = decode_text(read_regular(path, MAX_TEXT_BYTES, workspace.folder), str(path))
        planned = strip(parse(with_records, str(path)))
        return "" if same_code(compiled, dumped.ttgir(), planned) else ANOTHER_TTGIR
    except KprofError as error:
        return error.what


@dataclass(frozen=True, slots=True)
class PlansMadeNow:
    """Plans made from each kernel's TTGIR when it is compiled."""

    session: Session
    report: ProcessReport
    inserter: Inserter

    def plan_of(self, variant: DumpedKernel, kernel: Any) -> KernelPlan | None:
        """Dump the kernel and plan its records, if its name matches."""
        workspace = Workspace(Path(self.session.workspace))
        if not save_kernel(workspace.folder, self.session.recording.kernel, variant, kernel, self.report):
            return None
        dumped = workspace.kernel(variant.variant)
        try:
            self.inserter.insert(workspace, dumped)
        except KprofError as error:
            self.report.add_kernel(variant.variant, variant.name, "left alone", error.what)
            return None
        scope_table = workspace.scope_table(variant.variant)
        return None if scope_table is None else KernelPlan(dumped, dumped.variant, scope_table)

    def fewer(self, plan: KernelPlan) -> KernelPlan | None:
        """Plan fewer records for a kernel that they slow down."""
        workspace = Workspace(Path(self.session.workspace))
        name = self.inserter.insert_less(workspace, plan.dumped, plan.name)
        scope_table = workspace.scope_table(name) if name else None
        return None if scope_table is None else KernelPlan(plan.dumped, name, scope_table)


def save_kernel(folder: Path, kernel_glob: str, kernel: DumpedKernel, compiled: Any, report: ProcessReport) -> bool:
    """Save a compiled kernel whose name matches into a workspace, with the source files of its locations; report it.

    Returns False if it is not saved.
    """
    ttgir = compiled.asm.get("ttgir")
    if not fnmatchcase(kernel.name, kernel_glob):
        report.add_kernel(kernel.variant, kernel.name, "passed over")
        return False
    if ttgir is None:
        reason = "Triton keeps no TTGIR of it (knobs.compilation.store_binary_only)"
        report.add_kernel(kernel.variant, kernel.name, "left alone", reason)
        return False
    metadata = as_json(compiled.metadata._asdict()) | kernel.info.metadata
    info = msgspec.structs.replace(kernel.info, name=compiled.metadata.name, metadata=metadata)
    Workspace(folder).write_kernel(kernel.variant, info, ttgir, _sources(ttgir), build_files(compiled))
    note = f"the program puts its code in place: {path}" if (path := put_in_place(kernel)) else ""
    report.add_kernel(kernel.variant, kernel.name, "dumped", note)
    return True


def _sources(ttgir: str) -> dict[str, str]:
    """Return the present text of the source files that the module's locations name, without Triton's own library.

    A notebook's cell is not a file; its text is in Python's ``linecache``, from which Triton had it.
    """
    library = Path(triton.__file__).parent
    users = [name for name in source_files(ttgir) if library not in Path(name).parents]
    texts = {name: source_text(Path(name)) or "".join(linecache.getlines(name)) for name in users}
    return {name: text for name, text in texts.items() if text}
