"""Files of a capture: the record that each of them holds, its name, and how to read and write it.

``docs/file-formats.md`` is the description.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from kprof_inject.capture.encoding import decode, encode, indented, read_sealed, write_sealed
from kprof_inject.capture.measurements import GpuWorkRecord, LoadedIntegersRecord, MeasurementsRecord, MovesRecord
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.resources import KernelResources, TimingRecord
from kprof_inject.capture.schema import (
    KERNEL_FILE,
    SOURCES_FILE,
    TTGIR_FILE,
    Argument,
    Bytes,
    Count,
    Crc32,
    CtaShift,
    DeviceIndex,
    FileName,
    Grid,
    LaunchIndex,
    LayoutName,
    Metadata,
    Name,
    ScopeId,
    SmClockHz,
    Text,
    TimeNs,
    known_fields,
)
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.files import open_regular, write_bytes
from kprof_inject.machine_code.instructions import MachineFunction

FORMAT_VERSION = 4  # no other version is read

KERNELS_FOLDER = "kernels"


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """Content of ``process.json``; ``made_by`` is the command that captured for its own use, or empty."""

    version: int = FORMAT_VERSION
    made_by: Name = ""
    pid: Annotated[int, Meta(ge=0, lt=1 << 32)]
    rank: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    argv: tuple[Text, ...] = ()
    executable: Text = ""
    host: Name = ""
    boot_id: Name = ""
    tool: Name = ""
    python: Name = ""
    torch: Name = ""
    triton: Name = ""
    device_names: tuple[Name, ...] = ()
    device_uuids: tuple[Name, ...] = ()
    recording: Recording | None = None


class LaunchRecord(Struct, frozen=True, kw_only=True):
    """Line of ``launches.jsonl``: a launch whose buffer was saved.

    ``index`` is its number among the launches of its variant in its process, ``host_ns`` when the host called it.
    ``arguments`` are the compiled function's integers and addresses, None for others; empty if they are unknown. With
    ``graph``, it was captured into a CUDA graph, and the buffer is that of the last replay. Of ``2 ** cta_shift``
    clusters one recorded (see ``cta_samples``).
    """

    variant: FileName
    index: LaunchIndex
    grid: Grid
    device: DeviceIndex
    stream: Annotated[int, Meta(ge=0)]
    host_ns: TimeNs
    host_end_ns: TimeNs | None = None
    buffer_bytes: Bytes
    file: FileName
    buffer_crc32: Crc32 | None = None
    graph: bool = False
    arguments: Annotated[tuple[Argument | None, ...], Meta(max_length=1 << 12)] = ()
    cta_shift: CtaShift = 0


class DropRecord(Struct, frozen=True, kw_only=True):
    """Line of ``launches.jsonl``: the launch with this file was removed, because a later one replaces it."""

    drop: FileName


class ClockRecord(Struct, frozen=True):
    """Line of ``clock.jsonl``: a device's globaltimer read ``device_ns`` at host time ``host_ns`` ± ``error_ns``."""

    device: DeviceIndex
    host_ns: TimeNs
    device_ns: TimeNs
    error_ns: TimeNs


class EndRecord(Struct, frozen=True):
    """Content of ``end.json``: launches that were not saved, by reason, and launches of each variant, saved or not."""

    left_out: dict[Text, Count]
    launches: dict[Name, Count] = field(default_factory=dict)


class KernelRecord(Struct, frozen=True, kw_only=True):
    """Content of a capture's ``kernel.json``.

    ``program_variant`` is the dumped variant that the build was made from: builds with a smaller buffer share it.
    ``scope_ids`` is Proton's table, from id to record name. ``metadata`` is Triton's, of the build with records.
    ``sm_clock_hz`` is the nominal clock. Each launch records 1 of ``2 ** cta_shift`` clusters, with None as many as
    suit its grid. The checksums are of the texts in the same folder.
    """

    name: Name
    program_variant: Name = ""
    layout: LayoutName
    cta_shift: CtaShift | None = 0
    scope_ids: dict[ScopeId, Name]
    scopes: ScopeTable = field(name="scope_table")
    sm_clock_hz: SmClockHz | None = None
    sm_count: Annotated[int, Meta(ge=1, lt=1 << 16)] | None = None
    l2_bytes: Annotated[int, Meta(ge=1, lt=1 << 48)] | None = None
    dram_bytes_per_s: Annotated[float, Meta(ge=1, lt=1e15)] | None = None
    mode: Mode
    metadata: dict[str, Any]
    clean: KernelResources = KernelResources()
    with_records: KernelResources = KernelResources()
    ttgir_crc32: Crc32 | None = None
    sources_crc32: Crc32 | None = None

    def __post_init__(self) -> None:
        num_warps = self.known_metadata.num_warps
        if self.mode.buffer == AUTO_BUFFER:
            raise ValueError("expected a buffer of shared or global - at `$.mode.buffer`")
        if any(warp >= num_warps for warp in self.mode.warps):
            raise ValueError(f"expected warps below {num_warps}, the number of a CTA's warps - at `$.mode.warps`")
        self.mode.require_ascending_warps()

    @property
    def known_metadata(self) -> Metadata:
        """Known fields of Triton's metadata."""
        return known_fields(self.metadata, Metadata, "metadata")


