"""Reads a capture. Needs msgspec and numpy alone."""

from __future__ import annotations

import io
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.costs import UNKNOWN_COST, KernelCost, clean_cost, cost_with_records
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.origin import HostReading, Origin, Place
from kprof_inject.capture.record_cost import CostKey, MeasuredCost, RecordCost, cost_of, read_costs
from kprof_inject.capture.schema import (
    CAPTURE_AGAIN,
    CLOCK_FILE,
    END_FILE,
    KERNEL_FILE,
    KERNELS_FOLDER,
    LAUNCHES_FILE,
    MOST_TEXT_BYTES,
    PROCESS_FILE,
    RECORD_COSTS_FILE,
    SOURCES_FILE,
    TIMING_FILE,
    TTGIR_FILE,
    ClockRecord,
    DropRecord,
    EndRecord,
    KernelRecord,
    LaunchRecord,
    LayoutName,
    ProcessRecord,
    Record,
    TimingRecord,
    decode,
    decode_launch_line,
    decode_process,
    read_json,
    require_same_recording,
    require_seal,
)
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, open_regular, read_regular


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled variant: ``name`` is the function's, ``metadata`` Triton's own (``num_warps``, ``shared``,
    ``target``), ``scope_ids`` Proton's table from id to record name, ``sm_clock_hz`` the device's nominal clock.
    ``clean`` and ``with_records`` are what it costs without records and with them, ``record_cost`` what a record of it
    costs, or None if that is unknown; and so is ``sm_count``, how many SMs the device has."""

    variant: str
    name: str
    num_warps: int
    stride_bytes: int
    layout: LayoutName
    scope_ids: dict[int, str]
    scopes: ScopeTable
    sm_clock_hz: float
    mode: Mode
    metadata: dict[str, Any]
    folder: Path
    clean: KernelCost = UNKNOWN_COST
    with_records: KernelCost = UNKNOWN_COST
    record_cost: RecordCost | None = None
    sm_count: int | None = None
    checksums: tuple[int | None, int | None] = (None, None)
    """CRC-32 of the module's file and of that of its sources; None in captures of format 1."""
    capture_folder: Path | None = None

    def ttgir(self) -> str:
        """The module as the compiler made it, before records were inserted."""
        return decode_text(self._file(TTGIR_FILE, self.checksums[0]), str(self.folder / TTGIR_FILE))

    def sources(self) -> dict[str, str]:
        """The text of each source file that the module refers to, by the path it is referred to by."""
        return decode(self._file(SOURCES_FILE, self.checksums[1]), dict[str, str], str(self.folder / SOURCES_FILE))

    def _file(self, name: str, crc32: int | None) -> bytes:
        path = self.folder / name
        data = read_regular(path, MOST_TEXT_BYTES, self.capture_folder)
        _require_crc32(zlib.crc32(data), crc32, path)
        return data


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch whose buffer was saved. ``index`` counts the launches of its variant in its process.

    The host called it at ``host_ns``, and the call had returned at ``host_end_ns``, which older captures do not tell.
    ``graph`` says that it was captured into a CUDA graph: the buffer is that of the last replay. The buffer
    begins at ``offset_bytes`` of the ``file`` in ``folder``."""

    kernel: Kernel
    origin: Origin
    index: int
    grid: tuple[int, int, int]
    device: int
    stream: int
    host_ns: int
    folder: Path
    file: str
    buffer_bytes: int
    graph: bool
    host_end_ns: int | None = None
    offset_bytes: int = 0
    crc32: int | None = None
    """Of the buffer; None in captures of format 1."""
    process: ProcessRecord | None = None
    """What the process said of itself; None where nothing is known."""
    capture_folder: Path | None = None
    """The buffer lies in it; None for a file of the user's own."""

    @property
    def path(self) -> Path:
        """Made when it is asked for: of a thousand launches, few are."""
        return self.folder / self.file

    @property
    def device_name(self) -> str:
        """Empty if it is unknown."""
        return self.origin.device_name(self.device)

    @property
    def place(self) -> Place:
        """The process and the device that it ran on."""
        return Place(self.origin.host, self.origin.rank, self.origin.pid, self.device)

    def words(self) -> NDArray[np.uint32]:
        """The raw buffer as words, one row for each CTA: shape (CTAs, stride_bytes / 4)."""
        path = self.path
        with open_regular(path, self.capture_folder) as file:
            size = os.fstat(file.fileno()).st_size - self.offset_bytes
            if size != self.buffer_bytes:
                raise KprofError(
                    f"{path} is damaged: {size} bytes, where {self.buffer_bytes} were saved", hint=CAPTURE_AGAIN
                )
            try:
                raw = np.fromfile(file, dtype="<u4", count=self.buffer_bytes // 4, offset=self.offset_bytes)
            except OSError as error:
                raise KprofError(f"cannot read {path}: {error.strerror}") from None
        if self.crc32 is not None:
            _require_crc32(zlib.crc32(raw.data), self.crc32, path)
        return raw.reshape(-1, self.kernel.stride_bytes // 4)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the program. ``ended`` is false if it was killed before it could say what it left out.

    ``damaged_readings`` counts the lines of its clock file that are no readings of the host's clock."""

    origin: Origin
    info: ProcessRecord
    launches: tuple[Launch, ...]
    ended: bool
    left_out: dict[str, int]
    """Launches seen but not saved, by the reason."""
    damaged_readings: int

    @property
    def pid(self) -> int:
        return self.origin.pid


@dataclass(frozen=True, slots=True)
class Capture:
    """What one ``run`` saved."""

    folder: Path
    processes: tuple[Process, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches of all processes, in the order of the host's clock."""
        launches = [launch for process in self.processes for launch in process.launches]
        return tuple(sorted(launches, key=lambda launch: launch.host_ns))


def is_capture(folder: Path) -> bool:
    return any(folder.glob(f"*/{PROCESS_FILE}"))


def seen_launches(folder: Path) -> int:
    """How many launches with records a capture's processes made, kept or not. Those that were killed do not tell."""
    return sum(sum(end.launches.values()) for end in _ends(folder))


def left_out_launches(folder: Path) -> Counter[str]:
    """How many launches a capture's processes did not save, by the reason."""
    return sum((Counter(end.left_out) for end in _ends(folder)), Counter())


def _ends(folder: Path) -> Iterator[EndRecord]:
    files = [_ProcessFiles.open(path.parent) for path in sorted(folder.glob(f"*/{PROCESS_FILE}"))]
    return (end for file in files if (end := file.read_if_there(END_FILE, EndRecord)) is not None)


def read_capture(folder: Path) -> Capture:
    """Open a capture; buffers are read when they are asked for. Raises ``KprofError`` if it is none, or if what it
    holds is not what was saved."""
    if not is_capture(folder):
        raise KprofError(f"{folder} is no capture", hint="make one: kprof-inject profile -- PROG, or run after insert")
    files = [_ProcessFiles.open(path.parent) for path in sorted(folder.glob(f"*/{PROCESS_FILE}"))]
    _require_one_run(folder, [file.process for file in files])
    first = files[0].process
    costs = read_costs(folder / RECORD_COSTS_FILE, first.run if first.version > 1 else "")
    return Capture(folder, tuple(_process(file, costs) for file in files))


def _require_one_run(folder: Path, processes: Sequence[ProcessRecord]) -> None:
    if len({(process.version, process.run) for process in processes}) > 1:
        raise KprofError(
            f"the processes in {folder} are of several captures", hint="keep each capture in a folder of its own"
        )
    names = [process.process for process in processes if process.process]
    if len(set(names)) < len(names):
        raise KprofError(f"{folder} holds a process twice", hint="take the copy out of it")


@dataclass(frozen=True, slots=True)
class _ProcessFiles:
    """The folder of one process, and what its ``process.json`` says."""

    folder: Path
    capture_folder: Path
    process: ProcessRecord

    @classmethod
    def open(cls, folder: Path) -> _ProcessFiles:
        path = folder / PROCESS_FILE
        return cls(folder, folder.parent, decode_process(read_json(path, folder.parent), str(path)))

    def read(self, name: str, kind: type[Record]) -> Record:
        path = self.folder / name
        text = read_json(path, self.capture_folder)
        self.require_seal(text, name, str(path))
        return decode(text, kind, str(path))

    def read_if_there(self, name: str, kind: type[Record]) -> Record | None:
        """None if there is no such file."""
        return self.read(name, kind) if os.path.lexists(self.folder / name) else None

    def lines(self, name: str) -> Iterator[tuple[bytes, str]]:
        """All lines that were written to their end, and what to call each; of a killed program the last may be cut."""
        path = self.folder / name
        if not os.path.lexists(path):
            return
        with io.BufferedReader(open_regular(path, self.capture_folder)) as file:
            number = 0
            while (line := file.readline(_LONGEST_LINE_BYTES)).endswith(b"\n"):
                number += 1
                yield line, f"{path}:{number}"
        if len(line) == _LONGEST_LINE_BYTES:
            raise KprofError(f"{path}:{number + 1}: no line has {len(line)} bytes", hint=CAPTURE_AGAIN)

    def require_seal(self, text: bytes, name: str, where: str) -> None:
        """Captures of format 1 have no checksums."""
        if self.process.version > 1:
            require_seal(text, f"{self.process.process}/{name}", where)


_LONGEST_LINE_BYTES = 1 << 20


def _process(files: _ProcessFiles, costs: Mapping[CostKey, MeasuredCost]) -> Process:
    end = files.read_if_there(END_FILE, EndRecord)
    readings, damaged_readings = _host_readings(files)
    origin = _origin(files, readings)
    kernels: dict[tuple[str, str], _BuiltKernel] = {}
    launches: dict[str, Launch] = {}
    lines = 0
    for line, where in files.lines(LAUNCHES_FILE):
        lines += 1
        record = _launch_line(files, line, lines, where)
        name = record.drop if isinstance(record, DropRecord) else record.file
        if isinstance(record, DropRecord):
            if launches.pop(name, None) is None:
                raise KprofError(f"{where}: $.drop: no launch before it has the file {name!r}", hint=CAPTURE_AGAIN)
            continue
        if name in launches:
            raise KprofError(f"{where}: $.file: another launch has it: {name!r}", hint=CAPTURE_AGAIN)
        key = record.variant, origin.device_name(record.device)
        if key not in kernels:
            kernels[key] = _kernel(files, record.variant, key[1], costs)
        launches[name] = _launch(files, origin, kernels[key], record, where)
    if end is not None and end.launch_lines is not None and lines < end.launch_lines:
        raise KprofError(
            f"{files.folder / LAUNCHES_FILE} has {lines} lines, where {end.launch_lines} were written: launches are "
            "missing",
            hint=CAPTURE_AGAIN,
        )
    left_out = end.left_out if end else {}
    return Process(origin, files.process, tuple(launches.values()), end is not None, left_out, damaged_readings)


def _launch_line(files: _ProcessFiles, line: bytes, number: int, where: str) -> LaunchRecord | DropRecord:
    """Raises ``KprofError`` if the line is damaged, or if one before it is missing."""
    files.require_seal(line, LAUNCHES_FILE, where)
    record = decode_launch_line(line, where)
    if files.process.version > 1 and record.line != number:
        raise KprofError(
            f"{where}: $.line: expected {number}, got {record.line}: lines are missing", hint=CAPTURE_AGAIN
        )
    return record


@dataclass(frozen=True, slots=True)
class _BuiltKernel:
    kernel: Kernel
    cta_bytes: int


def _kernel(
    files: _ProcessFiles, variant: str, device_name: str, costs: Mapping[CostKey, MeasuredCost]
) -> _BuiltKernel:
    folder = f"{KERNELS_FOLDER}/{variant}"
    record = files.read(f"{folder}/{KERNEL_FILE}", KernelRecord)
    require_same_recording(record, files.process, str(files.folder / folder / KERNEL_FILE))
    timing = files.read_if_there(f"{folder}/{TIMING_FILE}", TimingRecord)
    known, mode = record.known_metadata, Mode(*msgspec.structs.astuple(record.mode))
    kernel = Kernel(
        variant,
        record.name,
        known.num_warps,
        known.profile_scratch_size,
        record.layout,
        record.scope_ids,
        ScopeTable.of(record.scope_table),
        record.sm_clock_hz,
        mode,
        record.metadata,
        files.folder / folder,
        clean_cost(record),
        cost_with_records(record, timing),
        cost_of(CostKey.of(device_name, files.process.triton, mode), costs),
        record.sm_count or None,
        (record.ttgir_crc32, record.sources_crc32),
        files.capture_folder,
    )
    return _BuiltKernel(kernel, record.cta_bytes)


def _launch(files: _ProcessFiles, origin: Origin, built: _BuiltKernel, record: LaunchRecord, where: str) -> Launch:
    ctas = math.prod(record.grid)
    # The first captures left out that a cluster's CTAs each have a row.
    allowed = {ctas * built.cta_bytes} | ({ctas * built.kernel.stride_bytes} if files.process.version == 1 else set())
    if record.buffer_bytes not in allowed:
        raise KprofError(
            f"{where}: $.buffer_bytes: expected {ctas * built.cta_bytes} for a grid of {ctas}, got "
            f"{record.buffer_bytes}",
            hint=CAPTURE_AGAIN,
        )
    return Launch(
        built.kernel,
        origin,
        record.index,
        record.grid,
        record.device,
        record.stream,
        record.host_ns,
        files.folder,
        record.file,
        record.buffer_bytes,
        record.graph,
        record.host_end_ns,
        crc32=record.buffer_crc32,
        process=files.process,
        capture_folder=files.capture_folder,
    )


def _origin(files: _ProcessFiles, readings: tuple[HostReading, ...]) -> Origin:
    process = files.process
    return Origin(
        files.folder.name,
        process.pid,
        process.rank,
        process.host,
        process.boot_id,
        process.device_names,
        process.device_uuids,
        readings,
    )


def _host_readings(files: _ProcessFiles) -> tuple[tuple[HostReading, ...], int]:
    """The readings, and how many lines hold none: a trace does without, so that a damaged line stops no reader."""
    readings: list[HostReading] = []
    lines = 0
    for line, where in files.lines(CLOCK_FILE):
        lines += 1
        with suppress(KprofError):
            files.require_seal(line, CLOCK_FILE, where)
            readings.append(HostReading(*msgspec.structs.astuple(decode(line, ClockRecord, where))))
    return tuple(readings), lines - len(readings)


def _require_crc32(found: int, saved: int | None, path: Path) -> None:
    if saved is not None and found != saved:
        raise KprofError(
            f"{path} is not what was saved: its checksum does not match",
            hint=f"it was edited, damaged, or taken from another capture; {CAPTURE_AGAIN}",
        )
