"""The folder on disk that the steps hand on, and what stands where in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprof_inject.errors import KprofError
from kprof_inject.files import read_object, read_text, write_json, write_text

WORKSPACE_VERSION = 1

_MARK = "workspace.json"


@dataclass(frozen=True, slots=True)
class DumpedKernel:
    """One compiled variant that ``dump`` saved. ``info`` holds ``name``, ``override_key`` and ``file_name`` (the
    folder and the file that Triton looks for in an override folder), ``target``, ``options``, ``metadata`` and
    ``triton_version``."""

    variant: str
    info: dict[str, Any]
    ttgir_path: Path

    @property
    def name(self) -> str:
        return str(self.info["name"])

    def ttgir(self) -> str:
        return read_text(self.ttgir_path)


def snapshot_beside(ttgir_path: Path) -> dict[str, str]:
    """The source texts that ``dump`` saved beside a kernel's TTGIR; none for a file from elsewhere."""
    path = ttgir_path.parent / "sources.json"
    return _texts(path) if path.is_file() and (ttgir_path.parent / "kernel.json").is_file() else {}


def _texts(path: Path) -> dict[str, str]:
    texts = read_object(path)
    if not all(isinstance(text, str) for text in texts.values()):
        raise KprofError(f"{path} is damaged: not every value is a text", hint="dump again")
    return texts


class Workspace:
    """Paths and files of one workspace. Nothing is written until a method named for it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path) -> Workspace:
        """Begin a workspace: an empty or new folder, or one of ours, which is emptied of what steps made.

        Raises ``KprofError`` for a folder that holds anything else.
        """
        workspace = cls(folder)
        if folder.exists() and not (folder / _MARK).exists() and any(folder.iterdir()):
            raise KprofError(
                f"{folder} is not empty and no workspace of kprof-inject",
                hint="name another folder with -o",
            )
        for made in (workspace.kernels_folder, workspace.plans_folder, workspace.override_folder):
            shutil.rmtree(made, ignore_errors=True)
        write_json(folder / _MARK, {"version": WORKSPACE_VERSION})
        return workspace

    @classmethod
    def _where_to_look(cls, folder: Path) -> str:
        """What to do about a folder that is no workspace."""
        around = next((parent for parent in folder.resolve().parents if (parent / _MARK).exists()), None)
        if around is not None:
            return f"it lies in one: {around}"
        if folder.exists() and any(folder.iterdir()):
            return "name a workspace, or a capture: kprof_out and kprof_out/captures/001 where a program was profiled"
        return f"make one: kprof-inject dump -o {folder} -- PROG"

    @classmethod
    def open(cls, folder: Path) -> Workspace:
        """An existing workspace. Raises ``KprofError`` if it is none or of another version."""
        if not (folder / _MARK).exists():
            raise KprofError(f"{folder} is no workspace", hint=cls._where_to_look(folder))
        version = read_object(folder / _MARK).get("version")
        if version != WORKSPACE_VERSION:
            raise KprofError(
                f"{folder} has workspace version {version}, this program uses {WORKSPACE_VERSION}",
                hint=f"dump again: kprof-inject dump -o {folder} -- PROG",
            )
        return cls(folder)

    @property
    def kernels_folder(self) -> Path:
        return self.folder / "kernels"

    @property
    def plans_folder(self) -> Path:
        return self.folder / "plans"

    @property
    def override_folder(self) -> Path:
        return self.folder / "override"

    @property
    def calibration_folder(self) -> Path:
        """Where ``run`` measures what a record costs, and keeps it for later runs."""
        return self.folder / "calibration"

    def cache_folder(self, step: str) -> Path:
        """Where the program's compilers may cache while ``step`` runs it."""
        return self.folder / "cache" / step

    def empty_cache(self, step: str) -> None:
        """Forget what the program's compilers cached in ``step``."""
        shutil.rmtree(self.cache_folder(step), ignore_errors=True)

    def new_reports_folder(self, step: str) -> Path:
        """An empty folder where each process of the program says what it did."""
        folder = self.folder / "reports" / step
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def new_capture_folder(self) -> Path:
        """The folder of the next capture: ``captures/001`` and so on."""
        number = 1 + max((int(path.name) for path in self._captures()), default=0)
        return self.folder / "captures" / f"{number:03d}"

    def last_capture_folder(self) -> Path:
        """Raises ``KprofError`` if there is no capture yet."""
        captures = sorted(self._captures(), key=lambda path: int(path.name))
        if not captures:
            raise KprofError(
                f"{self.folder} has no capture yet",
                hint=f"make one: kprof-inject run {self.folder} -- PROG",
            )
        return captures[-1]

    def _captures(self) -> Iterator[Path]:
        return (path for path in (self.folder / "captures").glob("*") if path.name.isdigit())

    def write_kernel(self, variant: str, info: dict[str, Any], ttgir: str, sources: dict[str, str]) -> None:
        folder = self.kernels_folder / variant
        write_text(folder / "kernel.ttgir", ttgir)
        write_json(folder / "sources.json", sources)
        write_json(folder / "kernel.json", info)  # last: its presence makes the kernel

    def kernels(self) -> list[DumpedKernel]:
        """The dumped kernels, ordered by name."""
        found = [self.kernel(path.parent.name) for path in self.kernels_folder.glob("*/kernel.json")]
        return sorted(found, key=lambda kernel: (kernel.name, kernel.variant))

    def kernel(self, variant: str) -> DumpedKernel:
        folder = self.kernels_folder / variant
        info = read_object(folder / "kernel.json", "name", "override_key", "file_name")
        return DumpedKernel(variant, info, folder / "kernel.ttgir")

    def kernel_sources(self, variant: str) -> dict[str, str]:
        return _texts(self.kernels_folder / variant / "sources.json")

    def write_clean_run(self, variant: str, process: str, run: dict[str, Any]) -> None:
        """Save what one process saw of a kernel without records: its resources, and ``times_ns`` of launches."""
        write_json(self.kernels_folder / variant / f"clean-{process}.json", run)

    def clean_run(self, variant: str) -> dict[str, Any]:
        """The same of all processes: the resources of one, and the times of all; empty if none loaded the kernel."""
        runs = [read_object(path, "times_ns") for path in sorted((self.kernels_folder / variant).glob("clean-*.json"))]
        if not runs:
            return {}
        return {**runs[0], "times_ns": [time for run in runs for time in run["times_ns"]]}

    def write_plan(self, kernel: DumpedKernel, scope_table: dict[str, Any], instrumented: str) -> Path:
        """Save a kernel's plan; returns the path of its instrumented TTGIR.

        The override folder is laid out as Triton looks it up, below a folder for the variant, and holds the
        ``.ttgir`` alone: any later stage beside it would undo the records.
        """
        path = self.override_path(kernel)
        write_text(path, instrumented)
        write_json(self.plans_folder / kernel.variant / "scopes.json", scope_table)
        return path

    def clear_plans(self) -> None:
        """Forget every plan, so that ``run`` leaves all kernels as they are."""
        shutil.rmtree(self.plans_folder, ignore_errors=True)
        shutil.rmtree(self.override_folder, ignore_errors=True)

    def override_path(self, kernel: DumpedKernel) -> Path:
        folder = self.override_folder / kernel.variant / str(kernel.info["override_key"])
        return folder / f"{kernel.info['file_name']}.ttgir"

    def scope_table(self, variant: str) -> dict[str, Any] | None:
        """The plan's scope table, or None if this variant has no plan."""
        path = self.plans_folder / variant / "scopes.json"
        return read_object(path) if path.exists() else None