FILES: Mapping[type[Struct], str] = {
    GpuWorkRecord: "gpu_work.json",
    ProcessRecord: "process.json",
    LaunchRecord: "launches.jsonl",
    DropRecord: "launches.jsonl",
    ClockRecord: "clock.jsonl",
    EndRecord: "end.json",
    KernelRecord: KERNEL_FILE,
    TimingRecord: "timing.json",
    MeasurementsRecord: "measurements.json",
    MachineFunction: "machine_code.json",
    MovesRecord: "moves.json",
    LoadedIntegersRecord: "loaded_integers.json",
}
"""Names of the files, in the folder of the capture, of a process, or of a kernel; ``jsonl``: a record in each line."""

Record = TypeVar("Record", bound=Struct)


def read(folder: Path, kind: type[Record]) -> Record:
    """Read the file of a record; raises ``KprofError`` if it is missing or damaged."""
    return read_sealed(folder / FILES[kind], kind)


def read_optional(folder: Path, kind: type[Record]) -> Record | None:
    """Read the file of a record; None if it was not written."""
    return read(folder, kind) if (folder / FILES[kind]).exists() else None


def write(folder: Path, record: Struct) -> None:
    """Write or replace the file of a record."""
    write_sealed(folder / FILES[type(record)], record)


def launch_lines(folder: Path) -> Iterator[tuple[LaunchRecord | DropRecord, str]]:
    """Yield each record of ``launches.jsonl`` and its place for messages; raises ``KprofError`` for a damaged line."""
    for line, where in _lines(folder / FILES[LaunchRecord]):
        is_drop = line.startswith(b'{"drop"')
        yield decode(line, DropRecord, where) if is_drop else decode(line, LaunchRecord, where), where


def clock_readings(folder: Path) -> tuple[ClockRecord, ...]:
    """Read ``clock.jsonl``; raises ``KprofError`` for a damaged line."""
    return tuple(decode(line, ClockRecord, where) for line, where in _lines(folder / FILES[ClockRecord]))


def _lines(path: Path) -> Iterator[tuple[bytes, str]]:
    if not path.exists():
        return
    with io.BufferedReader(open_regular(path, path.parent)) as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield line, f"{path}:{number}"


class CaptureWriter:
    """Writer of one process's folder; a killed program loses at most one launch, whose line follows its buffer."""

    def __init__(self, folder: Path, process: ProcessRecord) -> None:
        self._folder = folder
        self._kernels: set[str] = set()
        self._files = 0
        write(folder, process)

    def add_kernel(self, variant: str, kernel: KernelRecord, ttgir: str, sources: Mapping[str, str]) -> None:
        """Save the record and the texts of a compiled kernel; a variant is saved once."""
        if variant in self._kernels:
            return
        folder = self._folder / KERNELS_FOLDER / variant
        module, files = ttgir.encode(), indented(sources)
        write_bytes(folder / TTGIR_FILE, module)
        write_bytes(folder / SOURCES_FILE, files)
        write(folder, replace(kernel, ttgir_crc32=zlib.crc32(module), sources_crc32=zlib.crc32(files)))
        self._kernels.add(variant)

    def add_launch(self, launch: LaunchRecord, buffer: memoryview) -> str:
        """Save one launch's buffer, then its line; return the name chosen for the buffer's file."""
        name = f"launch-{self._files:06d}.bin"
        self._files += 1
        path = self._folder / name
        try:
            # Written directly, without a temporary name: a buffer without its line is ignored, and this is done very
            # often.
            with path.open("wb", buffering=0) as file:
                rest = buffer
                while rest:
                    rest = rest[file.write(rest) :]
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._append(replace(launch, file=name, buffer_crc32=zlib.crc32(buffer)))
        return name

    def drop_launch(self, name: str) -> None:
        """Remove a launch, because a later one replaces it."""
        self._append(DropRecord(drop=name))
        (self._folder / name).unlink()

    def add_times(self, variant: str, timing: TimingRecord) -> None:
        """Save the times of launches; does nothing for a variant of which no launch was saved."""
        if variant in self._kernels:
            write(self._folder / KERNELS_FOLDER / variant, timing)

    def add_clock_reading(self, reading: ClockRecord) -> None:
        """Save a reading of a device's timer."""
        self._append(reading)

    def finish(self, left_out: Mapping[str, int], launches: Mapping[str, int] | None = None) -> None:
        """Save what was left out, by reason, and each variant's launches."""
        write(self._folder, EndRecord(dict(left_out), dict(launches or {})))

    def _append(self, record: LaunchRecord | DropRecord | ClockRecord) -> None:
        with (self._folder / FILES[type(record)]).open("ab") as file:
            file.write(encode(record) + b"\n")
