"""The folder on disk by which the steps pass on their results, and the files in it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import msgspec

from kprof_inject.capture.capture_files import KERNELS_FOLDER
from kprof_inject.capture.edits import EDITS_FILE, OPTIONS_FILE, AppliedEdits, EditsRecord
from kprof_inject.capture.encoding import (
    Record,
    decode,
    encode,
    indented,
    read_json,
    read_sealed,
    require_version,
    write_sealed,
)
from kprof_inject.capture.experiments import (
    DELAYS_FILE,
    EXPERIMENT_ENDING,
    MAX_EXPERIMENT_BYTES,
    DelaysRecord,
    ExperimentRecord,
)
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.saved_launch import BUILD_FOLDER, is_saved_launch
from kprof_inject.capture.schema import KERNEL_FILE, MAX_TEXT_BYTES, SOURCES_FILE, TTGIR_FILE, DumpedKernelRecord
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, read_regular, write_bytes, write_json, write_text
from kprof_inject.workspace_folder import (
    CACHE_FOLDER,
    MARK_FILE,
    how_to_make,
    is_workspace,
    require_no_links,
    require_ours,
    where_to_look,
    workspace_argument,
    workspace_option,
)

WORKSPACE_VERSION = 2  # no other version is read

_DUMP_AGAIN = "dump again: kprof-inject dump -- PROG"
_TRY_AGAIN = "run try again"
_EDITS_FOLDER = "edits"
_EXPERIMENTS_FOLDER = "experiments"
_emptied: set[Path] = set()
"""The caches that this process began: another one of the same name may have come with the workspace."""


@dataclass(frozen=True, slots=True)
class DumpedKernel:
    """A compiled variant that ``dump`` saves; inside a program, ``variant_of`` identifies it before that.

    ``DumpedKernelRecord`` alone would not do: it is the content of the variant's folder, and does not name it.
    """

    variant: str  # its name, which is also its folder's
    info: DumpedKernelRecord
    ttgir_path: Path

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.info.name

    def ttgir(self) -> str:
        """Read the kernel's TTGIR. Raises ``KprofError`` if that fails."""
        data = read_regular(self.ttgir_path, MAX_TEXT_BYTES, within=self.ttgir_path.parents[2])  # the workspace
        return decode_text(data, str(self.ttgir_path))


def saved_sources(ttgir_path: Path) -> dict[str, str]:
    """Return the source texts that ``dump`` saved next to a kernel's TTGIR; none for a file from elsewhere."""
    path = ttgir_path.parent / SOURCES_FILE
    return _texts(path, path.parent) if path.is_file() and (ttgir_path.parent / KERNEL_FILE).is_file() else {}


def _texts(path: Path, within: Path) -> dict[str, str]:
    return decode(read_regular(path, MAX_TEXT_BYTES, within), dict[str, str], str(path), _DUMP_AGAIN)


