"""The folder on disk that the steps hand on, and what stands where in it."""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from kprof_inject.capture.encoding import Record, decode, encode, read_json
from kprof_inject.capture.schema import (
    KERNEL_FILE,
    KERNELS_FOLDER,
    MOST_TEXT_BYTES,
    SOURCES_FILE,
    TTGIR_FILE,
    DumpedKernelRecord,
    ScopeTableRecord,
    TimedResources,
)
from kprof_inject.errors import KprofError, printable
from kprof_inject.files import decode_text, read_regular, write_bytes, write_json, write_text

WORKSPACE_VERSION = 1

_MARK = "workspace.json"
_DUMP_AGAIN = "dump again: kprof-inject dump"
_LOCK = "workspace.lock"
_held: set[IO[bytes]] = set()
"""The lock files that this process holds."""


class _Holder(Struct, frozen=True):
    """Who holds a workspace, as its lock file says."""

    pid: int
    host: str
    command: str
    since: str


@contextmanager
def held(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a workspace against all that would write to it: other commands, and the program that it runs. It need not
    be one yet. Whatever ends this process gives it back; no child has it.

    Raises ``KprofError`` if another holds it, and if the folder is of no workspace. On a file system that cannot lock
    it goes on, and ``say`` is told."""
    _require_ours(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(folder) from None
        except OSError as error:
            say(f"{folder} cannot be locked ({error.strerror}): see to it that no other command uses it meanwhile")
            yield
            return
        _write_holder(file)
        _held.add(file)
        try:
            yield
        finally:
            if file in _held:  # not in a fork
                _held.discard(file)
                fcntl.flock(file, fcntl.LOCK_UN)


def _write_holder(file: IO[bytes]) -> None:
    holder = _Holder(os.getpid(), platform.node(), shlex.join(sys.orig_argv), time.strftime("%Y-%m-%d %H:%M:%S"))
    with suppress(OSError):  # as on a full disk: the lock is held all the same
        file.truncate(0)
        file.write(encode(holder) + b"\n")


def _in_use(folder: Path) -> KprofError:
    try:
        holder = decode(read_json(folder / _LOCK, folder), _Holder, _LOCK)
    except KprofError:  # its holder could not write it, or is about to
        who = "another command"
    else:
        host = "" if holder.host == platform.node() else f" on {holder.host}"
        who = printable(f"process {holder.pid}{host} since {holder.since}: {holder.command}")
    return KprofError(f"{folder} is in use by {who}", hint="wait until it has ended, or name another folder with -o")


def _let_go() -> None:
    for file in _held:
        file.close()
    _held.clear()


# A fork shares the lock, and may outlive us.
os.register_at_fork(after_in_child=_let_go)


def _require_ours(folder: Path) -> None:
    if folder.exists() and not (folder / _MARK).exists() and any(path.name != _LOCK for path in folder.iterdir()):
        raise KprofError(
            f"{folder} is not empty and no workspace of kprof-inject",
            hint="name another folder with -o",
        )
    _require_no_links(folder)


def _require_no_links(folder: Path) -> None:
    """Raise ``KprofError`` if what is written to a workspace would land elsewhere. What lies deeper is emptied before
    anything is written there."""
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        if path.is_symlink():
            raise KprofError(f"{path} is a symbolic link", hint="remove it, or use another workspace")


@dataclass(frozen=True, slots=True)
class DumpedKernel:
    """One compiled variant that ``dump`` saves; inside a program, ``variant_of`` tells which one it is before that.

    ``DumpedKernelRecord`` alone would not do: it is what stands in the variant's folder, and does not name it."""

    variant: str
    """Names it, as a folder of the workspace."""
    info: DumpedKernelRecord
    ttgir_path: Path

    @property
    def name(self) -> str:
        return self.info.name

    def ttgir(self) -> str:
        data = read_regular(self.ttgir_path, MOST_TEXT_BYTES, _workspace_of_kernel(self.ttgir_path.parent))
        return decode_text(data, str(self.ttgir_path))


def snapshot_beside(ttgir_path: Path) -> dict[str, str]:
    """The source texts that ``dump`` saved beside a kernel's TTGIR; none for a file from elsewhere."""
    path = ttgir_path.parent / SOURCES_FILE
    return _texts(path, path.parent) if path.is_file() and (ttgir_path.parent / KERNEL_FILE).is_file() else {}


def _texts(path: Path, within: Path) -> dict[str, str]:
    return decode(read_regular(path, MOST_TEXT_BYTES, within), dict[str, str], str(path), _DUMP_AGAIN)


def _workspace_of_kernel(folder: Path) -> Path:
    """``kernels/VARIANT`` stands in it."""
    return folder.parent.parent


class _Mark(Struct, frozen=True):
    version: int | None = None


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
        _require_ours(folder)
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
        version = decode(read_json(folder / _MARK, folder), _Mark, str(folder / _MARK), _DUMP_AGAIN).version
        if version != WORKSPACE_VERSION:
            raise KprofError(
                f"{folder} has workspace version {version}, this program uses {WORKSPACE_VERSION}",
                hint=f"dump again: kprof-inject dump -o {folder} -- PROG",
            )
        _require_no_links(folder)
        return cls(folder)

    @property
    def kernels_folder(self) -> Path:
        return self.folder / KERNELS_FOLDER

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
        """Where compilers may cache in ``step`` of this process."""
        return self.folder / "cache" / f"{step}-{os.getpid()}"

    def new_cache_folder(self, step: str) -> Path:
        """Where the program's compilers may cache while this process runs it: nothing is there. What processes that
        have ended left is removed, of whatever step; that of others is theirs."""
        ours = self.cache_folder(step)
        for folder in ours.parent.glob("*-*"):
            pid = folder.name.rpartition("-")[2]
            if folder == ours or not (pid.isdecimal() and is_running(int(pid))):
                shutil.rmtree(folder, ignore_errors=True)
        return ours

    def new_reports_folder(self, step: str) -> Path:
        """An empty folder where each process of the program says what it did."""
        folder = self.folder / "reports" / step
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def new_capture_folder(self) -> Path:
        """Claim the folder of the next capture: ``captures/001`` and so on. Nobody else is given it."""
        number = 1 + max((int(path.name) for path in self._captures()), default=0)
        while True:
            folder = self.folder / "captures" / f"{number:03d}"
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
            else:
                return folder

    def forget_if_empty(self, capture_folder: Path) -> None:
        """Give a capture's folder back if nothing came of it."""
        with suppress(OSError):
            capture_folder.rmdir()
            capture_folder.parent.rmdir()

    def last_capture_folder(self) -> Path:
        """Raises ``KprofError`` if there is no capture yet."""
        captures = sorted(filter(_is_begun, self._captures()), key=lambda path: int(path.name))
        if not captures:
            raise KprofError(
                f"{self.folder} has no capture yet",
                hint=f"make one: kprof-inject run {self.folder} -- PROG",
            )
        return captures[-1]

    def _captures(self) -> Iterator[Path]:
        return (path for path in (self.folder / "captures").glob("*") if path.name.isdecimal())

    def write_kernel(self, variant: str, info: DumpedKernelRecord, ttgir: str, sources: dict[str, str]) -> None:
        folder = self.kernels_folder / variant
        write_text(folder / TTGIR_FILE, ttgir)
        _write(folder / SOURCES_FILE, sources)
        _write(folder / KERNEL_FILE, info)  # last: its presence makes the kernel

    def kernels(self) -> list[DumpedKernel]:
        """The dumped kernels, ordered by name."""
        found = [self.kernel(path.parent.name) for path in self.kernels_folder.glob(f"*/{KERNEL_FILE}")]
        return sorted(found, key=lambda kernel: (kernel.name, kernel.variant))

    def kernel(self, variant: str) -> DumpedKernel:
        return self.kernel_of(variant, self._read(self.kernels_folder / variant / KERNEL_FILE, DumpedKernelRecord))

    def kernel_of(self, variant: str, info: DumpedKernelRecord) -> DumpedKernel:
        """The kernel with this name; it need not be saved yet."""
        return DumpedKernel(variant, info, self.kernels_folder / variant / TTGIR_FILE)

    def kernel_sources(self, variant: str) -> dict[str, str]:
        return _texts(self.kernels_folder / variant / SOURCES_FILE, self.folder)

    def write_clean_run(self, variant: str, process: str, run: TimedResources) -> None:
        """Save what one process saw of a kernel without records: its resources, and ``times_ns`` of launches."""
        _write(self.kernels_folder / variant / f"clean-{process}.json", run)

    def clean_run(self, variant: str) -> TimedResources:
        """The same of all processes: the resources of one, and the times of all; nothing known if none loaded the
        kernel."""
        paths = sorted((self.kernels_folder / variant).glob("clean-*.json"))
        runs = [self._read(path, TimedResources) for path in paths]
        if not runs:
            return TimedResources()
        return msgspec.structs.replace(runs[0], times_ns=tuple(time for run in runs for time in run.times_ns or ()))

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
        return self.override_folder / kernel.variant / kernel.info.override_key / f"{kernel.info.file_name}.ttgir"

    def scope_table(self, variant: str) -> ScopeTableRecord | None:
        """The plan's scope table, or None if this variant has no plan."""
        path = self.plans_folder / variant / "scopes.json"
        return self._read(path, ScopeTableRecord) if path.exists() else None

    def _read(self, path: Path, kind: type[Record]) -> Record:
        return decode(read_json(path, self.folder), kind, str(path), _DUMP_AGAIN)


def _write(path: Path, record: Any) -> None:
    write_bytes(path, msgspec.json.format(encode(record), indent=1) + b"\n")


def _is_begun(capture_folder: Path) -> bool:
    return any(capture_folder.iterdir())


def is_running(pid: int) -> bool:
    """Whether there is such a process on this machine. One that waits for its parent to notice its end (Linux: "Z") has
    ended."""
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