class Workspace:
    """Paths and files of a workspace; nothing is written before a method that says so is called."""

    def __init__(self, folder: Path) -> None:
        """Refer to a folder without reading it."""
        self.folder = folder
        self.kernels_folder = folder / KERNELS_FOLDER  # a folder for each dumped variant
        self.plans_folder = folder / "plans"  # the scope tables, by variant
        self.override_folder = folder / "override"  # the instrumented TTGIR, by variant
        self.recorded_builds_folder = folder / "recorded"  # the builds with records, by variant of the capture
        # Kernels with delays, and with edits, by a hash of their inputs, to be reused.
        self.delayed_builds_folder = folder / "delays" / "builds"
        self.edited_builds_folder = folder / "edited_builds"
        self._delays_folder = folder / "delays" / "kernels"
        self._results_of_steps = self.kernels_folder, self.plans_folder, self.override_folder

    @classmethod
    def begin(cls, folder: Path) -> Workspace:
        """Make a new or empty folder a workspace; leave an existing workspace as it is.

        A workspace of another version loses the results of ``try`` and ``causal``, which would not be readable. Raises
        ``KprofError`` for a folder that holds anything else.
        """
        require_ours(folder)
        if is_workspace(folder):
            try:
                require_version(folder / MARK_FILE, WORKSPACE_VERSION, "")
            except KprofError:
                for results in (_EDITS_FOLDER, _EXPERIMENTS_FOLDER):
                    shutil.rmtree(folder / results, ignore_errors=True)
        write_json(folder / MARK_FILE, {"version": WORKSPACE_VERSION})
        return cls(folder)

    @classmethod
    def create(cls, folder: Path) -> Workspace:
        """Make a folder a workspace, as ``begin`` does, without the results of earlier steps."""
        workspace = cls.begin(folder)
        for made in workspace._results_of_steps:
            shutil.rmtree(made, ignore_errors=True)
        return workspace

    @contextmanager
    def results_replaced(self) -> Iterator[None]:
        """Remove the results of earlier steps, which the block makes again; if it fails, put them back.

        The captures that are still there refer to the earlier results.
        """
        aside = self.folder / "earlier"
        shutil.rmtree(aside, ignore_errors=True)
        for made in self._results_of_steps:
            if made.exists():
                aside.mkdir(exist_ok=True)
                made.rename(aside / made.name)
        try:
            yield
        except BaseException:
            for made in self._results_of_steps:
                shutil.rmtree(made, ignore_errors=True)
                if (aside / made.name).exists():
                    (aside / made.name).rename(made)
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    @classmethod
    def open(cls, folder: Path) -> Workspace:
        """Open an existing workspace. Raises ``KprofError`` if it is none or of another version."""
        if not (folder / MARK_FILE).exists():
            what = "is not a workspace" if folder.exists() else "does not exist"
            raise KprofError(f"{folder} {what}", hint=_what_instead(folder))
        hint = f"profile again: kprof-inject profile{workspace_option(folder)} -- PROG"
        require_version(folder / MARK_FILE, WORKSPACE_VERSION, hint)
        require_no_links(folder)
        return cls(folder)

    def launches_folder(self, capture: Path) -> Path:
        """Return the folder with the launches that were saved in the run that made a capture."""
        return self.folder / "launches" / capture.name

    def cache_folder(self, step: str) -> Path:
        """Return the folder where compilers may cache in ``step`` of this process."""
        return self.folder / CACHE_FOLDER / f"{step}-{os.getpid()}"

    def new_cache_folder(self, step: str) -> Path:
        """Return an empty folder where the program's compilers may cache while this process runs it.

        Caches of processes that have ended are removed, for any step; those of running processes stay.
        """
        own = self.cache_folder(step)
        _emptied.add(own)
        for folder in own.parent.glob("*-*"):
            pid = folder.name.rpartition("-")[2]
            if folder == own or not (pid.isdecimal() and is_running(int(pid))):
                shutil.rmtree(folder, ignore_errors=True)
        return own

    def cache_folder_of_rerun(self, step: str) -> Path:
        """Return the folder where the program's compilers may cache when it runs again: that of this process's dump.

        What they find there was compiled without records; what is compiled with records goes elsewhere. If this process
        did not dump the program, the folder is new.
        """
        dumped = self.cache_folder("dump")
        return dumped if dumped in _emptied else self.new_cache_folder(step)

    def new_reports_folder(self, step: str) -> Path:
        """Make an empty folder where each process of the program reports what it did."""
        folder = self.folder / "reports" / step
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def new_capture_folder(self) -> Path:
        """Claim the folder of the next capture, ``captures/001`` and so on; no other process gets the same.

        Launches that were kept have the number of their capture, which may be gone.
        """
        return _claim_next(self.folder / "captures", self.folder / "launches")

    @staticmethod
    def forget_if_empty(claimed: Path) -> None:
        """Remove the folder of a capture or an experiment if it is empty."""
        with suppress(OSError):
            claimed.rmdir()
            claimed.parent.rmdir()

    def capture_folders(self) -> list[Path]:
        """Return the capture folders that are not empty, the latest last."""
        return _used_folders(self.folder / "captures")

    def last_capture_folder(self) -> Path:
        """Return the latest capture's folder. Raises ``KprofError`` if there is no capture yet."""
        if folders := self.capture_folders():
            return folders[-1]
        step = f"profile{workspace_option(self.folder)}"
        if self.plans_folder.exists():
            step = f"run{workspace_argument(self.folder)}"
        raise KprofError(f"{self.folder} has no capture yet", hint=f"make one: kprof-inject {step} -- PROG")

    def write_kernel(
        self,
        variant: str,
        info: DumpedKernelRecord,
        ttgir: str,
        sources: dict[str, str],
        build: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Save a dumped kernel with its TTGIR, source texts, and the files of its build."""
        folder = self.kernels_folder / variant
        for name, data in build.items():
            write_bytes(folder / BUILD_FOLDER / name, data)
        write_text(folder / TTGIR_FILE, ttgir)
        _write(folder / SOURCES_FILE, sources)
        _write(folder / KERNEL_FILE, info)  # last, because its presence marks a complete kernel

    def kernels(self) -> list[DumpedKernel]:
        """Return the dumped kernels, ordered by name."""
        found = [self.kernel(path.parent.name) for path in self.kernels_folder.glob(f"*/{KERNEL_FILE}")]
        return sorted(found, key=lambda kernel: (kernel.name, kernel.variant))

    def require_kernels(self) -> list[DumpedKernel]:
        """Return the dumped kernels, ordered by name. Raises ``KprofError`` if there are none."""
        if kernels := self.kernels():
            return kernels
        hint = f"dump them: kprof-inject dump{workspace_option(self.folder)} -- PROG"
        raise KprofError(f"{self.folder} contains no kernels", hint=hint)

    def kernel(self, variant: str) -> DumpedKernel:
        """Read a dumped kernel."""
        return self.kernel_of(variant, self._read(self.kernels_folder / variant / KERNEL_FILE, DumpedKernelRecord))

    def kernel_of(self, variant: str, info: DumpedKernelRecord) -> DumpedKernel:
        """Return the kernel of this variant, which need not be saved yet."""
        return DumpedKernel(variant, info, self.kernels_folder / variant / TTGIR_FILE)

    def kernel_sources(self, variant: str) -> dict[str, str]:
        """Read the source texts of a dumped kernel."""
        return _texts(self.kernels_folder / variant / SOURCES_FILE, self.folder)

    def write_clean_run(self, variant: str, run: KernelResources) -> None:
        """Save this process's data on a kernel without records: its resources, and ``times_ns`` of launches."""
        _write(self.kernels_folder / variant / f"clean-{os.getpid()}.json", run)

    def clean_run(self, variant: str) -> KernelResources:
        """Read the data on a kernel without records: the resources of one process, and the times of all.

        All fields are unknown if no process loaded the kernel.
        """
        paths = sorted((self.kernels_folder / variant).glob("clean-*.json"))
        runs = [self._read(path, KernelResources) for path in paths]
        if not runs:
            return KernelResources()
        empty_ns = [run.empty_launch_ns for run in runs if run.empty_launch_ns is not None]
        return msgspec.structs.replace(
            runs[0],
            times_ns=tuple(time for run in runs for time in run.times_ns or ()),
            empty_launch_ns=median(empty_ns) if empty_ns else None,
            launches=sum(run.launches or 0 for run in runs),
        )

    def write_plan(self, kernel: DumpedKernel, scope_table: dict[str, Any], instrumented: str) -> Path:
        """Save a kernel's plan; return the path of its instrumented TTGIR.

        The override folder has the layout that Triton looks up, below a folder for the variant, and only holds the
        ``.ttgir``: a later stage next to it would undo the records.
        """
        path = self.override_path(kernel)
        write_text(path, instrumented)
        write_json(self.plans_folder / kernel.variant / "scopes.json", scope_table)
        return path

    def clear_plans(self) -> None:
        """Remove every plan, so that ``run`` leaves all kernels as they are."""
        shutil.rmtree(self.plans_folder, ignore_errors=True)
        shutil.rmtree(self.override_folder, ignore_errors=True)

    def override_path(self, kernel: DumpedKernel) -> Path:
        """Return the path where Triton looks for the kernel's instrumented TTGIR."""
        return self.override_folder / kernel.variant / kernel.info.override_key / f"{kernel.info.file_name}.ttgir"

    def planned_with(self, kernel: DumpedKernel, table: ScopeTable) -> DumpedKernel:
        """Return the kernel under the name of its plan with this scope table, or under its own if there is none.

        A kernel that records slow down has further plans, whose names begin with the variant's.
        """
        for folder in sorted(self.plans_folder.glob(f"{kernel.variant}*")):
            if self.scope_table(folder.name) == table:
                return replace(kernel, variant=folder.name)
        return kernel

    def scope_table(self, variant: str) -> ScopeTable | None:
        """Read the plan's scope table; None if this variant has no plan."""
        return self._read_if_there(self.plans_folder / variant / "scopes.json", ScopeTable)

    def write_delays(self, variant: str, delays: DelaysRecord) -> None:
        """Save the delays for a kernel."""
        _write(self._delays_folder / variant / DELAYS_FILE, delays)

    def clear_delays(self) -> None:
        """Remove all delays, but not the kernels that were compiled with them."""
        shutil.rmtree(self._delays_folder, ignore_errors=True)

    def delays(self, variant: str) -> DelaysRecord | None:
        """Read the delays for this variant; None if it has none."""
        return self._read_if_there(self._delays_folder / variant / DELAYS_FILE, DelaysRecord)

    def new_experiment_folder(self) -> Path:
        """Claim the folder of the next experiment, ``experiments/001`` and so on; no other process gets the same."""
        return _claim_next(self.folder / _EXPERIMENTS_FOLDER)

    def experiment_folders(self) -> list[Path]:
        """Return the experiment folders that are not empty, the latest last."""
        return _used_folders(self.folder / _EXPERIMENTS_FOLDER)

    def last_experiment_folder(self) -> Path:
        """Return the latest experiment's folder. Raises ``KprofError`` if there is no experiment yet."""
        if begun := self.experiment_folders():
            return begun[-1]
        hint = f"make one: kprof-inject causal{workspace_argument(self.folder)} -- PROG"
        raise KprofError(f"{self.folder} has no experiment yet", hint=hint)

    def edits_folder(self, variant: str) -> Path:
        """Return the folder with the results of ``try`` for a kernel."""
        return self.folder / _EDITS_FOLDER / variant

    def write_edits(self, edits: EditsRecord, applied: AppliedEdits | None, ttgir: str = "") -> None:
        """Replace the edits that were tried for a kernel.

        ``applied`` says how to use the best, None if there is none; ``ttgir`` is its text if that was edited.
        """
        folder = self.edits_folder(edits.variant)
        shutil.rmtree(folder, ignore_errors=True)
        if ttgir:
            write_text(self.edited_ttgir_path(self.kernel(edits.variant)), ttgir)
        if applied is not None:
            _write(folder / OPTIONS_FILE, applied)
        write_sealed(folder / EDITS_FILE, edits)

    def edited_ttgir_path(self, kernel: DumpedKernel) -> Path:
        """Return the path of a kernel's best TTGIR, in a folder with the layout that Triton looks up."""
        folder = self.edits_folder(kernel.variant) / "override"
        return folder / kernel.info.override_key / f"{kernel.info.file_name}.ttgir"

    def applied_edits(self, variant: str) -> AppliedEdits | None:
        """Read how to use a kernel's best edits; None if there are none."""
        return self._read_if_there(self.edits_folder(variant) / OPTIONS_FILE, AppliedEdits, _TRY_AGAIN)

    def tried_variants(self) -> list[str]:
        """Return the kernels for which edits were tried."""
        return [path.parent.name for path in sorted(self.folder.glob(f"{_EDITS_FOLDER}/*/{EDITS_FILE}"))]

    def edits(self, variant: str) -> EditsRecord:
        """Read the edits that were tried for a kernel. Raises ``KprofError``."""
        return read_sealed(self.edits_folder(variant) / EDITS_FILE, EditsRecord, _TRY_AGAIN)

    def _read(self, path: Path, kind: type[Record], hint: str = _DUMP_AGAIN) -> Record:
        return decode(read_json(path, self.folder), kind, str(path), hint)

    def _read_if_there(self, path: Path, kind: type[Record], hint: str = _DUMP_AGAIN) -> Record | None:
        return self._read(path, kind, hint) if path.exists() else None


def _what_instead(folder: Path) -> str:
    if not folder.exists():
        return where_to_look(folder)
    if is_saved_launch(folder):
        return f"it is a saved launch: kprof-inject profile {shlex.quote(str(folder))} profiles it"
    around = next((parent for parent in folder.resolve().parents if (parent / MARK_FILE).exists()), None)
    if around is not None:
        return f"it is inside a workspace: {around}"
    if any(folder.iterdir()):
        return "name a workspace or a capture, such as kprof_out or kprof_out/captures/001"
    return how_to_make(folder)


def _write(path: Path, record: Any) -> None:
    write_bytes(path, indented(record))


def _numbered(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*") if path.name.isdecimal())


def _claim_next(parent: Path, *others: Path) -> Path:
    """Make the folder in ``parent`` with the next number that no folder in ``others`` has either."""
    last = max((int(path.name) for folder in (parent, *others) for path in _numbered(folder)), default=0)
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        last += 1
        folder = parent / f"{last:03d}"
        with suppress(FileExistsError):
            folder.mkdir()
            return folder


def read_experiments(folder: Path) -> Iterator[tuple[Path, ExperimentRecord]]:
    """Yield a folder's experiments, each with its kernel's folder, which holds its TTGIR and sources."""
    for path in sorted(folder.glob(f"*/*{EXPERIMENT_ENDING}")):
        data = read_regular(path, MAX_EXPERIMENT_BYTES, folder)
        yield path.parent, decode(data, ExperimentRecord, str(path), "run causal again")


def write_experiment(folder: Path, experiment: ExperimentRecord) -> None:
    """Save the result of one process for one kernel, in the folder of an experiment."""
    write_bytes(folder / experiment.variant / f"{experiment.pid}{EXPERIMENT_ENDING}", encode(experiment) + b"\n")


def _used_folders(parent: Path) -> list[Path]:
    """Return the numbered folders that are not empty, in order. Raises ``KprofError`` if one is no folder."""
    numbered = sorted(_numbered(parent), key=lambda folder: int(folder.name))
    for folder in numbered:
        if not folder.is_dir():
            raise KprofError(f"{folder} is not a folder", hint="move it out of the workspace")
    return [folder for folder in numbered if any(folder.iterdir())]


def is_running(pid: int) -> bool:
    """Return whether a process with this ID runs on this machine; a zombie (Linux: state "Z") has ended."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True
